"""Readers of the weblog: some with a browser, and a program that reads and writes comments."""

from __future__ import annotations

import random
import sys

import httpx
from browsing import browse

base, chance = sys.argv[1], random.Random(1)
browse(base, ["/", "/posts/5/", "/posts/17/", "/?page=3", "/?q=pale"], remembers=True)
with httpx.Client(base_url=base) as client:
    for _ in range(70):
        number = chance.randint(1, 300)
        client.get("/", params={"page": chance.randint(1, 30)})
        client.get(f"/posts/{number}/")
        client.get(f"/posts/{number}/comments/")
        if chance.random() < 0.3:
            said = " ".join(chance.sample(["I", "agree", "never", "thought", "of", "it", "before", "thanks"], 6))
            client.post(f"/posts/{number}/comments/", json={"name": f"Reader {number}", "text": said})
        if chance.random() < 0.2:
            client.get("/", params={"q": chance.choice(["sea", "boats", "sky", "storm"])})
