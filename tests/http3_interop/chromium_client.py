"""Headless Chromium as a client of HTTP/3: a page that fetches. See `clients` for the arguments and the output."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import websockets

from tests.browser import command

UNSUPPORTED = 3
FETCH = """
(async () => {
  const one = async (path, options) => {
    const response = await fetch(path, {cache: "no-store", ...options});
    const body = await response.arrayBuffer();
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", body));
    const entries = performance.getEntriesByType("resource").filter(entry => entry.name.endsWith(path));
    return {status: response.status, length: body.byteLength, protocol: entries.at(-1)?.nextHopProtocol,
            digest: Array.from(digest, byte => byte.toString(16).padStart(2, "0")).join("")};
  };
  return JSON.stringify(await Promise.all(%s));
})()
"""
SOCKET = """
new Promise((resolve, reject) => {
  const socket = new WebSocket(`wss://${location.host}/`);
  socket.onerror = () => reject("failed");
  socket.onopen = () => socket.send("text");
  socket.onmessage = message => resolve(JSON.stringify([message.data]));
})
"""
LOAD = """
(async () => {
  const failures = [], end = Date.now() + 1000 * %s;
  let count = 0;
  while (Date.now() < end) {
    try { await (await fetch("%s", {cache: "no-store"})).text(); count++; } catch (error) { failures.push(`${error}`); }
  }
  return JSON.stringify({count, failures});
})()
"""


class Page:
    """A page of a browser, by the DevTools protocol."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    async def call(self, method: str, **parameters: Any) -> Any:
        """The result of a method."""
        number = next(self._numbers)
        await self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (told := json.loads(await self._socket.recv())).get("id") != number:
            pass
        return told["result"]

    async def evaluate(self, script: str) -> Any:
        """What a promise resolves to."""
        told = await self.call("Runtime.evaluate", expression=script, awaitPromise=True)
        if "exceptionDetails" in told:
            raise ConnectionError(json.dumps(told["exceptionDetails"])[:500])
        return json.loads(told["result"]["value"])


async def perform(spki: str, operation: str, base: str, *arguments: str) -> dict[str, Any]:
    """Return the result."""
    if operation not in ("get", "post", "websocket", "again", "load"):
        sys.exit(UNSUPPORTED)
    path = arguments[-1] if arguments else "/"
    host = urlsplit(base).netloc
    options = [f"--origin-to-force-quic-on={host}", f"--ignore-certificate-errors-spki-list={spki}"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        output = asyncio.subprocess.DEVNULL
        started = command(Path(profile), *options)
        browser = await asyncio.create_subprocess_exec(*started, "about:blank", stdout=output, stderr=output)
        try:
            port = Path(profile, "DevToolsActivePort")
            while not port.exists() or "\n" not in port.read_text():
                await asyncio.sleep(0.05)
            pages = await asyncio.to_thread(urlopen, f"http://127.0.0.1:{port.read_text().split()[0]}/json/list")
            address = next(page["webSocketDebuggerUrl"] for page in json.load(pages) if page["type"] == "page")
            async with websockets.connect(address, max_size=None) as socket:
                return await use(Page(socket), operation, base, path, *arguments[:-1])
        finally:
            browser.terminate()
            await browser.wait()


async def use(page: Page, operation: str, base: str, path: str, *arguments: str) -> dict[str, Any]:
    """Open the page of the server, and have it ask."""
    await page.call("Page.enable")
    await page.call("Page.navigate", url=base + "/page/1000")
    while (await page.evaluate("Promise.resolve(JSON.stringify([document.readyState, location.host]))"))[1] == "":
        await asyncio.sleep(0.05)
    if operation == "websocket":
        # Which version carries it, only the server knows.
        return {"messages": await page.evaluate(SOCKET)}
    if operation == "load":
        loaded: dict[str, Any] = await page.evaluate(LOAD % (arguments[0], path))
        return loaded
    asked = f'[one("{path}")]'
    if operation == "get":
        asked = f'Array.from({{length: {arguments[0]}}}, () => one("{path}"))'
    elif operation == "post":
        asked = f'[one("{path}", {{method: "POST", body: new Uint8Array({arguments[0]})}})]'
    found = await page.evaluate(FETCH % asked)
    if operation == "again":
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        found = await page.evaluate(FETCH % asked)
    assert all(one["protocol"] == "h3" for one in found), found
    return {"responses": found}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(perform(*sys.argv[1:]))))
