"""The setting, and the variables that it turns on."""

from __future__ import annotations

from typing import Any

import pytest

from uvicorn.config import Config
from uvicorn.config.errors import report_error
from uvicorn.tracing.options import DEFAULT_SERVICE, TracingOptions, options_of

URL = "http://collector:4318"


def read(endpoint: str = URL, ratio: float | None = None, **environment: str) -> TracingOptions:
    return options_of(endpoint, ratio, False, {f"OTEL_{name}": value for name, value in environment.items()})


def test_spans_go_to_the_path_of_the_protocol(subtests: Any) -> None:
    cases: list[tuple[str, dict[str, str], str]] = [
        (URL, {}, f"{URL}/v1/traces"),
        (f"{URL}/", {}, f"{URL}/v1/traces"),
        (f"{URL}/otlp/", {}, f"{URL}/otlp/v1/traces"),
        (f"{URL}/v1/traces", {}, f"{URL}/v1/traces"),
        ("https://[::1]:1", {}, "https://[::1]:1/v1/traces"),
        (URL, {"EXPORTER_OTLP_ENDPOINT": "http://b"}, f"{URL}/v1/traces"),
        ("env", {}, "http://localhost:4318/v1/traces"),
        ("env", {"EXPORTER_OTLP_ENDPOINT": "http://b/c"}, "http://b/c/v1/traces"),
        ("env", {"EXPORTER_OTLP_ENDPOINT": "http://b", "EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/d"}, "http://c/d"),
    ]
    for endpoint, environment, url in cases:
        with subtests.test(endpoint=endpoint, environment=environment):
            assert read(endpoint, **environment).url == url


def test_variables_describe_service_and_sampler(subtests: Any) -> None:
    assert read() == TracingOptions(
        f"{URL}/v1/traces", (), (("service.name", DEFAULT_SERVICE),), True, 1.0, False, False
    )
    options = read(
        SERVICE_NAME="shop",
        RESOURCE_ATTRIBUTES="service.name=other, deployment.environment.name=a%2Cb,",
        EXPORTER_OTLP_HEADERS="authorization=Basic%20YQ==,x-tenant=1",
        EXPORTER_OTLP_COMPRESSION="gzip",
    )
    assert options.resource == (("service.name", "shop"), ("deployment.environment.name", "a,b"))
    assert options.headers == (("authorization", "Basic YQ=="), ("x-tenant", "1"))
    assert options.compresses
    samplers: dict[str, tuple[bool, float]] = {
        "": (True, 1),
        "always_on": (False, 1),
        "always_off": (False, 0),
        "traceidratio": (False, 0.25),
        "parentbased_always_on": (True, 1),
        "parentbased_always_off": (True, 0),
        "parentbased_traceidratio": (True, 0.25),
    }
    for name, expected in samplers.items():
        with subtests.test(sampler=name):
            options = read(TRACES_SAMPLER=name, TRACES_SAMPLER_ARG="0.25")
            assert (options.follows_parent, options.ratio) == expected
            assert read(ratio=0.5, TRACES_SAMPLER=name, TRACES_SAMPLER_ARG="0.25").ratio == 0.5


def test_an_invalid_value_is_one_line(
    subtests: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cases: list[tuple[dict[str, Any], dict[str, str], str]] = [
        ({"otel_endpoint": "collector:4317"}, {}, "write the URL of a collector"),
        ({"otel_endpoint": "grpc://collector"}, {}, "write the URL of a collector"),
        ({"otel_endpoint": "http://"}, {}, "write the URL of a collector"),
        ({"otel_endpoint": "http://a:b"}, {}, "Port could not be cast"),
        ({"otel_endpoint": "http://a:99999"}, {}, "Port out of range"),
        ({"otel_endpoint": "http://a/\r\nx: y"}, {}, "write the URL of a collector"),
        ({"otel_endpoint": "http://user:secret@a"}, {}, "without credentials"),
        ({"otel_endpoint": "http://user:sec/secret@a"}, {}, "without credentials"),
        ({"otel_endpoint": "user:secret@a:4318"}, {}, "write the URL of a collector"),
        ({"otel_endpoint": "http://a/?secret"}, {}, "without credentials"),
        ({"otel_sample_ratio": 1.5}, {}, "otel_sample_ratio"),
        ({}, {"TRACES_SAMPLER": "jaeger_remote"}, "OTEL_TRACES_SAMPLER must be one of always_on,"),
        ({}, {"TRACES_SAMPLER": "traceidratio", "TRACES_SAMPLER_ARG": "nan"}, "OTEL_TRACES_SAMPLER_ARG must be a"),
        ({}, {"TRACES_SAMPLER": "traceidratio", "TRACES_SAMPLER_ARG": "2"}, "OTEL_TRACES_SAMPLER_ARG must be a"),
        ({}, {"EXPORTER_OTLP_HEADERS": "secret"}, "OTEL_EXPORTER_OTLP_HEADERS must be key=value"),
        ({}, {"EXPORTER_OTLP_HEADERS": "a=b%0D%0Ac"}, "OTEL_EXPORTER_OTLP_HEADERS must be header fields"),
        ({}, {"RESOURCE_ATTRIBUTES": "=b"}, "OTEL_RESOURCE_ATTRIBUTES must be key=value"),
        ({}, {"EXPORTER_OTLP_COMPRESSION": "zstd"}, "OTEL_EXPORTER_OTLP_COMPRESSION must be gzip or none"),
        ({"otel_endpoint": "env"}, {"EXPORTER_OTLP_ENDPOINT": "collector"}, "OTEL_EXPORTER_OTLP_ENDPOINT='collector'"),
        (
            {"otel_endpoint": "env"},
            {"EXPORTER_OTLP_ENDPOINT": "http://user:secret@a"},
            "OTEL_EXPORTER_OTLP_ENDPOINT='http://...@a'",
        ),
    ]
    for settings, environment, text in cases:
        with subtests.test(settings=settings, environment=environment), monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(f"OTEL_{name}", value)
            with pytest.raises(ValueError) as caught:
                Config("app:app", log_config=None, **{"otel_endpoint": URL, **settings})
            caplog.clear()
            assert report_error(caught.value)
            [line] = caplog.messages
            assert text in line and "otel_" in line and "\n" not in line and "sec" not in line.replace("second", "")


def test_without_the_setting_no_variable_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "invalid")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "invalid")
    assert Config("app:app", log_config=None).tracing is None
