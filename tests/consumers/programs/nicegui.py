"""nicegui: `ui.run()`, a subclass of `Server`; its pages live on socket.io."""

import json
import re

from tests.consumers.client import Client
from tests.consumers.consumer import INSTALLED, Consumer, Difference


def talk(client: Client) -> None:
    """The page, an endpoint beside it, and a click that comes back as an update."""
    client.get("/api/3")
    client.get("/api/three", 422)
    client.get("/nothing", 404)
    answer = client.get("/")
    script = re.search(r'src="(/_nicegui/[^"]+)"', answer.text)
    assert script
    client.get(script[1])
    ((page,), (listener,)) = (
        re.findall(pattern, answer.text)
        for pattern in (r"'client_id': '([^']+)'", r'"listener_id":"([^"]+)","type":"click"')
    )
    query = f"client_id={page}&next_message_id=0&implicit_handshake=true&document_id=1&tab_id=2&EIO=4"
    events = client.websocket(f"/_nicegui_ws/socket.io/?{query}&transport=websocket")
    events.receive()
    events.send("40")
    events.receive()
    click = {"client_id": page, "id": 5, "listener_id": listener, "args": []}
    events.send(f"42{json.dumps(['event', click])}")
    client.write(str(events.receive_until(lambda message: "pressed" in str(message))))


CONSUMERS = [
    Consumer(
        "nicegui",
        "programs",
        "nicegui",
        ("python", "nicegui_app.py"),
        talk,
        ready="NiceGUI ready",
        environ={"PORT": "{port}"},
        differences=(
            Difference(
                "Sec-WebSocket-Extensions",
                "it asks for `ws=websockets`, here another name for `websockets-sansio`, which offers smaller windows",
            ),
        ),
        momentary={
            r"session=[^;]+": "session=TOKEN",
            r'"sid":"[^"]+"': '"sid":"ID"',
            **INSTALLED,
            r"and http://[\d.]+:PORT": "and http://ADDRESS:PORT",
            r'"_id":"?\w+"?': '"_id":ID',
        },
    )
]
