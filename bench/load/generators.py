"""The table of load generators."""

from __future__ import annotations

from bench.errors import LoadError
from bench.load.accept import AcceptGenerator
from bench.load.base import Generator
from bench.load.beside import BesideGenerator
from bench.load.chat import ChatGenerator
from bench.load.closedloop import ClosedLoopGenerator
from bench.load.h2load import H2load
from bench.load.h3load import H3load
from bench.load.httpx_driver import HttpxGenerator
from bench.load.oha import Oha
from bench.load.openloop import OpenLoopGenerator
from bench.load.overload import OverloadGenerator
from bench.load.s_time import TLSConnections
from bench.load.tokens import TokensGenerator
from bench.load.websocket import WebSocketGenerator
from bench.load.wrk import Wrk

_ALL: tuple[Generator, ...] = (
    Wrk(),
    H2load("h2load", ("--h1",)),
    H2load("h2load-h2", ("-p", "h2c"), "http2", "tls"),
    H3load(),
    Oha(),
    OpenLoopGenerator(),
    OverloadGenerator(),
    ClosedLoopGenerator(),
    ChatGenerator(),
    HttpxGenerator(),
    WebSocketGenerator(),
    AcceptGenerator(),
    BesideGenerator(),
    TokensGenerator(),
    TLSConnections(),
)
GENERATORS = {generator.name: generator for generator in _ALL}


def find(name: str) -> Generator:
    """The generator of a name; raises LoadError for an unknown one."""
    if name not in GENERATORS:
        raise LoadError(f"unknown load generator {name!r}: choose from {', '.join(GENERATORS)}")
    return GENERATORS[name]


def require(name: str) -> Generator:
    """The generator of a name, which must be usable here; raises LoadError saying why it is not."""
    generator = find(name)
    missing = generator.missing()
    if missing:
        raise LoadError(missing)
    return generator
