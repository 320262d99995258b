"""The consumers: a module for each, or for those that are asked the same; `CONSUMERS` has one way to start it each."""

from tests.consumers.consumer import Consumer
from tests.consumers.programs import (
    chainlit,
    datasette,
    fastapi_cli,
    fastmcp,
    faststream,
    gradio,
    launcher,
    litellm,
    marimo,
    nicegui,
    observers,
    ray_serve,
    streamlit,
)

CONSUMERS: list[Consumer] = [
    *chainlit.CONSUMERS,
    *datasette.CONSUMERS,
    *fastapi_cli.CONSUMERS,
    *fastmcp.CONSUMERS,
    *faststream.CONSUMERS,
    *gradio.CONSUMERS,
    *launcher.CONSUMERS,
    *litellm.CONSUMERS,
    *marimo.CONSUMERS,
    *nicegui.CONSUMERS,
    *observers.CONSUMERS,
    *ray_serve.CONSUMERS,
    *streamlit.CONSUMERS,
]
