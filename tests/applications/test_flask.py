"""Flask, a WSGI application, driven by httpx through both adapters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.applications.conftest import client_of, serving


@pytest.fixture(params=["a2wsgi", "built-in"])
def adapter(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Each adapter in turn; gives whether it answers lifespan messages, as a2wsgi does."""
    if request.param == "built-in":
        (tmp_path / "a2wsgi.py").write_text("raise ModuleNotFoundError('hidden by the test', name='a2wsgi')\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return bool(request.param == "a2wsgi")


def test_flask(http: tuple[str, ...], adapter: bool) -> None:
    """WSGI-01, and WSGI-03: lifespan auto finds the built-in adapter unsupporting and says so at INFO level."""
    options = (*http, "--interface", "wsgi")
    with serving("flask_app", *options, lifespan=adapter) as server, client_of(server) as client:
        url = f"http://127.0.0.1:{server.port}/greet/%C3%A9?q=a+b"
        greeting = client.get(url).json()
        assert greeting.pop("url") in (url.replace("%C3%A9", "é"), url)
        assert greeting == {"name": "é", "q": "a b", "client": "127.0.0.1"}
        files = {"file": ("a.txt", b"x" * 3_000_000)}
        posted = client.post("/form", data={"field": "value"}, files=files)
        assert posted.json() == {"field": "value", "name": "a.txt", "size": 3_000_000}
        assert client.post("/upload", content=b"x" * 3_000_000).text == "3000000"
        assert [client.get("/visits").text for _ in range(3)] == ["1", "2", "3"]
        assert client.get("/stream").text.split() == [str(number) for number in range(1000)]
        assert client.head("/stream").content == b""
        assert client.get("/teapot").status_code == 418
