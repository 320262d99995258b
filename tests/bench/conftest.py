"""The harness reads /proc and uses epoll: its tests run on Linux only."""

from __future__ import annotations

import sys

collect_ignore_glob = [] if sys.platform == "linux" else ["test_*.py"]
