"""datasette: `datasette serve` with a database it creates."""

from tests.consumers.client import Client
from tests.consumers.consumer import Consumer


def talk(client: Client) -> None:
    """Pages, JSON, a streamed table, a query, a redirect, static files, a form."""
    client.get("/")
    client.get("/data")
    client.get("/-/versions.json")
    client.get("/data.json?sql=select+1+as+one")
    client.get("/data.csv?sql=select+1+as+one&_stream=on")
    client.get("/data.csv?sql=select+1+as+one")
    client.get("/-/static/app.css")
    client.get("/data/none", 404)
    client.get("/data/", 302)
    client.request("HEAD", "/")
    client.post("/-/messages", 302, data={"message": "hello"})


CONSUMERS = [
    Consumer(
        "datasette",
        "programs",
        "datasette",
        ("datasette", "serve", "data.db", "--create", "--port", "{port}"),
        talk,
        # rich shows the variables of each step of a traceback.
        noise=(r"^[│╭╰]",),
        momentary={
            r'"uvicorn": "[^"]+"': '"uvicorn": VERSION',
            r"ds_messages=[^;]+": "ds_messages=TOKEN",
            r'"query_ms": [\d.]+': '"query_ms": TIME',
            r"Queries took [\d.]+ms": "Queries took TIME",
        },
    )
]
