"""A broker in memory, so that nothing else has to run; a request publishes what its subscriber prints."""

from contextlib import asynccontextmanager

from faststream.asgi import AsgiFastStream, AsgiResponse, get
from faststream.redis import RedisBroker, TestRedisBroker

broker = RedisBroker()


@broker.subscriber("messages")
async def receive(message: str) -> None:
    print(f"received {message}")


@get
async def health(scope):
    return AsgiResponse(b"fine", status_code=200)


async def publish(scope, receive, send):
    event = await receive()
    await broker.publish(event["body"].decode(), "messages")
    await AsgiResponse(b"published", status_code=200)(scope, receive, send)


@asynccontextmanager
async def lifespan():
    async with TestRedisBroker(broker):
        yield


app = AsgiFastStream(broker, lifespan=lifespan, asgi_routes=[("/health", health), ("/publish", publish)])
