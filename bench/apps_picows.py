"""picows' own server, which knows no applications: what it costs to echo WebSocket messages, and nothing else.

Run as `apps_picows.py PORT` by the interpreter of the servers that this tree is compared with.
"""

from __future__ import annotations

import sys
from typing import Any

import picows
import uvloop

HELLO = b"Hello, World!"


class Echo(picows.WSListener):
    """Sends every message back, compression and fragments left aside."""

    def on_ws_frame(self, transport: Any, frame: Any) -> None:
        """One frame has come."""
        if frame.msg_type == picows.WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code(), frame.get_close_message())
            transport.disconnect()
        else:
            transport.send(frame.msg_type, frame.get_payload_as_memoryview())


def listen(request: Any) -> Any:
    """An echo for a handshake, a hello for anything else, which is how readiness is asked."""
    if "Upgrade" in request.headers:
        return Echo()
    return picows.WSUpgradeResponseWithListener(picows.WSUpgradeResponse.create_ok_response(body=HELLO), None)


async def main(port: int) -> None:
    """Serve until the process is ended."""
    server = await picows.ws_create_server(listen, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
