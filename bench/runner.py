"""Carry out a plan: start servers, drive load, read counters, and keep finished samples in any case."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench import applications, apps, environment, probe, process, report
from bench.environment import Cores
from bench.errors import BenchError, LoadError, NotReady, ServerError, last_line
from bench.load import generators
from bench.load.base import Aim, Generator, verdict
from bench.load.own import MARKED
from bench.model import Burst, Load, Machine, Sample
from bench.plan import Block, Scenario
from bench.process import Elsewhere, MemoryWatch, Request, Server
from bench.scenario import Knobs, Mode
from bench.targets import HERE, ROOT, Launch, Target, import_root, interpreter

# Between a burst and the reading of settled memory.
SETTLE = 0.1
# wrk counts in whole seconds: a shorter warm-up is driven by this generator.
WARMER = "closedloop"
WARMING_CONNECTIONS = 50
# How much longer than asked a generator may take before it is ended.
GRACE = 30.0

# Others may use this share of one core where the server runs.
TOLERATED = 0.05
# Seconds to wait before a disturbed burst is repeated, so that the disturbance may end.
PAUSES = (0.5, 1.0, 2.0)
DISTURBED = "others used the server's cores"

# A port that was free may be taken before the server has it.
PORT_ATTEMPTS = 3

Progress = Callable[[str], None]


class Runner:
    """Runs bursts on this machine. One at a time: two measurements at once would measure each other."""

    def __init__(
        self,
        cores: Cores,
        *,
        warm_up: float = 1.0,
        knobs: Knobs | None = None,
        tolerated: float = TOLERATED,
        progress: Progress = lambda text: None,
        application_directory: Path | None = None,
        port: int | None = None,
    ) -> None:
        """`warm_up` is seconds of load before the burst against a fresh process.

        `tolerated` is the share of a core that others may take of the server's before a burst is void and repeated.

        `application_directory` is where servers run when the application is not one of ours; `port` is where they
        listen, a free one each time unless given.
        """
        self.application_directory = application_directory
        self.port = port
        self.cores = cores
        #: Where to serve a mode and to drive the load.
        self.place: Callable[[Mode], Cores] = lambda mode: cores
        self.warm_up = warm_up
        self.tolerated = tolerated
        self.knobs = knobs or Knobs()
        self.progress = progress
        self.samples: list[Sample] = []
        self._given_up: dict[tuple[str, str, Mode], str] = {}
        process.raise_file_limit()

    def carry_out(self, blocks: Sequence[Block]) -> list[Sample]:
        """Measure every block; `samples` holds finished bursts at any time. A failed burst is a void sample."""
        for block in blocks:
            self._block(block)
        return self.samples

    def _block(self, block: Block) -> None:
        """One burst for each place in the order, each against a fresh server that is alone on the machine.

        A server that idles beside the one under measurement is not idle: some spin, most have threads that wake up.
        """
        self.cores = self.place(block.scenario.mode)
        for slot, side in enumerate(block.order):
            self.progress(f"{block.sides[side].label()} {block.scenario.workload.name}")
            sample = _blank(block, side, slot, self.knobs)
            scenario = block.scenario.seen_by(block.sides[side])
            with tempfile.TemporaryDirectory(prefix="bench-") as name:
                try:
                    with self.serving(block.sides[side], scenario, Path(name)) as server:
                        resting = idle_share(server, SETTLE)
                        self._warm(server, scenario, Path(name))
                        sample = self._undisturbed(sample, server, scenario, Path(name), resting)
                except (ServerError, LoadError) as exc:
                    sample = replace(sample, void=str(exc))
            self.samples.append(sample)

    def _undisturbed(
        self, sample: Sample, server: Server, scenario: Scenario, directory: Path, resting: float
    ) -> Sample:
        """A burst without foreign load on the server's cores; void if every attempt was disturbed."""
        for pause in (*PAUSES, None):
            found = self._sample(sample, server, scenario, directory, resting)
            foreign = found.machine.foreign_cpu if found.machine else 0.0
            if found.void or foreign <= self.tolerated:
                return found
            if pause is None:
                break
            time.sleep(pause)
            sample = replace(sample, repeats=sample.repeats + 1, started=time.time())
        return replace(found, void=f"{DISTURBED} in {len(PAUSES) + 1} attempts")

    @contextlib.contextmanager
    def serving(
        self, target: Target, scenario: Scenario, directory: Path, extra: dict[str, str] | None = None
    ) -> Iterator[Server]:
        """A fresh server for a scenario, ready to answer; stopped at the end."""
        key = (target.label(), scenario.workload.name, scenario.mode)
        refusal = target.refusal(scenario.workload, scenario.mode) or self._given_up.get(key)
        if refusal:
            raise ServerError(refusal)
        stage = stage_applications(directory)
        try:
            server = self._started(target, scenario, stage, extra or {})
        except NotReady as exc:
            # It would take as long in every block.
            self._given_up[key] = str(exc)
            raise
        try:
            yield server
        finally:
            server.stop()

    def _started(self, target: Target, scenario: Scenario, stage: Path, extra: dict[str, str]) -> Server:
        """A server that has answered; on another port if the free one was taken meanwhile."""
        attempts = 1 if self.port else PORT_ATTEMPTS
        while True:
            attempts -= 1
            server = self._launched(target, scenario, stage, extra)
            try:
                server.wait_ready(request_of(scenario), ready_timeout(scenario.mode))
                return server
            except ServerError:
                server.stop()
                if attempts == 0 or "in use" not in server.log.read_text(errors="replace"):
                    raise
            except BaseException:
                server.stop()
                raise

    def _launched(self, target: Target, scenario: Scenario, stage: Path, extra: dict[str, str]) -> Server:
        workload, port = scenario.workload, self.port or process.free_port()
        if process.in_use(port):
            raise BenchError(f"port {port} is in use")
        attribute = workload.wsgi if scenario.mode.kind == "wsgi" and workload.wsgi else workload.app
        application = attribute if ":" in attribute else f"bench_apps:{attribute}"
        certificate = make_certificate(stage) if workload.tls else None
        launch = Launch(
            application,
            port,
            scenario.mode,
            workload.access_log,
            interpreter(target, workload),
            target.options,
            certificate,
            workload.http2,
            (workload.mount, stage / workload.mount[1:]) if workload.mount and "mount" in target.features else None,
            workload.http3,
        )
        real = applications.find(workload.real) if workload.real else None
        directory = real.directory if real else self.application_directory
        environ = {**server_environment(target, stage, directory), **(real.prepare(stage) if real else {})}
        return Server(
            target.label(),
            target.command(launch),
            port=port,
            directory=self.application_directory or (Path("/") if target.loads_files else stage),
            log=stage / f"server-{port}.log",
            environment={**environ, **self.knobs.environment(), **extra},
            cores=self.cores.server,
        )

    @contextlib.contextmanager
    def alone(
        self, target: Target, scenario: Scenario, extra: dict[str, str] | None = None, *, inside: bool = False
    ) -> Iterator[tuple[Server, Path]]:
        """A server with a directory of its own; with `inside`, one whose interpreters can be asked (`bench.probe`)."""
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            directory = Path(name)
            if inside:
                probe.install(stage_applications(directory))
            given = {**(probe.ENVIRONMENT if inside else {}), **(extra or {})}
            with self.serving(target, scenario, directory, given) as server:
                yield server, directory

    def _warm(self, server: Server | Elsewhere, scenario: Scenario, directory: Path) -> None:
        if self.warm_up > 0:
            self.drive(server, scenario, self._warming(scenario), directory)

    def _warming(self, scenario: Scenario) -> Load:
        """The load before a burst: the same, but through the generator for short ones where that can do it."""
        load, warmer = replace(scenario.load, seconds=self.warm_up), generators.find(WARMER)
        if load.tool == report.ARRIVALS:
            # Newcomers are to find a server that has only been busy.
            return replace(load, tool=WARMER, connections=WARMING_CONNECTIONS)
        short = load.tool == "wrk" and self.warm_up < 1 and not warmer.missing()
        return replace(load, tool=WARMER) if short and scenario.workload.asks <= warmer.abilities else load

    def outside(self, server: Elsewhere, scenario: Scenario) -> Sample:
        """One burst against a server that was already there: no figures of its processes."""
        self.progress(f"{server.label} {scenario.workload.name}")
        sample = replace(_blank(Block(len(self.samples), scenario, {}, ()), "A", 0, self.knobs), target=server.label)
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            try:
                server.check_alive()
                request_of(scenario).ask(server.port)
                self._warm(server, scenario, Path(name))
                burst, _ = self.drive(server, scenario, scenario.load, Path(name))
                sample = replace(sample, burst=burst, void=verdict(burst, scenario.load))
            except (ServerError, LoadError, OSError) as exc:
                sample = replace(sample, void=str(exc))
        self.samples.append(sample)
        return sample

    def drive(
        self,
        server: Server | Elsewhere,
        scenario: Scenario,
        load: Load,
        directory: Path,
        marked: Callable[[], object] = lambda: None,
    ) -> tuple[Burst, float]:
        """One burst: what the generator saw, and the CPU seconds it used itself. Raises LoadError or ServerError.

        A generator that has preparations to make, and to undo, has `marked` called behind the one and before the other.
        """
        generator = generators.find(load.tool)
        try:
            argv = generator.command(aim_of(server, scenario, directory), load)
        except OSError as exc:
            raise LoadError(f"cannot write the input of {load.tool}: {exc.strerror or exc}") from None
        output, cpu = run_generator(generator, argv, self.cores, load.seconds + GRACE, marked)
        server.check_alive()
        return generator.parse(output, load), cpu

    def _sample(self, sample: Sample, server: Server, scenario: Scenario, directory: Path, resting: float) -> Sample:
        """`resting` is the share of one core that the server used before any load."""
        try:
            with MemoryWatch(server.pid) as watch:
                before, cores_before = server.figures(), environment.core_times()
                begun = time.perf_counter()
                marks: list[dict[int, process.ProcessFigures]] = []
                burst, client_cpu = self.drive(
                    server, scenario, scenario.load, directory, lambda: marks.append(server.figures())
                )
                elapsed = time.perf_counter() - begun
                after, cores_after = server.figures(), environment.core_times()
            # A server that did not poll before has work left over.
            idle = min(resting, idle_share(server, SETTLE))
            whole = process.difference(before, after)
            if len(marks) == 2:
                usage = process.difference(*marks)
            else:
                usage = whole.without_polling(idle, max(0.0, elapsed - burst.seconds))
            memory = watch.settled(process.read_memory(server.pid))
        except (ServerError, LoadError) as exc:
            return replace(sample, void=str(exc))
        used = whole.cpu + (client_cpu if self.cores.client == self.cores.server else 0.0)
        machine = Machine(
            client_cpu=client_cpu / elapsed,
            foreign_cpu=environment.foreign_share(cores_before, cores_after, used, self.cores.server),
            steal=environment.stolen_share(cores_before, cores_after),
        )
        void = verdict(burst, scenario.load)
        return replace(sample, burst=burst, usage=usage, memory=memory, machine=machine, void=void)


def idle_share(server: Server, seconds: float) -> float:
    """The share of one core that a server uses in these seconds without a request. Raises ServerError."""
    before, begun = server.figures(), time.perf_counter()
    time.sleep(seconds)
    return process.difference(before, server.figures()).cpu / (time.perf_counter() - begun)


def run_generator(
    generator: Generator,
    argv: Sequence[str],
    cores: Cores,
    timeout: float,
    marked: Callable[[], object] = lambda: None,
) -> tuple[str, float]:
    """Run a generator on the client's cores; returns its output and the CPU seconds it used. Raises LoadError.

    A generator that prints MARKED waits for a line; it gets that when `marked` has been called.
    """
    missing = generator.missing()
    if missing:
        raise LoadError(missing)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with process.pinned(cores.client):
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        except OSError as exc:
            raise LoadError(f"{generator.name} does not start: {exc}") from None
    late = threading.Event()

    def end() -> None:
        late.set()
        child.kill()

    patience = threading.Timer(timeout, end)
    patience.start()
    with child:
        try:
            output = _output(child, marked)
            child.wait()
        finally:
            patience.cancel()
            if child.poll() is None:
                child.kill()
    if late.is_set():
        raise LoadError(f"{generator.name} did not end within {timeout:g} s")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if child.returncode != 0:
        last = last_line(output, "it printed nothing")
        raise LoadError(f"{generator.name} failed with status {child.returncode}: {last}")
    return output, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _output(child: subprocess.Popen[str], marked: Callable[[], object]) -> str:
    """All that it prints but the marks."""
    assert child.stdin is not None
    assert child.stdout is not None
    lines = []
    for line in child.stdout:
        if line != MARKED:
            lines.append(line)
            continue
        marked()
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write("\n")
            child.stdin.flush()
    return "".join(lines)


def stage_applications(directory: Path) -> Path:
    """Copy the applications where servers run: a directory with nothing else in it that could be imported."""
    stage = directory / "stage"
    try:
        stage.mkdir(exist_ok=True)
        for name in ("apps", "apps_django", "apps_fastapi", "apps_sse", "apps_starlette"):
            shutil.copyfile(HERE / f"{name}.py", stage / f"bench_{name}.py")
        directory = stage / apps.MOUNT[1:]
        directory.mkdir(exist_ok=True)
        (directory / apps.MOUNTED_FILE).write_bytes(apps.TEN_KIB)
    except OSError as exc:
        raise BenchError(f"cannot prepare the applications: {exc.strerror or exc}") from None
    return stage


def make_certificate(directory: Path) -> Path:
    """A certificate for the loopback address and its key, in one file, signed by itself; raises BenchError."""
    path = directory / "certificate.pem"
    if path.exists():
        return path
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        done = subprocess.run(
            [*argv, "-keyout", str(path), "-out", str(path) + ".public"], capture_output=True, text=True
        )
    except OSError:
        raise BenchError("TLS needs a certificate, and making one needs openssl (apt-get install openssl)") from None
    if done.returncode != 0:
        raise BenchError(f"openssl made no certificate: {last_line(done.stderr)}")
    with path.open("ab") as file:
        file.write(Path(f"{path}.public").read_bytes())
    return path


def server_environment(target: Target, stage: Path, application_directory: Path | None = None) -> dict[str, str]:
    """The environment of a server: nothing of the harness's own Python leaks in."""
    path = [str(one) for one in (stage, import_root(target), application_directory) if one]
    return {**process.clean_environment(), "PYTHONPATH": os.pathsep.join(path)}


def ready_timeout(mode: Mode) -> float:
    """Seconds a server gets until its first answer."""
    return process.READY_TIMEOUT + process.READY_TIMEOUT_EACH * (mode.processes * mode.threads - 1)


def request_of(scenario: Scenario) -> Request:
    """The request that asks a server whether it is ready, and answers right."""
    workload = scenario.workload
    if "websocket" in workload.needs:
        return Request(response_bytes=workload.response_bytes)
    if workload.real:
        first = applications.find(workload.real).requests()[0]
        return Request(first["method"], first["target"], first["headers"], first["body"])
    return Request(
        workload.method,
        workload.path,
        workload.headers,
        workload.body,
        workload.response_bytes,
        tls=workload.tls,
        closes=workload.closes,
    )


def aim_of(server: Server | Elsewhere, scenario: Scenario, directory: Path) -> Aim:
    """Where a generator's burst goes."""
    workload = scenario.workload
    return Aim(
        server.port,
        directory,
        method=workload.method,
        path=workload.path,
        headers=workload.headers,
        body=workload.body,
        response_bytes=workload.response_bytes,
        options=workload.options,
        tls=workload.tls,
    )


def _blank(block: Block, side: str, slot: int, knobs: Knobs) -> Sample:
    scenario = block.scenario
    return Sample(
        target=block.sides[side].label() if side in block.sides else "",
        side=side,
        workload=scenario.workload.name,
        mode=str(scenario.mode),
        load=scenario.load,
        block=block.number,
        slot=slot,
        started=time.time(),
        knobs=knobs.__dict__,
        payload=scenario.workload.payload,
    )
