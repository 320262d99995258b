"""OpenTelemetry: a span for each request and WebSocket, sent to a collector. See docs/concepts/tracing.md.

`options` reads the setting and the environment, `tracer` samples and hands the context on, `span` has one request,
`otlp` encodes it, `exporter` sends batches from a thread, `api` serves the SDK of the application.
"""
