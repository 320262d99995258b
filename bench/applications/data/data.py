"""A published database: datasette, with the shop's tables."""

from __future__ import annotations

import os

from datasette.app import Datasette

application = Datasette([os.environ["DATA_DATABASE"]]).app()
