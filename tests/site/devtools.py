"""A headless Chromium driven by the DevTools protocol, with everything that a page asks for and complains of."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.browser import command
from tests.utils import PATIENCE, wait_for


class Page:
    """One tab.

    Attributes:
        requested: the URLs asked for since the page was opened.
        complaints: errors and warnings of the console, uncaught exceptions, failed requests.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._count = 0
        self._session: str | None = None
        self._loader = ""
        self._idle: set[str] = set()
        self.requested: list[str] = []
        self.complaints: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        self._call("Network.setCacheDisabled", cacheDisabled=True)
        self._call("Page.setLifecycleEventsEnabled", enabled=True)

    def _call(self, method: str, **parameters: Any) -> Any:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._connection.send(json.dumps(message))
        while (answer := self._receive()).get("id") != self._count:
            pass
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def _receive(self) -> Any:
        message = json.loads(self._connection.recv(PATIENCE))
        event = message.get("params", {})
        match message.get("method"):
            case "Page.lifecycleEvent" if event["name"] == "networkIdle":
                self._idle.add(event["loaderId"])
            case "Page.frameNavigated" if "parentId" not in event["frame"]:
                self._loader = event["frame"]["loaderId"]
            case "Network.requestWillBeSent":
                self.requested.append(event["request"]["url"])
            case "Network.responseReceived" if event["response"]["status"] >= 400:
                self.complaints.append(f"{event['response']['status']} {event['response']['url']}")
            case "Network.loadingFailed" if not event.get("canceled"):
                self.complaints.append(event["errorText"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(event["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if event["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(event["args"]))
            case "Log.entryAdded" if event["entry"]["level"] in ("error", "warning"):
                self.complaints.append(event["entry"]["text"])
        return message

    def emulate(self, width: int, height: int, scheme: str) -> None:
        """Take this size, that of a phone if it is narrow, and prefer this colour scheme."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url: str) -> None:
        """Load a page, and wait until it asks for nothing more."""
        self.requested.clear()
        self.complaints.clear()
        self._loader = self._call("Page.navigate", url=url)["loaderId"]
        while self._loader not in self._idle:
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        result = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """The value of an expression once it is true."""
        deadline = time.monotonic() + PATIENCE
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < deadline, expression
            time.sleep(0.05)
        return value

    def type(self, text: str) -> None:
        """Type into the element that has the focus."""
        self._call("Input.insertText", text=text)


@contextmanager
def opened(profile: Path) -> Iterator[Page]:
    """A page in a browser of its own, with an empty profile in this directory."""
    browser = subprocess.Popen(command(profile), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ports = profile / "DevToolsActivePort"
        wait_for(lambda: ports.is_file() and ports.read_text().count("\n"))
        port, path = ports.read_text().split()
        with connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None, compression=None) as connection:
            yield Page(connection)
    finally:
        browser.terminate()
        browser.wait(PATIENCE)
