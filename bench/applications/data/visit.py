"""Readers of a published database: pages with a browser, JSON with a program."""

from __future__ import annotations

import random
import sys

import httpx
from browsing import browse

base, chance = sys.argv[1], random.Random(1)
browse(base, ["/", "/shop", "/shop/items", "/shop/items/17"])
with httpx.Client(base_url=base) as client:
    for _ in range(50):
        client.get("/shop/items.json", params={"_size": 20, "kind": chance.choice(["chair", "desk", "lamp"])})
        client.get(f"/shop/items/{chance.randint(1, 500)}.json", params={"_shape": "array"})
        client.get("/shop/reviews.json", params={"_size": 10, "stars": chance.randint(1, 5), "_sort_desc": "id"})
        if chance.random() < 0.3:
            asked = f"select kind, count(*), avg(price) from items where stock > {chance.randint(1, 80)} group by kind"
            client.get("/shop.json", params={"sql": asked, "_shape": "objects"})
