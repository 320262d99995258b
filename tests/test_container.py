"""`docs/deployment/Dockerfile`: what it says, and its steps, taken in directories of a test in place of containers."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import uvicorn
from tests.listening.test_systemd import get
from tests.process import ROOT, ServerProcess

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the image is one for Linux")

FILE = ROOT / "docs" / "deployment" / "Dockerfile"
BUILDS = "UVICORN_TEST_IMAGE"
"""Set to build what the image is made of: that takes cargo, the package index and a minute or two."""

SYSTEM = re.compile(r"apt-get update .*\| sh -s -- ")
"""The step that installs a compiler and Rust into the container; here they have to be there."""

APP = """
import os
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": os.getcwd().encode()})
"""


@dataclass
class Stage:
    """What is made of one base image: instructions in order, as pairs of name and rest."""

    base: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        """The rests of all steps of one kind."""
        return [rest for name, rest in self.steps if name == instruction]


def stages() -> list[Stage]:
    """The file, read as `docker build` reads it: comments go, then lines are joined."""
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    found: list[Stage] = []
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        instruction, rest = line.split(maxsplit=1)
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            found.append(Stage(base, name))
        else:
            found[-1].steps.append((instruction, rest))
    return found


def test_container_file_has_nothing_but_steps_that_are_replayed_here() -> None:
    known = {"ENV", "RUN", "WORKDIR", "COPY", "USER", "EXPOSE", "CMD"}
    build, final = stages()
    assert {name for stage in (build, final) for name, _ in stage.steps} <= known
    assert build.base == final.base  # what was built there is installed here
    assert [bool(SYSTEM.search(step)) for step in build.all("RUN")] == [True, False]
    for step in (*build.all("RUN"), *final.all("RUN")):
        script = re.sub(r"^(--\S+\s+)+", "", step)
        subprocess.run(["sh", "-n", "-c", script], check=True, timeout=60)


def test_container_runs_as_a_number_that_it_has_made(tmp_path: Path) -> None:
    """The kubelet refuses the name of a user where `runAsNonRoot` is asked for."""
    _, final = stages()
    (user,) = final.all("USER")
    number, group = map(int, user.split(":"))
    assert number and group
    (step,) = [step for step in final.all("RUN") if "useradd" in step]
    assert f"--uid {number} " in step
    program = shutil.which("useradd")
    if program is None or os.geteuid() != 0:
        pytest.skip("useradd works for root only")
    (tmp_path / "etc").mkdir()
    for name in ("passwd", "group", "shadow", "gshadow"):
        (tmp_path / "etc" / name).touch()
    shutil.copy("/etc/login.defs", tmp_path / "etc")
    arguments = shlex.split(step)[1:]
    done = subprocess.run([program, "--prefix", tmp_path, *arguments], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    account = (tmp_path / "etc" / "passwd").read_text().strip().split(":")
    assert account[2:4] == [str(number), str(group)]


def test_container_starts_the_server_in_the_form_that_gets_signals() -> None:
    _, final = stages()
    (command,) = final.all("CMD")
    program, *arguments = json.loads(command)
    assert program == "uvicorn"
    options = uvicorn.main.make_context("uvicorn", list(arguments)).params
    (port,) = final.all("EXPOSE")
    assert (options["host"], options["port"], options["http"]) == ("0.0.0.0", int(port), "native")


@dataclass
class Replay:
    """Directories that stand for the file systems of stages, and an environment of Python in each."""

    context: Path
    roots: dict[str, Path]

    def take(self, stage: Stage, root: Path) -> None:
        """Take the steps of a stage."""
        subprocess.run([sys.executable, "-m", "venv", root / "python"], check=True, timeout=120)
        self.roots[stage.name] = root
        # Dependencies of the core that were compiled before need not be again.
        self.environment = {**os.environ, "CARGO_TARGET_DIR": str(ROOT / "native" / "target")}
        self.environment["PATH"] = f"{root / 'python' / 'bin'}:{os.environ['PATH']}"
        for variable in ("PYTHONPATH", "VIRTUAL_ENV"):
            self.environment.pop(variable, None)
        self.workdir = root
        for name, rest in stage.steps:
            if name == "ENV":
                said = dict(item.split("=", 1) for item in shlex.split(rest))
                # The toolchain is that of this machine.
                self.environment.update({k: v for k, v in said.items() if not re.match("PATH|CARGO|RUSTUP", k)})
            elif name == "WORKDIR":
                self.workdir = root / rest.lstrip("/")
                self.workdir.mkdir(parents=True, exist_ok=True)
            elif name == "COPY":
                self.copy(*rest.split())
            elif name == "RUN":
                self.run(rest, root)

    def copy(self, source: str, target: str) -> None:
        """Bring a file or directory of the context."""
        if (self.context / source).is_dir():
            shutil.copytree(self.context / source, self.workdir / target)
        else:
            shutil.copy(self.context / source, self.workdir / target)

    def run(self, step: str, root: Path) -> None:
        """Run a step as the shell of the container would, with the paths of that below this root."""
        if SYSTEM.search(step) or step.startswith("useradd"):
            return
        found = re.match(r"--mount=(\S+)\s+(.*)", step)
        if found is not None:
            mount = dict(item.split("=", 1) for item in found[1].split(","))
            (root / mount["target"].lstrip("/")).symlink_to(self.roots[mount["from"]] / mount["source"].lstrip("/"))
            step = found[2]
        step = re.sub(r"(?<=\s)/(?=\w)", f"{root}/", step)
        done = subprocess.run(
            ["sh", "-c", step],
            cwd=self.workdir,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, f"{step}\n{done.stdout}{done.stderr}"


@pytest.mark.timeout(1200)
@pytest.mark.skipif(BUILDS not in os.environ, reason=f"{BUILDS} is not set: it builds a wheel of the native core")
def test_steps_of_the_container_lead_to_a_server_with_its_native_core(tmp_path: Path, unused_tcp_port: int) -> None:
    """Its context is what the file says: the requirements and the package of an application, and a clone."""
    context = tmp_path / "context"
    (context / "app").mkdir(parents=True)
    (context / "app" / "__init__.py").write_text(APP)
    (context / "requirements.txt").write_text("uvicorn\n")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=60)
    for name in filter(None, tracked.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (context / "server" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, context / "server" / name)
    replay = Replay(context, {})
    build, final = stages()
    replay.take(build, tmp_path / "build")
    replay.take(final, tmp_path / "final")
    program, *arguments = json.loads(final.all("CMD")[0])
    arguments[arguments.index("--port") + 1] = str(unused_tcp_port)
    command = [str(tmp_path / "final" / "python" / "bin" / program)]
    with ServerProcess(*arguments, command=command, cwd=replay.workdir) as server:
        server.wait_for(f"Uvicorn running on http://0.0.0.0:{unused_tcp_port} ")
        assert str(replay.workdir).encode() in get(("127.0.0.1", unused_tcp_port))
