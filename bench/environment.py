"""Where a measurement was made: machine, kernel, interpreters, versions, commit. Different ones do not mix."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.targets import ROOT, Target, find, import_root, interpreter, source_root

# The load average before this process has put any load on the machine itself; `await_calm` reads it again.
load_at_start = list(os.getloadavg())
# Seconds between two looks at the load average.
CALM_INTERVAL = 10.0
# The parts of a tree that influence measurements.
CODE = ("native", "pyproject.toml", "setup.py", "uvicorn")
# Facts that must agree before two results may share a table.
IDENTITY = ("cpu", "cores", "kernel", "architecture", "memory_mib", "pinning")

_PROBE = """
import json, platform, sys, sysconfig
from importlib import metadata
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
print(json.dumps({
    "python": platform.python_version(),
    "implementation": platform.python_implementation(),
    "compiler": platform.python_compiler(),
    "debug": hasattr(sys, "gettotalrefcount"),
    "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
    "optimised": "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""),
    "versions": {name: found for name in sys.argv[1:] if (found := version(name))},
}))
"""


@dataclass(frozen=True)
class Cores:
    """Which cores serve and which drive the load; empty means everything shares all cores."""

    server: tuple[int, ...]
    client: tuple[int, ...]

    def describe(self) -> str:
        """In words, for the environment."""
        if not self.server:
            return "not pinned"
        return f"server on {_counted(self.server)}, client on {_counted(self.client)}"


def _counted(cores: Sequence[int]) -> str:
    return f"{len(cores)} core{'' if len(cores) == 1 else 's'}"


def cores(wanted: int = 1) -> Cores:
    """Give the server up to `wanted` cores and leave the client at least one.

    Nothing is pinned on a single core, or when no cores are wanted.
    """
    available = _available()
    if len(available) < 2 or wanted < 1:
        return Cores((), ())
    count = max(1, min(wanted, len(available) - 1))
    return Cores(tuple(available[-count:]), tuple(available[:-count]))


def together(count: int) -> Cores:
    """Have server and client share `count` cores, or all if there are fewer."""
    shared = tuple(_available()[:count])
    return Cores(shared, shared)


def _available() -> list[int]:
    """The cores that this process may use; none where the system cannot pin."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def describe(targets: Sequence[Target], pinning: Cores) -> dict[str, Any]:
    """Everything about this machine and these targets that a reader needs to judge a figure."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 1,
        "kernel": platform.release(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "governor": _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "not visible",
        "virtual": "hypervisor" in _cpu_flags(),
        "pinning": pinning.describe(),
        "load_average": [round(value, 2) for value in load_at_start],
        "commit": commit(ROOT),
        "harness_python": platform.python_version(),
        "tools": _tools(),
        "targets": {target.label(): _target(target) for target in targets},
    }


def same_machine(first: Mapping[str, Any], second: Mapping[str, Any], *, pinning: bool = True) -> None:
    """Raises BenchError naming the first thing in which two machines differ, or the use of their cores."""
    for key in IDENTITY if pinning else IDENTITY[:-1]:
        if first.get(key) != second.get(key):
            raise BenchError(f"results from different environments: {key} is {first.get(key)} and {second.get(key)}")


def same(first: Mapping[str, Any], second: Mapping[str, Any], *, pinning: bool = True) -> None:
    """Raises BenchError naming the first thing in which two environments differ."""
    same_machine(first, second, pinning=pinning)
    for name, one in first.get("targets", {}).items():
        other = second.get("targets", {}).get(name, one)
        for key in ("python", "versions", "gil", "tree", "native"):
            if one.get(key) != other.get(key):
                raise BenchError(
                    f"results from different environments: {name} has {key} {one.get(key)} and {other.get(key)}"
                )
    trees = _trees(first)
    for code, tree in _trees(second).items():
        if trees.get(code, tree) != tree:
            raise BenchError(f"results from different environments: {code[0]} has tree {trees[code]} and {tree}")


def _trees(described: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """The digests of the measured trees, by server and root; other options of a label do not change the tree."""
    found = {}
    for label, one in described.get("targets", {}).items():
        if "tree" in one:
            target = find(label)
            found[target.name, target.options.get("root", "")] = one["tree"]
    return found


def commit(root: Path) -> str:
    """The commit of a tree, with `+` when the server's files differ from it; `unknown` outside git, or without it."""
    git = ["git", "-C", str(root)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    except FileNotFoundError:
        return "unknown"
    if head.returncode != 0:
        return "unknown"
    changed = subprocess.run([*git, "status", "--porcelain", "--", *CODE], capture_output=True, text=True)
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def tree(root: Path) -> str:
    """A digest of the package as it runs: its Python files and built modules."""
    digest = hashlib.sha256()
    package = root / "uvicorn"
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".so") and path.is_file():
            digest.update(f"{path.relative_to(package)} {path.stat().st_size}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _target(target: Target) -> dict[str, Any]:
    python = interpreter(target)
    if not python:
        return {"python": "none", "versions": {}}
    configured = {"commands": target.commands(), "why": target.why}
    root = import_root(target)
    probe = [python, "-c", _PROBE, *target.distributions, "fastapi"]
    done = subprocess.run(probe, capture_output=True, text=True, cwd="/")
    if done.returncode != 0:
        raise BenchError(f"the interpreter of {target.name} does not work: {done.stderr.strip().splitlines()[-1]}")
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise BenchError(f"the interpreter of {target.name} is not Python: {python}") from None
    if root is not None:
        found["commit"], found["tree"] = commit(source_root(target) or root), tree(root)
        found["versions"].pop("uvicorn", None)
        found["native"] = has_native(target)
        found["compiler_of_native"] = _rust(root) if found["native"] else ""
    return found | configured


def has_native(target: Target) -> bool:
    """Whether the native core is built in a tree of ours, so that the default protocol is the native one."""
    environ = {**os.environ, "PYTHONPATH": str(import_root(target))}
    argv = [interpreter(target), "-c", "import uvicorn._native"]
    return subprocess.run(argv, capture_output=True, cwd="/", env=environ).returncode == 0


def _rust(root: Path) -> str:
    """The version of the compiler that made the native core, from the comment it leaves there."""
    for path in (root / "uvicorn").glob("_native*.so"):
        found = re.search(rb"rustc version (\d+\.\d+\.\d+)", path.read_bytes())
        if found:
            return found[1].decode()
    return "unknown"


def _tools() -> dict[str, str]:
    found = {}
    for name, arguments in {"wrk": ["-v"], "h2load": ["--version"], "oha": ["--version"]}.items():
        if shutil.which(name):
            done = subprocess.run([name, *arguments], capture_output=True, text=True)
            words = (done.stdout + done.stderr).split()
            found[name] = words[1] if len(words) > 1 else "unknown"
    return found


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().splitlines()[0].strip()
    except (OSError, IndexError):
        return ""


def _cpuinfo(name: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _cpu_model() -> str:
    return _cpuinfo("model name") or platform.processor() or "unknown"


def _cpu_flags() -> list[str]:
    return _cpuinfo("flags").split()


@dataclass(frozen=True)
class CoreTimes:
    """Seconds of each of the machine's cores since boot, read at the moment `taken` of `time.perf_counter`.

    `busy` is sampled by the kernel at its ticks and holds no stolen time; `idle` is exact but for the rounding to
    hundredths.
    """

    taken: float
    busy: Mapping[int, float]
    idle: Mapping[int, float]
    steal: Mapping[int, float]


def core_times() -> CoreTimes:
    """Read /proc/stat; empty where it does not exist."""
    tick = os.sysconf("SC_CLK_TCK")
    busy: dict[int, float] = {}
    idle: dict[int, float] = {}
    steal: dict[int, float] = {}
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            user, nice, system, resting, waiting, irq, softirq, stolen = (int(field) / tick for field in fields[:8])
            core = int(name[3:])
            busy[core] = user + nice + system + irq + softirq
            idle[core] = resting + waiting
            steal[core] = stolen
    return CoreTimes(time.perf_counter(), busy, idle, steal)


def foreign_share(before: CoreTimes, after: CoreTimes, used: float, chosen: Iterable[int] = ()) -> float:
    """What others took of some cores (of all, when none is named) between two readings, as a share of one core.

    `used` is the CPU seconds of the processes that own these cores. Time taken by the hypervisor counts as foreign.
    There are two estimates, each with an error of its own: busy time is sampled at ticks, and non-idle time includes
    falling asleep and waking up. Others who were really there show in both, so the lower one is believed.
    """
    cores = [core for core in (tuple(chosen) or tuple(before.busy)) if core in before.busy and core in after.busy]
    elapsed = after.taken - before.taken
    if not cores or elapsed <= 0:
        return 0.0

    def grown(values: str) -> float:
        now, then = getattr(after, values), getattr(before, values)
        return float(sum(now[core] - then[core] for core in cores))

    sampled = grown("busy") + grown("steal") - used
    awake = len(cores) * elapsed - grown("idle") - used
    return max(0.0, min(sampled, awake) / elapsed)


def stolen_share(before: CoreTimes, after: CoreTimes) -> float:
    """What the hypervisor took of all cores between two readings, as a share of one core."""
    elapsed = after.taken - before.taken
    taken = sum(after.steal[core] - before.steal[core] for core in before.steal if core in after.steal)
    return max(0.0, taken / elapsed) if elapsed > 0 else 0.0


def await_calm(limit: float, patience: float, told: Callable[[str], None]) -> None:
    """Wait until the load average of the last minute is no higher than a limit; raises BenchError after `patience`
    seconds.
    """
    deadline = time.monotonic() + patience
    while (found := os.getloadavg())[0] > limit:
        if time.monotonic() >= deadline:
            raise BenchError(
                f"the machine is busy (load average {found[0]:.2f}, more than {limit:g}): nothing was measured"
            )
        told(f"waiting for the machine to calm down: load average {found[0]:.2f}, wanted {limit:g}")
        time.sleep(min(CALM_INTERVAL, max(0.0, deadline - time.monotonic())))
    load_at_start[:] = found
