"""The application under ddtrace, whose spans stay here."""

from ddtrace.trace import TraceFilter, tracer
from telemetry_app import app

spans = []


class Kept(TraceFilter):
    def process_trace(self, trace):
        spans.extend(
            {
                "name": span.name,
                "resource": span.resource,
                "type": span.span_type,
                "error": span.error,
                "tags": {name: value for name, value in sorted(span.get_tags().items()) if name != "error.stack"},
            }
            for span in trace
        )


tracer.configure(trace_processors=[Kept()])


@app.get("/spans")
async def seen():
    return sorted(spans, key=str)
