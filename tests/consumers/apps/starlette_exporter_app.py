"""The application with starlette_exporter."""

from starlette_exporter import PrometheusMiddleware, handle_metrics
from telemetry_app import app

app.add_middleware(PrometheusMiddleware, app_name="consumer", group_paths=True)
app.add_route("/metrics", handle_metrics)
