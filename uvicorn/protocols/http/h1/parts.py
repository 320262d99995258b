"""The parts of one connection, for the objects that act on several of them."""

from __future__ import annotations

from typing import NamedTuple

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h1.carrier import Carrier
from uvicorn.protocols.http.h1.deadline import Deadline
from uvicorn.protocols.http.h1.input import Input
from uvicorn.protocols.http.wire.request_reader import RequestReader
from uvicorn.protocols.http.wire.response_writer import ResponseWriter


class ConnectionParts(NamedTuple):
    """The parts of one connection."""

    carrier: Carrier
    """The transport, with the settings in force."""

    flow: FlowControl
    """Whether the transport is read, and takes more to write."""

    reader: RequestReader
    """Reads requests."""

    writer: ResponseWriter
    """Encodes responses."""

    deadline: Deadline
    """The client's deadline."""

    source: Input
    """The client's input, and the request in hand."""
