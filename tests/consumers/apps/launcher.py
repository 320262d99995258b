"""A launcher as those of inference servers are: sockets of its own, a watched engine, its own handling of signals.

`serve()` runs as a task that a signal cancels; `shutdown()` is awaited afterwards. The engine's death ends the server
through `should_exit`.
"""

import asyncio
import signal
import socket
import sys
from contextlib import asynccontextmanager
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

import uvicorn


class Engine:
    """What makes the answers; it may die."""

    def __init__(self):
        self.errored = False
        self.stopping = asyncio.Event()

    async def generate(self, tokens):
        for number in range(tokens):
            if self.errored:
                raise RuntimeError("the engine is dead")
            yield f"data: {number}\n\n"
            await asyncio.sleep(0)


@asynccontextmanager
async def lifespan(app):
    print("the engine is up", flush=True)
    yield
    print("the engine is down", flush=True)


def build_app(engine):
    app = FastAPI(lifespan=lifespan)
    app.state.engine = engine

    @app.exception_handler(RuntimeError)
    async def dead(request: Request, error: RuntimeError):
        terminate_if_errored(request.app.state.server, engine)
        return JSONResponse({"error": str(error)}, HTTPStatus.INTERNAL_SERVER_ERROR)

    @app.get("/health")
    async def health():
        return {"healthy": not engine.errored}

    @app.post("/v1/completions")
    async def completions(body: dict):
        return StreamingResponse(engine.generate(body["max_tokens"]), media_type="text/event-stream")

    @app.get("/until-stopped")
    async def until_stopped():
        async def pieces():
            yield "data: before\n\n"
            await engine.stopping.wait()
            yield "data: after\n\n"

        return StreamingResponse(pieces(), media_type="text/event-stream")

    @app.post("/kill")
    async def kill():
        engine.errored = True
        raise RuntimeError("the engine is dead")

    @app.get("/keep-alive")
    async def keep_alive():
        config = app.state.server.config
        return {"keep_alive": config.timeout_keep_alive, "incomplete": config.h11_max_incomplete_event_size}

    return app


def terminate_if_errored(server, engine):
    if engine.errored:
        server.should_exit = True


async def watchdog(server, engine):
    while True:
        await asyncio.sleep(0.1)
        terminate_if_errored(server, engine)


async def serve_http(app, sock, **options):
    config = uvicorn.Config(app, **options)
    config.h11_max_incomplete_event_size = 1 << 20
    config.h11_max_header_count = 256
    config.load()
    server = uvicorn.Server(config)
    app.state.server = server

    loop = asyncio.get_running_loop()
    watching = loop.create_task(watchdog(server, app.state.engine))
    serving = loop.create_task(server.serve(sockets=[sock]))

    def stop():
        app.state.engine.stopping.set()
        serving.cancel()
        watching.cancel()

    async def nothing_to_do():
        return None

    loop.add_signal_handler(signal.SIGINT, stop)
    loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        await serving
        return nothing_to_do()
    except asyncio.CancelledError:
        print("shutting down the server", flush=True)
        return server.shutdown()
    finally:
        watching.cancel()


async def main(port):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    app = build_app(Engine())
    shutdown = await serve_http(app, sock, log_level="info", timeout_keep_alive=65)
    await shutdown
    sock.close()
    print("over", flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
