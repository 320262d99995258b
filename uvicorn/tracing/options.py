"""The setting `otel_endpoint`, and the variables of OpenTelemetry that it turns on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from uvicorn.rules.syntax import TOKEN, without_secrets

FROM_ENVIRONMENT = "env"
"""The value of the setting that leaves the address to the environment."""
DEFAULT_ENDPOINT = "http://localhost:4318"
"""Of a collector on this machine."""
PATH = "/v1/traces"
"""Where a collector takes spans (OTLP, "OTLP/HTTP Request")."""
DEFAULT_SERVICE = "unknown_service:uvicorn"
"""The name of a service that has none, as the SDKs have it."""

_SAMPLERS: Mapping[str, tuple[bool, float | None]] = {
    "always_on": (False, 1.0),
    "always_off": (False, 0.0),
    "traceidratio": (False, None),
    "parentbased_always_on": (True, 1.0),
    "parentbased_always_off": (True, 0.0),
    "parentbased_traceidratio": (True, None),
}
"""Whether each follows the parent, and its ratio unless that is an argument."""

_is_name = re.compile(TOKEN).fullmatch
_is_value = re.compile(r"[\x20-\x7e]*").fullmatch


class TracingOptions(NamedTuple):
    """Where spans go, and of which requests.

    Attributes:
        url: of the collector, with the path.
        headers: fields of each request to it.
        resource: attributes of this service.
        follows_parent: a request with a `traceparent` is sampled if that says so.
        ratio: of the other requests that are sampled, from 0 to 1.
        compresses: requests to the collector are compressed by gzip.
        has_query: spans have the query.
    """

    url: str
    headers: tuple[tuple[str, str], ...]
    resource: tuple[tuple[str, str], ...]
    follows_parent: bool
    ratio: float
    compresses: bool
    has_query: bool


def check_endpoint(text: str) -> None:
    """Refuse texts other than `env` and the URL of a collector.

    Raises:
        ValueError: it says why.
    """
    if text != FROM_ENVIRONMENT:
        _checked(text)


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or not url.isprintable():
        raise ValueError("write the URL of a collector, as in http://localhost:4318.")
    if "@" in url or parts.query or parts.fragment or " " in url:
        raise ValueError("write a URL without credentials, query and fragment.")
    _ = parts.port  # raises if it is no number
    return url


def _below(base: str) -> str:
    """Return the place for spans of a collector; a URL that ends with its path is that already."""
    base = base.rstrip("/")
    return base if base.endswith(PATH) else base + PATH


def options_of(
    endpoint: str, ratio: float | None, has_query: bool, environment: Mapping[str, str] = os.environ
) -> TracingOptions:
    """Combine the settings with the environment.

    Raises:
        ValueError: a variable has an invalid value; it names the variable.
    """
    follows_parent, own_ratio = _sampler(environment)
    return TracingOptions(
        url=_url(endpoint, environment),
        headers=tuple(_headers(environment)),
        resource=tuple(_resource(environment).items()),
        follows_parent=follows_parent,
        ratio=own_ratio if ratio is None else ratio,
        compresses=_compresses(environment),
        has_query=has_query,
    )


def _first(environment: Mapping[str, str], *names: str) -> tuple[str, str]:
    """Return the first of these variables that has a value, and this; an empty one counts as unset."""
    return next(((name, environment[name]) for name in names if environment.get(name)), (names[0], ""))


def _url(endpoint: str, environment: Mapping[str, str]) -> str:
    if endpoint != FROM_ENVIRONMENT:
        return _below(_checked(endpoint))
    name, value = _first(environment, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    try:
        url = _checked(value or DEFAULT_ENDPOINT)
    except ValueError as exc:
        raise ValueError(f"{name}={without_secrets(repr(value))}: {exc}") from None
    return url if name.endswith("TRACES_ENDPOINT") and value else _below(url)


def _pairs(name: str, value: str) -> Iterator[tuple[str, str]]:
    """Read `key=value,key=value` with percent-encoded values."""
    for pair in filter(None, map(str.strip, value.split(","))):
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{name} must be key=value pairs with commas between them.")
        yield key.strip(), unquote(text.strip())


def _headers(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    name, value = _first(environment, "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
    for key, text in _pairs(name, value):
        if not _is_name(key) or not _is_value(text):
            raise ValueError(f"{name} must be header fields of ASCII: not that of {key!r}.")
        yield key, text


def _resource(environment: Mapping[str, str]) -> dict[str, str]:
    name = "OTEL_RESOURCE_ATTRIBUTES"
    found = {"service.name": DEFAULT_SERVICE, **dict(_pairs(name, environment.get(name, "")))}
    service = environment.get("OTEL_SERVICE_NAME")
    return {**found, "service.name": service} if service else found


def _sampler(environment: Mapping[str, str]) -> tuple[bool, float]:
    name = environment.get("OTEL_TRACES_SAMPLER", "").strip() or "parentbased_always_on"
    if name not in _SAMPLERS:
        raise ValueError(f"OTEL_TRACES_SAMPLER must be one of {', '.join(_SAMPLERS)}, not {name!r}.")
    follows_parent, ratio = _SAMPLERS[name]
    if ratio is not None:
        return follows_parent, ratio
    text = environment.get("OTEL_TRACES_SAMPLER_ARG", "").strip() or "1"
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise ValueError(f"OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1, not {text!r}.")
    return follows_parent, ratio


def _compresses(environment: Mapping[str, str]) -> bool:
    name, value = _first(environment, "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION")
    if value not in ("", "none", "gzip"):
        raise ValueError(f"{name} must be gzip or none, not {value!r}.")
    return value == "gzip"
