"""What looks at requests while they are served: tracers, metrics, error reporting, a debugger of requests."""

from tests.consumers.client import Client
from tests.consumers.consumer import END_LOGGED, Consumer, Difference

TRACEPARENT = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
#: Metrics of the process, and those that are times; of a histogram that is all but its count.
MEASURED = {
    r"^((?:process|python)_\w+(?:{.*})?) .*": r"\1 VALUE",
    r"^(\w+_(?:sum|created|bucket)(?:{.*})?) .*": r"\1 VALUE",
}


def requests(client: Client) -> None:
    """One of each kind."""
    client.get("/", headers=TRACEPARENT)
    client.get("/items/3?a=b")
    client.get("/items/10", 404)
    client.get("/items/three", 422)
    client.post("/echo", json={"a": 1})
    client.get("/stream")
    client.get("/nothing", 404)
    client.get("/fail", 500, headers={"connection": "close"})
    session = client.websocket("/ws")
    session.send("hello")
    session.receive()
    session.leave()


def traced(client: Client) -> None:
    """Requests, and the spans of them."""
    requests(client)
    client.get("/spans")


def measured(client: Client) -> None:
    """Requests, and the metrics of them, whose order is that in which they were first counted."""
    requests(client)
    client.get("/metrics", arrange=sorted)


def by_hand(client: Client) -> None:
    """Requests, one to a mounted application, spans and metrics."""
    requests(client)
    client.get("/plain/")
    client.get("/spans")
    client.get("/metrics")


def reported(client: Client) -> None:
    """Requests, and what would have been reported."""
    requests(client)
    client.get("/events")


def debugged(client: Client) -> None:
    """Requests, each on a connection of its own, and what the debugger's own page knows of them."""
    alone = {"connection": "close"}
    client.get("/", headers=alone)
    client.get("/items/3?a=b", headers=alone)
    client.get("/items/10", 404, headers=alone)
    client.post("/echo", headers=alone, json={"a": 1})
    client.get("/stream", headers=alone)
    client.get("/fail", 500, headers=alone)
    session = client.websocket("/ws")
    session.send("hello")
    session.receive()
    session.leave()
    recorded = client.look("/requests", client.spare)
    for request in recorded["requests"].values():
        client.write(f"recorded: {[request[name] for name in ('verb', 'urlext', 'protocol', 'status_code', 'reason')]}")


SERVER = ("uvicorn", "--port", "{port}")
CONSUMERS = [
    Consumer(
        "OpenTelemetry, opentelemetry-instrument",
        "observers",
        "opentelemetry-distro",
        (
            *("opentelemetry-instrument", "--traces_exporter", "console", "--metrics_exporter", "none"),
            *("--logs_exporter", "none", "--service_name", "consumer"),
            *(*SERVER, "telemetry_app:app"),
        ),
        requests,
        environ={"OTEL_BSP_SCHEDULE_DELAY": "600000"},  # all at the end
        momentary={
            r'"(span_id|trace_id|parent_id)": "0x[0-9a-f]+"': r'"\1": "ID"',
            r'"(net.peer.port|client.port)": \d+': r'"\1": PORT',
        },
        differences=(END_LOGGED,),
    ),
    Consumer(
        "OpenTelemetry, FastAPIInstrumentor",
        "observers",
        "opentelemetry-instrumentation-fastapi",
        (*SERVER, "opentelemetry_app:app"),
        by_hand,
        momentary={r'"(net.peer.port|client.port)":\d+': r'"\1":PORT'},
        differences=(END_LOGGED,),
    ),
    Consumer(
        "ddtrace",
        "observers",
        "ddtrace",
        ("ddtrace-run", *SERVER, "ddtrace_app:app"),
        traced,
        environ={
            "DD_TRACE_AGENT_URL": "http://127.0.0.1:9",
            "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
            "DD_REMOTE_CONFIGURATION_ENABLED": "false",
            "DD_CRASHTRACKING_ENABLED": "false",
            "DD_SERVICE": "consumer",
        },
        momentary={r'"_dd.p.tid":"\w+"': '"_dd.p.tid":"ID"'},
        differences=(END_LOGGED,),
    ),
    Consumer(
        "sentry-sdk",
        "observers",
        "sentry-sdk",
        (*SERVER, "sentry_app:app"),
        reported,
        momentary={'"sec-websocket-key":"[^"]+"': '"sec-websocket-key":"KEY"'},
        differences=(END_LOGGED,),
    ),
    Consumer(
        "httpdbg",
        "observers",
        "httpdbg",
        (*("pyhttpdbg", "--port", "{spare}", "--force-quit", "--no-banner", "--module"), *SERVER, "telemetry_app:app"),
        debugged,
        differences=(
            END_LOGGED,
            Difference("< transfer-encoding: chunked", "`connection: close` stands behind `transfer-encoding`"),
            Difference("HTTP is served by httptools", "one line says why the native core does not serve"),
        ),
    ),
    *(
        Consumer(
            package,
            "observers",
            package,
            (*SERVER, f"{package.removeprefix('prometheus-fastapi-').replace('-', '_')}_app:app"),
            measured,
            momentary=MEASURED,
            differences=(END_LOGGED,),
        )
        for package in ("prometheus-fastapi-instrumentator", "starlette-exporter", "starlette-prometheus")
    ),
]
