"""The application with starlette-prometheus."""

from starlette_prometheus import PrometheusMiddleware, metrics
from telemetry_app import app

app.add_middleware(PrometheusMiddleware)
app.add_route("/metrics", metrics)
