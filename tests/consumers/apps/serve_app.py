"""A FastAPI application as a deployment, and a plain one."""

from fastapi import FastAPI, WebSocket
from fastapi.responses import StreamingResponse
from ray import serve

web = FastAPI()


@serve.deployment(ray_actor_options={"num_cpus": 0.1})
@serve.ingress(web)
class Web:
    @web.get("/hello")
    def hello(self, name: str = "nobody"):
        return {"hello": name}

    @web.post("/echo")
    async def echo(self, body: dict):
        return body

    @web.get("/stream")
    async def stream(self):
        async def lines():
            for number in range(5):
                yield f"{number}\n"

        return StreamingResponse(lines(), media_type="text/plain")

    @web.websocket("/ws")
    async def ws(self, websocket: WebSocket):
        await websocket.accept()
        while (message := await websocket.receive_text()) != "bye":
            await websocket.send_text(message.upper())
        await websocket.close(4000)


app = Web.bind()
