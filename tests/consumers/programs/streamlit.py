"""streamlit: `streamlit run`, whose pages live on a WebSocket of protocol buffers."""

from websockets import Subprotocol

from tests.consumers.client import Client
from tests.consumers.consumer import INSTALLED, Consumer

#: The message `BackMsg(rerun_script=ClientState())`: run the page.
RERUN = b"\x5a\x00"


def talk(client: Client) -> None:
    """The page's files and one run of it."""
    client.get("/_stcore/health")
    client.get("/_stcore/host-config")
    client.get("/")
    client.get("/", 304, headers={"if-modified-since": "Fri, 01 Jan 2100 00:00:00 GMT"})
    client.request("HEAD", "/_stcore/health")
    page = client.websocket("/_stcore/stream", subprotocols=[Subprotocol("streamlit")])
    page.send(RERUN)
    page.receive_until(lambda message: b"Hello world" in message)
    client.write("the page says Hello world")


CONSUMERS = [
    Consumer(
        "streamlit",
        "programs",
        "streamlit",
        ("streamlit", "run", "streamlit_app.py", "--server.port", "{port}", "--server.address", "127.0.0.1"),
        talk,
        ready="You can now view",
        environ={"STREAMLIT_SERVER_HEADLESS": "true", "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false"},
        momentary={r"_streamlit_xsrf=[^;]+": "_streamlit_xsrf=TOKEN", **INSTALLED},
    )
]
