"""Visitors of the site: some browse with a browser, some programs read the catalogue and ask questions."""

from __future__ import annotations

import random
import sys

import httpx
from browsing import browse

base, chance = sys.argv[1], random.Random(1)
browse(base, ["/", "/catalogue", "/products/7", "/products/12", "/catalogue?q=oak", "/"], remembers=True)
browse(base, ["/products/45", "/catalogue?q=chair&page=2", "/catalogue?page=4"])
with httpx.Client(base_url=base) as client:
    for _ in range(60):
        client.get(f"/products/{chance.randint(1, 120)}")
        client.get("/catalogue", params={"page": chance.randint(1, 5)})
        client.get("/catalogue", params={"q": chance.choice(["table", "elm", "birch", "shelf 9", "nothing"])})
        if chance.random() < 0.3:
            words = chance.sample(["when", "will", "the", "oak", "table", "be", "ready", "please"], 5)
            client.post("/inquiry", data={"name": f"Visitor {chance.randint(1, 999)}", "text": " ".join(words)})
