"""All features, in the order of the page."""

from __future__ import annotations

from tests.features.files import FILES
from tests.features.overload import OVERLOAD
from tests.features.proxies import PROXIES
from tests.features.requests import REQUESTS
from tests.features.service import SERVICE
from tests.features.tls import TLS

FEATURES = [*TLS, *PROXIES, *OVERLOAD, *FILES, *REQUESTS, *SERVICE]
