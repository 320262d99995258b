"""Nothing that is made per connection, request or message carries a `__dict__` that it uses.

The classes that programs patch can have one, for the attributes of those programs.
"""

from __future__ import annotations

import enum
import gc
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from typing import Any, is_typeddict

import pytest

import uvicorn.protocols
from tests.protocols.harness import Service, echo, request, serve
from tests.utils import wait_until
from uvicorn.protocols.http import h11_impl, httptools_impl
from uvicorn.protocols.http.cycle import RequestResponseCycle

pytestmark = pytest.mark.anyio

MODULES = [
    "uvicorn.access.log",
    "uvicorn.files.mounted",
    "uvicorn.files.representation",
    "uvicorn.files.sending",
    "uvicorn.serving.event_pool",
    "uvicorn.serving.write_deadlines",
    "uvicorn.serving.state",
]

PATCHED = {
    "uvicorn.protocols.http.h11_impl.H11Protocol",
    "uvicorn.protocols.http.h11_impl.RequestResponseCycle",
    "uvicorn.protocols.http.httptools_impl.HttpToolsProtocol",
    "uvicorn.protocols.http.httptools_impl.RequestResponseCycle",
    "uvicorn.protocols.websockets.websockets_impl.WebSocketProtocol",
    "uvicorn.protocols.websockets.websockets_sansio_impl.WebSocketsSansIOProtocol",
    "uvicorn.protocols.websockets.wsproto_impl.WSProtocol",
    "uvicorn.serving.state.ServerState",
}
"""Those of upstream's names, whose methods are patched to set attributes."""


def modules() -> Iterator[Any]:
    for name in MODULES:
        yield importlib.import_module(name)
    for found in pkgutil.walk_packages(uvicorn.protocols.__path__, "uvicorn.protocols."):
        try:
            yield importlib.import_module(found.name)
        except ImportError:
            continue  # an implementation whose library, or whose native core, is not there


def is_made_often(kind: type) -> bool:
    """Not an exception, which cannot do without; and not what only describes."""
    described = is_typeddict(kind) or getattr(kind, "_is_protocol", False)
    return not described and not issubclass(kind, BaseException | enum.Enum)


def classes() -> list[type]:
    """The classes of these modules, wherever they are built on others."""
    found = {
        kind
        for module in modules()
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__ and is_made_often(kind)
    }
    return sorted(found, key=lambda kind: f"{kind.__module__}.{kind.__qualname__}")


def test_classes_are_found() -> None:
    names = {kind.__name__ for kind in classes()}
    assert {"HttpToolsProtocol", "H11Protocol", "HTTPProtocol", "RequestResponseCycle", "FlowControl"} <= names
    assert {"ScopeBase", "LengthDecoder", "ChunkedDecoder", "EventPool", "ServerState", "AccessLog"} <= names
    assert {"WebSocketsSansIOProtocol", "WSProtocol"} <= names


def has_foreign_dict(kind: type) -> bool:
    """Whether the `__dict__` comes with a base of another library."""
    return any(base.__dictoffset__ and not base.__module__.startswith("uvicorn") for base in kind.__mro__[:-1])


def name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def test_instances_of_the_classes_have_no_dict(subtests: pytest.Subtests) -> None:
    """Neither by forgetting `__slots__` nor through a base that has none."""
    for kind in classes():
        with subtests.test(name_of(kind)):
            if has_foreign_dict(kind):
                assert "__slots__" in vars(kind)  # what is ours does not add to it
            else:
                assert bool(kind.__dictoffset__) is (name_of(kind) in PATCHED)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="its place is part of the object")
def test_dict_that_is_not_used_takes_no_memory() -> None:
    plain: Any = type("Plain", (RequestResponseCycle,), {"__slots__": ()})
    for cycle in (httptools_impl.RequestResponseCycle, h11_impl.RequestResponseCycle):
        assert sys.getsizeof(object.__new__(cycle)) == sys.getsizeof(object.__new__(plain))


async def living(service: Service) -> list[Any]:
    """Objects of ours that are alive while a request is served."""
    client = await service.connect()
    await client.send(request("POST", "/", "content-length: 10") + b"hello")
    await wait_until(lambda: service.state.tasks)
    gc.collect()  # what other tests have patched, and left behind
    return [thing for thing in gc.get_objects() if str(type(thing).__module__).startswith("uvicorn.protocols")]


async def test_objects_that_serve_a_request_use_no_dict(http_protocol_cls: Any) -> None:
    async with serve(http_protocol_cls, echo) as service:
        found = await living(service)
        assert http_protocol_cls in map(type, found)
        with_dict = {type(thing) for thing in found if getattr(thing, "__dict__", None) and not isinstance(thing, type)}
    assert {kind for kind in with_dict if is_made_often(kind) and not has_foreign_dict(kind)} == set()
