"""chainlit: `chainlit run`, a chat over socket.io."""

import json

from tests.consumers.client import Client
from tests.consumers.consumer import INSTALLED, Consumer

MESSAGE = {
    "message": {
        "id": "11111111-1111-4111-8111-111111111111",
        "threadId": "",
        "name": "user",
        "type": "user_message",
        "output": "hello",
        "createdAt": "2024-01-01T00:00:00Z",
    },
    "fileReferences": [],
}
WHO = {"clientType": "webapp", "sessionId": "abc", "threadId": "", "userEnv": "{}", "chatProfile": ""}


def talk(client: Client) -> None:
    """The page, its settings, and a message that is answered."""
    client.get("/")
    client.get("/project/settings")
    client.get("/favicon")
    client.get("/auth/config")
    client.post("/project/file?session_id=none", 422)
    chat = client.websocket("/ws/socket.io/?EIO=4&transport=websocket")
    chat.receive()
    chat.send(f"40{json.dumps(WHO)}")
    chat.receive()
    chat.send('42["connection_successful"]')
    chat.receive_until(lambda message: "clear_call_fn" in str(message))
    chat.send(f"42{json.dumps(['client_message', MESSAGE])}")
    chat.receive_until(lambda message: "You said hello" in str(message))
    chat.receive_until(lambda message: "task_end" in str(message))
    client.write("the chat answers")


CONSUMERS = [
    Consumer(
        "chainlit",
        "chainlit",
        "chainlit",
        ("chainlit", "run", "chainlit_app.py", "--headless", "--port", "{port}"),
        talk,
        ready="Your app is available",
        momentary={r'"sid":"[^"]+"': '"sid":"ID"', r"^TIME - ": "", **INSTALLED},
    )
]
