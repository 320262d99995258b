"""What programs replace of the server: methods of a subclass or an object, methods and whole classes that are patched.

`original` remembers a class as it was defined, and `overrides` tells whether some of its attributes are still the same.
The rest is about protocol classes.

Upstream's classes have more methods than ours, which programs override as well. Those that have a counterpart here are
called under upstream's names. The others are what a class says in `never_called`: to override one ends the start.

Of a WebSocket class, those in `frame_methods` take the client's frames. They are called where a program has overridden
one of them (`overrides`, asked once for each class and server), because that takes longer.

Programs also replace functions and classes beside the protocol classes, in the modules that have upstream's names
(`beside`). Each class calls those of its own module; `replaced_beside` names them.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any, TypeVar

ClassT = TypeVar("ClassT", bound=type)
ValueT = TypeVar("ValueT", bound=Callable[..., Any])

_ORIGINALS: dict[type, dict[str, Any]] = {}
_BESIDE: dict[str, list[object]] = {}  # several, if a module has been imported again

_LIBRARIES = ("urllib", "websockets", "wsproto")

LOGGING_FUNCTIONS = ("get_client_addr", "get_path_with_query_string")
"""Those that make the access line of upstream."""

logger = logging.getLogger("uvicorn.error")

REMEDY = (
    "Remove the override or choose another implementation; --allow-skipped-overrides (allow_skipped_overrides=True) "
    "starts without it."
)


class TakenName(TypeError):
    """A protocol class assigns private attributes of the server."""

    level = logging.CRITICAL


class SkippedOverride(TypeError):
    """A protocol class has methods that nothing calls."""

    level = logging.CRITICAL  # a failed start is reported at every log level


def original(cls: ClassT) -> ClassT:
    """Remember what the class is like, so that `overrides` and `replaced` can tell; a decorator."""
    _ORIGINALS[cls] = dict(vars(cls))
    return cls


def overrides(thing: object, *names: str) -> bool:
    """Tell whether an object, or a class, has other attributes of these names than its `original` class had at first.

    They may be a subclass's, patched or assigned to the object. Anything without such a class has others.
    """
    classes = (thing if isinstance(thing, type) else type(thing)).__mro__
    before = ChainMap(*(_ORIGINALS[cls] for cls in classes if cls in _ORIGINALS))
    return any(name not in before or inspect.getattr_static(thing, name) is not before[name] for name in names)


def beside(value: ValueT) -> ValueT:
    """Remember a function or class that upstream's modules import by its name; a decorator."""
    _BESIDE.setdefault(value.__name__, []).append(value)
    return value


def replaced_beside(module: str | type) -> list[str]:
    """Return what programs have replaced in a module, or in that of a protocol class of ours, as `module.name`.

    Methods of a class that they have patched are named `Class.name`.
    """
    names = []
    path = module if isinstance(module, str) else _module_of(module)
    for name, value in _values(path).items():
        if value not in _BESIDE[name]:
            names.append(f"{path.rpartition('.')[2]}.{name}")
        elif isinstance(value, type):
            names += replaced(value)
    return names


def _values(path: str) -> dict[str, object]:
    """Return the values of these names in a module, if it is imported and has them."""
    found = vars(sys.modules[path]) if path in sys.modules else {}
    return {name: found[name] for name in _BESIDE if name in found}


def values_beside(cls: type) -> dict[str, Any]:
    """Return what the module of a protocol class has under these names: maybe a program's."""
    return _values(_module_of(cls))


def value_beside(cls: object, name: str, default: object) -> Any:
    """Return what it has under one of them, or the default."""
    return values_beside(cls).get(name, default) if isinstance(cls, type) else default


def _module_of(cls: type) -> str:
    """Return the module of ours that has the class, or the one that it is derived from."""
    return next((base.__module__ for base in cls.__mro__ if is_ours(base)), "")


def replaced(cls: type) -> list[str]:
    """Return what programs have put into the class and its bases, as `Class.name`; a subclass counts by itself."""
    names = [f"{owner.__name__}.{name}" for owner, name in _replaced(cls)]
    return names if is_ours(cls) else [cls.__name__, *names]


def never_called(cls: type) -> list[str]:
    """Return the methods that programs have put there, as `Class.name`, and that nothing calls.

    They are followed by classes of the library, and functions, that programs have replaced and that nothing uses.
    """
    names: tuple[str, ...] = getattr(cls, "never_called", ())
    methods = [f"{owner.__name__}.{name}" for owner, name in _replaced(cls) if name in names]
    return methods + never_used(cls)


def never_used(cls: type) -> list[str]:
    """Return what programs have replaced beside a protocol class of ours, and it does not use, as `module.name`.

    Such are the classes in `never_used`: upstream makes its connections of those. Their methods count as well. So are
    classes that would have to be derived from the original.
    """
    path = _module_of(cls)
    if not path:
        return []  # a class of its own
    names = [f"{path.rpartition('.')[2]}.{name}" for name, value in _values(path).items() if not is_usable(name, value)]
    paths: tuple[str, ...] = getattr(cls, "never_used", ())
    for full_name in paths:
        module, _, name = full_name.rpartition(".")
        value = vars(sys.modules[module]).get(name) if module in sys.modules else None
        if value is None:
            continue
        if not _is_of_library(value):
            names.append(f"{module.rpartition('.')[2]}.{name}")
        elif isinstance(value, type):
            methods = [(method, getattr(each, "__func__", each)) for method, each in vars(value).items()]
            names += [
                f"{name}.{method}"
                for method, function in methods
                if isinstance(function, FunctionType) and not _is_of_library(function)
            ]
    return names


def is_usable(name: str, value: object) -> bool:
    """Tell whether the value that a program has put in the place of this one can be used there."""
    classes = tuple(each for each in _BESIDE[name] if isinstance(each, type))
    return not classes or (isinstance(value, type) and issubclass(value, classes))


def _is_of_library(value: object) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] in _LIBRARIES


def refuse_never_called(cls: object, allowed: bool, has_log_format: bool = False) -> None:
    """Refuse a protocol class that is about to be used if methods of its author's would not be called.

    What such a method checks, or puts into a request, would be missing without a sign: see `allow_skipped_overrides`.

    Args:
        cls: the class.
        allowed: the methods may be skipped.
        has_log_format: access lines have a format of the user's, for which no function of a program's is called.

    Raises:
        SkippedOverride: they are not `allowed` to be skipped.
        TakenName: it assigns attributes of ours.
    """
    taken = ", ".join(taken_names(cls)) if isinstance(cls, type) else ""
    if taken:
        raise TakenName(f"{taken} is a private attribute of the server. Use another name.")
    skipped = never_called(cls) if isinstance(cls, type) else []
    if has_log_format and isinstance(cls, type):
        skipped += [name for name in replaced_beside(cls) if name.rpartition(".")[2] in LOGGING_FUNCTIONS]
    names = ", ".join(skipped)
    if names and not allowed:
        raise SkippedOverride(f"overridden, but never called by the server: {names}. {REMEDY}")
    if names:
        logger.warning("Ignoring overridden methods that the server never calls: %s (allow_skipped_overrides).", names)


_SHARED = frozenset(("_scope", "_logger"))
"""Private names whose meaning is what programs that use them mean as well."""


def taken_names(cls: type) -> list[str]:
    """Return the private attributes of ours that classes of programs have, or assign in a method, as `Class.name`."""
    ours = {name for base in cls.__mro__ if base in _ORIGINALS for name in vars(base).get("__slots__", ())}
    private = {name for name in ours if name.startswith("_") and not name.startswith("__")} - _SHARED
    theirs = [base for base in cls.__mro__ if private and not is_ours(base)]
    return [f"{base.__name__}.{name}" for base in theirs for name in sorted(_assigned(base) & private)]


def _assigned(cls: type) -> set[str]:
    """The attributes that a class has, and those that its methods assign."""
    names = set(vars(cls))
    for value in vars(cls).values():
        for function in (value, *(getattr(value, part, None) for part in ("fget", "fset", "__func__"))):
            code = getattr(function, "__code__", None)
            if code is not None and code.co_argcount:
                names |= _assigned_to_first(code)
    return names


def _assigned_to_first(code: CodeType) -> set[str]:
    import dis  # few programs have such classes

    names, before = set(), None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "STORE_ATTR" and before is not None and before.opname.startswith("LOAD_FAST"):
            # Two names of one instruction are loaded in order: that of the object is the last.
            owner = before.argval[-1] if isinstance(before.argval, tuple) else before.argval
            if owner == code.co_varnames[0]:
                names.add(str(instruction.argval))
        before = instruction
    return names


def _replaced(cls: type) -> Iterator[tuple[type, str]]:
    # The bases of our classes are not for programs to replace.
    foundation = {below for base in cls.__mro__ if is_ours(base) for below in base.__mro__} - _ORIGINALS.keys()
    if not foundation:
        return  # a class of its own
    for base in cls.__mro__:
        if base not in foundation:
            before = _ORIGINALS.get(base, {})
            yield from ((base, name) for name, value in _methods(base).items() if before.get(name, before) is not value)


def is_ours(cls: type) -> bool:
    """Tell whether the class is one of the server's, as it is, and not derived from one."""
    return cls.__module__.partition(".")[0] == "uvicorn"


def _methods(cls: type) -> dict[str, object]:
    # Python itself may add names with two underscores at any time.
    return {name: value for name, value in vars(cls).items() if name == "__init__" or not name.startswith("__")}
