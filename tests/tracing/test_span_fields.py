"""The fields of a span in both languages: what they make is made once, when it is asked for."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest

from uvicorn.tracing import api

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


def fields_of(language: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    if language == "native":
        return pytest.importorskip("uvicorn._native").SpanFields
    monkeypatch.setitem(sys.modules, "uvicorn._native", None)
    spec = importlib.util.spec_from_file_location("api_without_core", api.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SpanFields


@pytest.mark.parametrize("language", ["native", "Python"])
def test_context_of_a_span_is_made_once(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, str | None]] = []

    class Span(fields_of(language, monkeypatch)):  # type: ignore[misc]
        @staticmethod
        def _span_context(traceparent: str, tracestate: str | None) -> Any:
            made.append((traceparent, tracestate))
            return object()

    spans = [Span(TRACEPARENT, None), Span(TRACEPARENT, "a=b")]
    assert made == []
    contexts = [span._context for span in spans]
    assert [span._context for span in spans] == contexts
    assert made == [(TRACEPARENT, None), (TRACEPARENT, "a=b")]
