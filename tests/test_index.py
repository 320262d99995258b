"""The package index that `scripts/make-index` writes, as pip and uv use it, and what brings upstream back.

Small packages stand in for the real ones: `uvicorn` 0.54.0 and a framework that requires it in the public index,
`uvicorn` 0.54.100 in the one that is made.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.process import ROOT
from tests.utils import deep_after

MAKE_INDEX = ROOT / "scripts" / "make-index"


def wheel(
    directory: Path, name: str, version: str, *requires: str, python: str = ">=3.10", tag: str = "py3-none-any"
) -> Path:
    """Write a wheel of one module that knows its version."""
    path = directory / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    requirements = "".join(f"Requires-Dist: {one}\n" for one in requires)
    extras = "".join(f"Provides-Extra: {extra}\n" for one in requires for extra in re.findall(r"extra == '(\w+)'", one))
    files = {
        f"{name}.py": f"__version__ = {version!r}\n",
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: {python}\n"
            f"{extras}{requirements}\n"
        ),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"]))
    return path


def make(directory: Path, *wheels: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, MAKE_INDEX, directory, *wheels], capture_output=True, text=True, check=False)


@dataclass
class Indexes:
    """Two indexes on loopback."""

    ours: str
    public: str


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Indexes]:
    directory = tmp_path_factory.mktemp("indexes")
    wheels = directory / "wheels"
    ours = wheel(wheels, "uvicorn", "0.54.100", "parser; extra == 'standard'")
    assert make(directory / "ours", ours).returncode == 0
    of_others = [
        wheel(wheels, "uvicorn", "0.54.0"),
        wheel(wheels, "parser", "1.0"),
        wheel(wheels, "framework", "1.0", "uvicorn[standard]>=0.12"),
        wheel(wheels, "pinning", "1.0", "uvicorn==0.54.0"),
    ]
    assert make(directory / "public", *of_others).returncode == 0

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        yield Indexes(f"{address}/ours/", f"{address}/public/")
        server.shutdown()


def pip(target: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("pip")
    command = [sys.executable, "-I", "-m", "pip", "--isolated", "--disable-pip-version-check", "install"]
    options = ["--no-cache-dir", "--ignore-installed", "--target", str(target)]
    return subprocess.run([*command, *options, *arguments], capture_output=True, text=True, check=False)


def installed(target: Path) -> str | None:
    """The version of `uvicorn` there."""
    found = list(target.glob("uvicorn-*.dist-info"))
    assert len(found) <= 1
    return found[0].name.removeprefix("uvicorn-").removesuffix(".dist-info") if found else None


@pytest.mark.parametrize("is_constrained", deep_after(1, [False, True]))
def test_pip_takes_the_fork_beside_the_public_index(indexes: Indexes, tmp_path: Path, is_constrained: bool) -> None:
    arguments = ["--index-url", indexes.public, "--extra-index-url", indexes.ours, "framework"]
    if is_constrained:
        constraints = tmp_path / "constraints.txt"
        constraints.write_text("uvicorn==0.54.100\n")
        arguments += ["--constraint", str(constraints)]
    found = pip(tmp_path / "target", *arguments)
    assert found.returncode == 0, found.stderr
    assert installed(tmp_path / "target") == "0.54.100"


def test_pip_takes_the_fork_from_a_directory(indexes: Indexes, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "uvicorn", "0.54.100")
    links = ["--find-links", str(tmp_path / "wheels")]
    found = pip(tmp_path / "target", "--index-url", indexes.public, *links, "framework")
    assert found.returncode == 0, found.stderr
    assert installed(tmp_path / "target") == "0.54.100"


@pytest.mark.deep
def test_pip_takes_upstream_where_it_is_pinned_unless_constrained(indexes: Indexes, tmp_path: Path) -> None:
    places = ["--index-url", indexes.public, "--extra-index-url", indexes.ours]
    found = pip(tmp_path / "target", *places, "pinning")
    assert found.returncode == 0, found.stderr
    assert installed(tmp_path / "target") == "0.54.0"
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("uvicorn==0.54.100\n")
    refused = pip(tmp_path / "other", *places, "--constraint", str(constraints), "pinning")
    assert refused.returncode == 1
    assert "uvicorn==0.54.0" in refused.stderr + refused.stdout


OVERRIDE = 'override-dependencies = ["uvicorn[standard]==0.54.100"]'
"""As documented: it replaces requirements together with their extras."""

PROJECT = """\
[project]
name = "project"
version = "1"
requires-python = ">=3.10"
dependencies = ["{dependency}"]

[tool.uv]
{override}

[[tool.uv.index]]
url = "{ours}"

[[tool.uv.index]]
url = "{public}"
default = true
"""


@pytest.mark.parametrize(
    ("dependency", "override", "version"),
    [
        ("framework", OVERRIDE, "0.54.100"),
        ("pinning", OVERRIDE, "0.54.100"),
        ("framework", "", "0.54.100"),
    ],
)
def test_uv_takes_the_fork(indexes: Indexes, tmp_path: Path, dependency: str, override: str, version: str) -> None:
    uv = pytest.importorskip("uv")
    text = PROJECT.format(dependency=dependency, override=override, ours=indexes.ours, public=indexes.public)
    (tmp_path / "pyproject.toml").write_text(text)
    command = [uv.find_uv_bin(), "lock", "--no-cache", "--python", sys.executable]
    found = subprocess.run([*command, "--directory", str(tmp_path)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    locked = (tmp_path / "uv.lock").read_text()
    assert re.search(rf'name = "uvicorn"\nversion = "{re.escape(version)}"', locked)
    assert 'name = "parser"' in locked  # of the extra


def test_the_override_is_documented() -> None:
    assert OVERRIDE in (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")


PLATFORMS = {
    "x86_64-unknown-linux-gnu": "manylinux2014_x86_64.manylinux_2_17_x86_64",
    "aarch64-unknown-linux-gnu": "manylinux2014_aarch64.manylinux_2_17_aarch64",
    "x86_64-unknown-linux-musl": "musllinux_1_2_x86_64",
}


@pytest.fixture(scope="module")
def platforms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of an index with a wheel for each of these platforms and ABIs."""
    directory = tmp_path_factory.mktemp("platforms")
    tags = [
        f"{abi}-{platform}" for abi in ("cp312-cp312", "cp313-cp313", "cp313-cp313t") for platform in PLATFORMS.values()
    ]
    assert (
        make(directory / "index", *[wheel(directory, "uvicorn", "0.54.100", tag=tag) for tag in tags]).returncode == 0
    )
    return directory / "index" / "uvicorn" / "index.html"


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("abi", deep_after(1, ["cp313", "cp312", "cp313t"]))
def test_pip_takes_the_wheel_of_its_platform(platforms: Path, tmp_path: Path, platform: str, abi: str) -> None:
    pytest.importorskip("pip")
    tag = PLATFORMS[platform].split(".")[-1]
    python = abi.rstrip("t")
    selection = [
        "--platform",
        tag,
        "--abi",
        abi,
        "--python-version",
        python.removeprefix("cp"),
        "--only-binary",
        ":all:",
    ]
    command = [
        sys.executable,
        "-I",
        "-m",
        "pip",
        "--isolated",
        "--disable-pip-version-check",
        "download",
        "--no-cache-dir",
    ]
    source = ["--no-index", "--find-links", str(platforms), "--dest", str(tmp_path)]
    found = subprocess.run([*command, *selection, *source, "uvicorn"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert [path.name for path in tmp_path.iterdir()] == [f"uvicorn-0.54.100-{python}-{abi}-{PLATFORMS[platform]}.whl"]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_uv_takes_the_wheel_of_its_platform(platforms: Path, tmp_path: Path, platform: str) -> None:
    """With the GIL: for another platform, uv has no option for the ABI."""
    uv = pytest.importorskip("uv")
    selection = ["--python-platform", platform, "--python-version", "3.13", "--python", sys.executable]
    command = [uv.find_uv_bin(), "pip", "install", "--no-cache", *selection, "--target", str(tmp_path / "target")]
    source = ["--no-index", "--find-links", str(platforms)]
    found = subprocess.run([*command, *source, "uvicorn"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    [info] = (tmp_path / "target").glob("*.dist-info")
    assert f"Tag: cp313-cp313-{PLATFORMS[platform]}" in (info / "WHEEL").read_text()


def test_index_names_hashes_metadata_and_interpreters(tmp_path: Path) -> None:
    path = wheel(tmp_path, "uvicorn", "0.54.100")
    made = make(tmp_path / "index", path)
    assert made.returncode == 0
    assert path.name in made.stdout
    page = (tmp_path / "index" / "uvicorn" / "index.html").read_text()
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert f'href="{path.name}#sha256={sha256}"' in page
    assert 'data-requires-python="&gt;=3.10"' in page
    metadata = (tmp_path / "index" / "uvicorn" / f"{path.name}.metadata").read_bytes()
    assert f'data-core-metadata="sha256={hashlib.sha256(metadata).hexdigest()}"' in page
    assert (tmp_path / "index" / "SHA256SUMS").read_text() == f"{sha256}  uvicorn/{path.name}\n"


def test_index_grows_and_what_was_published_stays(tmp_path: Path) -> None:
    index = tmp_path / "index"
    assert make(index, wheel(tmp_path, "uvicorn", "0.54.100")).returncode == 0
    assert make(index, wheel(tmp_path, "uvicorn", "0.54.101")).returncode == 0
    page = (index / "uvicorn" / "index.html").read_text()
    assert page.index("uvicorn-0.54.100") < page.index("uvicorn-0.54.101")
    other = wheel(tmp_path / "other", "uvicorn", "0.54.100", "click")
    refused = make(index, other)
    assert refused.returncode == 1
    assert "publish it as another version" in refused.stderr
    assert (index / "uvicorn" / "index.html").read_text() == page


@pytest.mark.parametrize("wrong", ["name", "contents", "project", "missing"])
def test_what_is_no_wheel_is_refused(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / {"name": "uvicorn.whl"}.get(wrong, "uvicorn-0.54.100-py3-none-any.whl")
    if wrong in ("name", "contents"):
        path.write_bytes(b"PK")
    elif wrong == "project":
        wheel(tmp_path, "other", "0.54.100").rename(path)
    refused = make(tmp_path / "index", path)
    assert refused.returncode == 1
    assert refused.stderr.startswith("make-index: ") and len(refused.stderr.splitlines()) == 1
    assert not (tmp_path / "index" / "index.html").exists()


@pytest.mark.parametrize("tag", ["0.54.100", "v0.54.100"])
def test_release_is_what_its_workflow_makes_of_wheels(tmp_path: Path, tag: str) -> None:
    """Its shell commands, run beside a wheel; a tag that does not name the version stops them."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text())
    script = next(step["run"] for step in workflow["jobs"]["release"]["steps"] if "make-index" in step.get("run", ""))
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    (tmp_path / "uvicorn").mkdir()
    (tmp_path / "uvicorn" / "__init__.py").write_text('__version__ = "0.54.100"\n')
    path = wheel(tmp_path / "dist", "uvicorn", "0.54.100")
    command = ["bash", "-e", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "GITHUB_REF_NAME": tag}, check=False)
    assert (done.returncode == 0) is (tag == "0.54.100")
    assert (tmp_path / "dist" / "SHA256SUMS").exists() is (tag == "0.54.100")
    if done.returncode == 0:
        check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
        checked = subprocess.run(check, cwd=tmp_path / "dist", capture_output=True, text=True, check=False)
        assert checked.stdout.splitlines() == [f"{name}: OK" for name in sorted(["index.tar.gz", path.name])]
        with tarfile.open(tmp_path / "dist" / "index.tar.gz") as index:
            assert f"./uvicorn/{path.name}" in index.getnames()
