"""The application with prometheus-fastapi-instrumentator."""

from prometheus_fastapi_instrumentator import Instrumentator
from telemetry_app import app

Instrumentator(should_instrument_requests_inprogress=True, inprogress_labels=True).instrument(app).expose(app)
