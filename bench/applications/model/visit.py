"""Programs that talk to a language model through the proxy, with OpenAI's client."""

from __future__ import annotations

import random
import sys

import openai

base, chance = sys.argv[1], random.Random(1)
client = openai.OpenAI(base_url=f"{base}/v1", api_key="sk-benchmark", max_retries=0)
TOPICS = ("tides", "bridges", "bread", "grammar", "clouds", "chess")
for turn in range(60):
    asked = f"Explain {chance.choice(TOPICS)} to a reader of age {chance.randint(6, 90)}, please. " * chance.randint(
        1, 6
    )
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": asked}]
    if turn % 4 == 3:
        for _ in client.chat.completions.create(model="stub", messages=messages, stream=True):
            pass
    else:
        client.chat.completions.create(model="stub", messages=messages, temperature=chance.random(), max_tokens=200)
    if turn % 10 == 9:
        client.models.list()
