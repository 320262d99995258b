"""What asks for files: a browser that plays a video and jumps in a sound, and curl."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import math
import random
import shutil
import struct
import wave
from pathlib import Path
from typing import Any

import pytest

from tests import browser
from tests.utils import run_server, server_port, wait_until
from uvicorn.config import Config

pytestmark = pytest.mark.anyio

CURL = shutil.which("curl")

SECONDS = 60

PAGE = """<!doctype html><meta charset="utf-8"><title>Player</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="/media/style.css">
<body><script type="module" src="/media/player.js"></script>"""

PLAYER = """
const found = {};
const event = (target, name) => new Promise((done, failed) => {
    target.addEventListener(name, done, {once: true});
    target.addEventListener("error", () => failed(new Error(`${name}: ${target.error?.message}`)), {once: true});
});
const report = () => fetch("/report", {method: "POST", body: JSON.stringify(found)});

async function recording() {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [64, 48];
    const context = canvas.getContext("2d");
    let frame = 0;
    const drawing = setInterval(() => {
        context.fillStyle = `hsl(${frame++ * 20}, 100%, 50%)`;
        context.fillRect(0, 0, 64, 48);
    }, 40);
    const recorder = new MediaRecorder(canvas.captureStream(25), {mimeType: "video/webm;codecs=vp8"});
    const pieces = [];
    recorder.ondataavailable = piece => pieces.push(piece.data);
    recorder.start(100);
    while (frame < 40) await new Promise(done => setTimeout(done, 50));
    recorder.stop();
    await event(recorder, "stop");
    clearInterval(drawing);
    return new Blob(pieces);
}

try {
    found.styled = getComputedStyle(document.body).color;
    await fetch("/clip", {method: "POST", body: await recording()});

    const video = document.createElement("video");
    video.muted = true;
    video.src = "/media/clip.webm";
    document.body.append(video);
    await video.play();
    while (video.currentTime < 0.2 && !video.ended) await event(video, "timeupdate");
    found.video = [video.videoWidth, video.videoHeight, video.currentTime > 0];

    const audio = document.createElement("audio");
    audio.preload = "auto";
    audio.src = "/media/tone.wav";
    await event(audio, "loadedmetadata");
    found.duration = Math.round(audio.duration);
    for (const place of [55, 20]) {
        audio.currentTime = place;
        await event(audio, "seeked");
    }
    found.at = Math.round(audio.currentTime);

    const again = await fetch("/media/style.css", {cache: "no-cache"});
    found.again = [again.status, (await again.text()).length > 0];
} catch (error) {
    found.error = String(error);
}
report();
"""


class Site:
    """The application: the page, where the clip is put, and what was found."""

    def __init__(self, media: Path) -> None:
        self.media = media
        self.reports: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        if scope["path"] == "/clip":
            (self.media / "clip.webm").write_bytes(body)
        elif scope["path"] == "/report":
            self.reports.append(json.loads(body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": PAGE.encode()})


@pytest.fixture
def media(tmp_path: Path) -> Path:
    """A style, a script, and a minute of a tone, of which a player reads a part at a time."""
    media = tmp_path / "media"
    media.mkdir()
    (media / "style.css").write_text("body { color: rgb(1, 2, 3) }")
    (media / "player.js").write_text(PLAYER)
    rate = 44100
    second = struct.pack(f"<{rate}h", *(int(8000 * math.sin(2 * math.pi * 440 * at / rate)) for at in range(rate)))
    with wave.open(str(media / "tone.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(second * SECONDS)
    return media


@browser.is_needed
async def test_chromium_plays_a_video(tmp_path: Path, media: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = Site(media)
    config = Config(site, port=0, lifespan="off", log_config=None, mount=f"/media={media}")
    with caplog.at_level(logging.INFO, "uvicorn.access"):
        async with run_server(config) as server:
            url, profile = f"http://localhost:{server_port(server)}/", tmp_path / "profile"
            async with browser.browsing(url, profile, "--autoplay-policy=no-user-gesture-required"):
                await wait_until(lambda: site.reports, timeout=60)
    (report,) = site.reports
    assert report == {
        "styled": "rgb(1, 2, 3)",
        "video": [64, 48, True],
        "duration": SECONDS,
        "at": 20,
        "again": [200, True],
    }
    lines = [message.partition(' - "')[2] for message in caplog.messages]
    for line in (
        'GET /media/player.js HTTP/1.1" 200',
        'GET /media/clip.webm HTTP/1.1" 206',
        'GET /media/tone.wav HTTP/1.1" 206',
        'GET /media/style.css HTTP/1.1" 304',
    ):
        assert line in lines, lines


async def curl(*arguments: str) -> bytes:
    assert CURL is not None
    argv = [CURL, "--silent", "--show-error", "--fail", "--max-time", "20", *arguments]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output


@pytest.mark.skipif(CURL is None, reason="there is no curl")
async def test_curl_resumes_and_asks_again(tmp_path: Path) -> None:
    content = random.Random(2).randbytes(2_000_000)
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "page.html").write_text("plain")
    (tmp_path / "page.html.gz").write_bytes(gzip.compress(b"encoded"))
    config = Config(Site(tmp_path), port=0, lifespan="off", log_config=None, mount=f"/={tmp_path}")
    async with run_server(config) as server:
        url = f"http://127.0.0.1:{server_port(server)}"
        part, tag = tmp_path / "part", tmp_path / "tag"
        part.write_bytes(content[:1_500_001])
        await curl("--continue-at", "-", "--output", str(part), f"{url}/file")
        assert part.read_bytes() == content
        assert await curl("--range", "-5", f"{url}/file") == content[-5:]
        several = await curl("--range", "0-9,100-109", f"{url}/file")
        assert content[:10] in several
        assert content[100:110] in several
        await curl("--etag-save", str(tag), "--output", str(part), f"{url}/file")
        assert await curl("--etag-compare", str(tag), "--write-out", "%{http_code}", f"{url}/file") == b"304"
        assert await curl("--time-cond", str(part), "--write-out", "%{http_code}", f"{url}/file") == b"304"
        assert await curl("--compressed", f"{url}/page.html") == b"encoded"
        assert await curl(f"{url}/page.html") == b"plain"
        found = await curl("--path-as-is", "--write-out", "%{http_code}", "--no-fail", f"{url}/../../etc/passwd")
        assert found.endswith(b"404")
