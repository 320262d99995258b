"""From ``"module:attribute"`` to the object it names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any


class ImportFromStringError(Exception):
    """The text does not name an object that exists. ``hint``, if there is one, is a sentence with a remedy."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def import_from_string(import_str: Any) -> Any:
    """Import the module and follow the attributes, which may be dotted; anything but text is returned as it is.

    Raises:
        ImportFromStringError: the text is malformed, or the module or the attribute does not exist.
        ModuleNotFoundError: the module, or a package around it, needs another module that does not exist.
    """
    if not isinstance(import_str, str):
        return import_str
    module_name, _, attribute = import_str.partition(":")
    # Relative names have no package to be relative to.
    if not module_name or not attribute or module_name.startswith("."):
        message = f'Import string "{import_str}" must be in format "<module>:<attribute>".'
        raise ImportFromStringError(message, _format_hint(import_str))
    instance = module = _import_module(module_name, attribute)
    try:
        for name in attribute.split("."):
            instance = getattr(instance, name)
    except AttributeError:
        message = f'Attribute "{attribute}" not found in module "{module_name}".'
        raise ImportFromStringError(message, _attribute_hint(module, attribute)) from None
    return instance


def call_factory(factory: Callable[[], Any]) -> Any:
    """Call it in a frame that `print_import_error` knows."""
    return factory()


def print_import_error(exc: Exception) -> bool:
    """Print the traceback of an error in an imported module or a factory, without the frames around those.

    Returns false, and prints nothing, for any other error.
    """
    import traceback  # only after a mistake

    entry, is_found, own = exc.__traceback__, False, None
    while entry is not None:
        if entry.tb_frame.f_code in (_import_module.__code__, call_factory.__code__):
            is_found, own = True, entry.tb_next
        entry = entry.tb_next
    if not is_found:
        return False
    while own is not None and "importlib" in own.tb_frame.f_code.co_filename:
        own = own.tb_next
    traceback.print_exception(type(exc), exc, own)
    # Of a module in a package, such as `a.b`, the package is there.
    if isinstance(exc, ModuleNotFoundError) and exc.name and "." not in exc.name:
        print(f"{exc.name} is not installed in {sys.prefix}.", file=sys.stderr)
    return True


def _import_module(name: str, attribute: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name != name:
            raise
    raise ImportFromStringError(f'Could not import module "{name}".', _module_hint(name, attribute))


def _format_hint(import_str: str) -> str | None:
    """Show the usual mistakes, a path to a file and a missing attribute, the way they should be written."""
    path, _, attribute = import_str.partition(":")
    if path.endswith(".py") or "/" in path:
        return f'Write a module instead of a path: "{_module_of(path)}:{attribute or "app"}".'
    module, dot, last = path.rpartition(".")
    if not path or attribute or path.startswith("."):
        return None
    return f'Did you mean "{module}:{last}" or "{path}:app"?' if dot else f'Did you mean "{path}:app"?'


def _module_hint(name: str, attribute: str) -> str:
    if name.endswith(".py") or "/" in name:
        return f'Write a module instead of a path: "{_module_of(name)}:{attribute}".'
    if close := _close_modules(name):
        return "Did you mean {}?".format(" or ".join(f'"{found}:{attribute}"' for found in close))
    return "Start from the directory that contains it, or name that directory with --app-dir."


def _close_modules(name: str) -> list[str]:
    """Return names that resemble it, of modules where the application is looked for first, or of its package."""
    import difflib  # only after a mistake
    import pkgutil

    package, dot, last = name.rpartition(".")
    path = getattr(sys.modules[package], "__path__", ()) if package else sys.path[:1]
    close = difflib.get_close_matches(last, [module.name for module in pkgutil.iter_modules(path)], cutoff=0.7)
    return [f"{package}{dot}{found}" for found in close]


def _module_of(path: str) -> str:
    return path.removesuffix(".py").strip("./").replace("/", ".")


def _attribute_hint(module: Any, attribute: str) -> str | None:
    import difflib  # only after a mistake

    public = [name for name in vars(module) if not name.startswith("_")]
    close = difflib.get_close_matches(attribute, public, cutoff=0.4)
    return f"Did you mean {' or '.join(close)}?" if close else None
