"""A Ray cluster of several nodes on this machine, with an application on it, that does what it is told line by line.

    python ray_cluster.py NODES PORT DIRECTORY

Each node has a proxy of Ray Serve, a server of ours or upstream's in an actor. Commands come on standard input, and a
line of JSON for each goes to standard output: `nodes` says how proxies and replicas are, `kill` ends a replica as it
stands, and `redeploy` replaces all of them by others, one after the other. At the end of the input all ends.
"""

import contextlib
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

import ray
from fastapi import FastAPI, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse
from ray import serve
from ray.cluster_utils import Cluster

web = FastAPI()


@serve.deployment(
    num_replicas=3,
    ray_actor_options={"num_cpus": 0.5},
    max_replicas_per_node=1,
    health_check_period_s=1,
    graceful_shutdown_wait_loop_s=1,
)
@serve.ingress(web)
class Web:
    def __init__(self, version: int):
        self.version = version

    @web.get("/plain")
    def plain(self):
        return Response(b"ok", headers={"x-worker": str(os.getpid()), "x-version": str(self.version)})

    @web.get("/stream")
    def stream(self):
        async def pieces():
            for _ in range(3):
                yield b"piece"

        return StreamingResponse(pieces(), headers={"x-worker": str(os.getpid())})

    @web.websocket("/ws")
    async def ws(self, websocket: WebSocket):
        await websocket.accept()
        try:
            while True:
                await websocket.send_text(await websocket.receive_text())
        except WebSocketDisconnect:
            pass


def deploy(version: int) -> None:
    """Returns when all replicas are of that version."""
    serve.run(Web.bind(version), name="web", route_prefix="/")


def replicas() -> list[str]:
    """Names of the actors that are replicas."""
    named = ray.util.list_named_actors(all_namespaces=True)
    return sorted(actor["name"] for actor in named if actor["name"].startswith("SERVE_REPLICA::"))


def answer(command: str, version: int) -> dict[str, object]:
    """Do it."""
    if command == "kill":
        name = replicas()[0]
        ray.kill(ray.get_actor(name, namespace="serve"))
        return {"killed": name}
    if command == "redeploy":
        deploy(version)
        return {"version": version}
    status = serve.status()
    states = [
        replica for one in status.applications["web"].deployments.values() for replica in one.replica_states.items()
    ]
    return {
        "proxies": [str(state.value) for state in status.proxies.values()],
        "replicas": {str(getattr(state, "value", state)): number for state, number in states},
    }


PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")


def address(number: int) -> str:
    """Of a node: one of the loopback interface, but for 127.0.0.1, which Ray replaces by one of another interface."""
    return f"127.0.0.{number + 2}"


def node(number: int, directory: Path) -> dict[str, object]:
    """Settings of one."""
    with contextlib.ExitStack() as stack:
        free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in PORTS]
    ports = dict(zip(PORTS, free, strict=True))
    threading.Thread(target=tell_port, args=(directory, ports), daemon=True).start()
    return {"num_cpus": 1, "node_ip_address": address(number), **ports}


def tell_port(directory: Path, ports: dict[str, int]) -> None:
    """Leave word of where a node's agent is going to listen.

    The node waits 15 seconds for that (https://github.com/ray-project/ray/issues/65983): too short for an agent on a
    machine that has other things to do.
    """
    known, wanted = "metrics_export_port", "dashboard_agent_listen_port"
    while True:
        for path in directory.glob(f"session_2*/{known}_*"):
            if path.read_text() == str(ports[known]):
                path.with_name(path.name.replace(known, wanted)).write_text(str(ports[wanted]))
                return
        time.sleep(0.05)


def main(nodes: int, port: int, directory: str) -> None:
    """Until the input ends."""
    head = {**node(0, Path(directory)), "temp_dir": directory, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for number in range(1, nodes):
        cluster.add_node(**node(number, Path(directory)))
    ray.init(address=cluster.address, _node_ip_address=address(0), log_to_driver=False, logging_level="warning")
    try:
        serve.start(proxy_location="EveryNode", http_options={"host": "127.0.0.1", "port": port})
        deploy(1)
        tell({"ready": True})
        for number, line in enumerate(sys.stdin, 2):
            tell(answer(line.strip(), number))
    finally:
        serve.shutdown()
        ray.shutdown()
        cluster.shutdown()


def tell(document: dict[str, object]) -> None:
    """One line, apart from what Ray prints."""
    print("@" + json.dumps(document), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
