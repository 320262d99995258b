"""litellm: its proxy, with a model that answers without a network."""

from tests.consumers.client import Client
from tests.consumers.consumer import Consumer

KEY = {"authorization": "Bearer sk-consumer"}
QUESTION = {"model": "mock", "messages": [{"role": "user", "content": "hi"}]}


def talk(client: Client) -> None:
    """Health, models, a completion, a streamed one, a refused one."""
    client.get("/health/liveliness")
    client.get("/v1/models", headers=KEY)
    client.post("/v1/chat/completions", headers=KEY, json=QUESTION)
    client.post("/v1/chat/completions", headers=KEY, json={**QUESTION, "stream": True})
    client.post("/v1/chat/completions", 400, headers={"authorization": "Bearer sk-other"}, json=QUESTION)
    client.post("/v1/chat/completions", 400, headers=KEY, json={**QUESTION, "model": "none"})


CONSUMERS = [
    Consumer(
        "litellm",
        "models",
        "litellm",
        ("litellm", "--config", "litellm.yaml", "--port", "{port}", "--telemetry", "False"),
        talk,
        environ={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"},
        momentary={
            r'"created":\d+': '"created":TIME',
            r"-ms: [\d.]+": "-ms: TIME",
            r"\d\d:\d\d:\d\d": "TIME",
        },
        # A motto and a request for feedback, chosen by chance.
        noise=(r"^#.*#$",),
    )
]
