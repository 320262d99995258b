"""The application instrumented by hand, for spans and metrics, and the ASGI middleware around another one."""

from opentelemetry import metrics, trace
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from telemetry_app import app

spans = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(spans))
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))


async def plain(request):
    return PlainTextResponse("plain")


app.mount("/plain", OpenTelemetryMiddleware(Starlette(routes=[Route("/", plain)])))


@app.get("/spans")
async def seen():
    found = [
        {
            "name": span.name,
            "kind": span.kind.name,
            "status": span.status.status_code.name,
            "attributes": dict(span.attributes),
            "events": [event.name for event in span.events],
        }
        for span in spans.get_finished_spans()
    ]
    return sorted(found, key=str)


@app.get("/metrics")
async def measured():
    return sorted(
        f"{metric.name} {dict(point.attributes)} {getattr(point, 'count', '')}"
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    )


FastAPIInstrumentor.instrument_app(app, excluded_urls="/spans,/metrics")
