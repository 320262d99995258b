"""A PostgreSQL cluster of its own in a temporary directory, reached by a Unix socket alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path

from bench.errors import BenchError

# Where Debian puts versions side by side.
VERSIONS = Path("/usr/lib/postgresql")
# PostgreSQL refuses to be root; Debian's packages bring this user.
USER = "postgres"
# Its processes share their core with the load generator, which has to send each request when it is due.
NICENESS = 10


class Cluster:
    """A running cluster, stopped with the interpreter at the latest; raises BenchError without PostgreSQL."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="bench-postgres-")
        directory = Path(self._directory.name)
        self._user = USER if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(directory, self._user)
        data = directory / "data"
        self._run("initdb", "--auth=trust", "--username=bench", "--no-sync", "-D", str(data))
        settings = f"-k {directory} -c listen_addresses= -c fsync=off -c max_connections=50"
        self._run("pg_ctl", "-D", str(data), "-w", "-s", "-o", settings, "-l", str(directory / "log"), "start")
        # What accepts connections forks a process for each, which inherits this.
        postmaster = int((data / "postmaster.pid").read_text().split(maxsplit=1)[0])
        os.setpriority(os.PRIO_PROCESS, postmaster, NICENESS)
        weakref.finalize(self, self._end, data)

    def create(self, name: str, *, like: str = "template1") -> None:
        """Make a new database in place of an old one, with the contents of another."""
        self._sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self._sql(f"CREATE DATABASE {name} TEMPLATE {like}")

    def url(self, name: str) -> str:
        """The URL of a database for SQLAlchemy."""
        return f"postgresql+asyncpg://bench@/{name}?host={self._directory.name}"

    def _sql(self, statement: str) -> None:
        self._run("psql", "-h", self._directory.name, "-U", "bench", "-d", "postgres", "-q", "-c", statement)

    def _run(self, program: str, *arguments: str) -> None:
        argv = [find(program), *arguments]
        # Left open by a server that stays, pipes would be waited for.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                argv, cwd=self._directory.name, user=self._user, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            if done.returncode != 0:
                output.seek(0)
                said = output.read().decode(errors="replace").strip().splitlines()
                raise BenchError(f"{program}: {said[-1] if said else 'no reason given'}")

    def _end(self, data: Path) -> None:
        self._run("pg_ctl", "-D", str(data), "-s", "-m", "immediate", "stop")


def find(program: str) -> str:
    """The newest installed version of one of PostgreSQL's programs; raises BenchError when there is none."""
    found = sorted(VERSIONS.glob(f"*/bin/{program}"), key=lambda path: int(path.parent.parent.name))
    path = str(found[-1]) if found else shutil.which(program)
    if path is None:
        raise BenchError("PostgreSQL is not installed (apt-get install postgresql)")
    return path
