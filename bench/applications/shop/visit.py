"""Customers of the shop, through the client of a mobile application: lists, items, orders."""

from __future__ import annotations

import random
import sys

import httpx

base, chance = sys.argv[1], random.Random(1)
for customer in range(1, 31):
    token = {"Authorization": f"Bearer token-{customer:04d}", "User-Agent": f"Shop/4.2.{customer % 3} (Android 15)"}
    with httpx.Client(base_url=base, headers=token) as client:
        client.get("/me")
        for _ in range(4):
            kind = chance.choice(["chair", "desk", "kettle", "jacket", "lamp", None])
            asked = {"page": chance.randint(1, 5), "sort": chance.choice(["name", "price"]), "kind": kind}
            client.get("/items", params={key: value for key, value in asked.items() if value is not None})
            client.get(f"/items/{chance.randint(1, 500)}")
            client.get(f"/items/{chance.randint(1, 500)}")
        lines = [
            {"item": chance.randint(1, 500), "amount": chance.randint(1, 5), "note": "to the back door"}
            for _ in range(chance.randint(1, 4))
        ]
        client.post("/orders", json={"lines": lines})
