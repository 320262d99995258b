"""Django through ASGI, driven by httpx."""

from __future__ import annotations

from tests.applications.conftest import client_of, serving, version_of


def test_django(http: tuple[str, ...]) -> None:
    with serving("django_app", *http, lifespan=False) as server, client_of(server) as client:
        greeting = client.get("/greet/%C3%A9?q=a%20b")
        assert greeting.json() == {"name": "é", "q": "a b", "client": "127.0.0.1"}
        files = {"file": ("a.txt", b"x" * 3_000_000)}  # Above what Django keeps in memory.
        posted = client.post("/form", data={"field": "value"}, files=files)
        assert posted.json() == {"field": "value", "name": "a.txt", "size": 3_000_000}
        assert [client.get("/visits").text for _ in range(3)] == ["1", "2", "3"]
        assert client.get("/stream").text.split() == [str(number) for number in range(1000)]
        assert client.head("/stream").content == b""


def test_django_not_found_is_logged_by_django_alone(http: tuple[str, ...]) -> None:
    """Without its own logging set up Django writes nothing: the access log still has the line."""
    with serving("django_app", *http, lifespan=False) as server, client_of(server) as client:
        assert client.get("/nowhere").status_code == 404
        server.wait_for(f'"GET /nowhere {version_of(server)}" 404 Not Found')
