"""The Rust extension `uvicorn._native`; everything else about the package is in pyproject.toml.

Without a Rust toolchain, or where the build fails, the installation succeeds in pure Python; with
UVICORN_REQUIRE_NATIVE=1 it fails instead. With UVICORN_TLS_PROVIDER=ring rustls encrypts by ring, not AWS-LC, which
needs a C compiler for the processor.
"""

import os
import re
import runpy
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools_rust import Binding, RustExtension

SOURCES = Path("native")

# The last release that can be built for the experimental 3.13t; all other interpreters get the one in the manifest.
LAST_PYO3_FOR_313T = "0.28.3"


def manifest() -> str:
    """The manifest of the extension; for 3.13t that of a copy of the sources with another PyO3."""
    if not sysconfig.get_config_var("Py_GIL_DISABLED") or sys.version_info >= (3, 14):
        return str(SOURCES / "bindings" / "Cargo.toml")
    copy = Path("build", "native-313t")
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("target", "Cargo.lock", "fuzz"), dirs_exist_ok=True)
    path = copy / "bindings" / "Cargo.toml"
    text = path.read_text()
    path.write_text(re.sub(r'^(pyo3.*?"=)[0-9.]+', rf"\g<1>{LAST_PYO3_FOR_313T}", text, flags=re.MULTILINE))
    return str(path)


def provider() -> list[str]:
    """The arguments of cargo for what encrypts."""
    name = os.environ.get("UVICORN_TLS_PROVIDER", "aws-lc")
    if name not in ("aws-lc", "ring"):
        raise SystemExit(f"UVICORN_TLS_PROVIDER must be aws-lc or ring, not {name!r}")
    return ["--no-default-features", "--features", name]


def oldest_rust() -> str:
    """The first release that can build it."""
    found = re.search(r'^rust-version = "(.*)"', (SOURCES / "Cargo.toml").read_text(), flags=re.MULTILINE)
    assert found is not None
    return found[1]


# The module knows what it was built from.
os.environ["UVICORN_NATIVE_SOURCES"] = runpy.run_path(str(SOURCES / "fingerprint.py"))["fingerprint"]()

setup(
    rust_extensions=[
        RustExtension(
            "uvicorn._native",
            path=manifest(),
            binding=Binding.PyO3,
            rust_version=f">={oldest_rust()}",
            args=provider(),
            debug=False,
            optional=os.environ.get("UVICORN_REQUIRE_NATIVE") != "1",
        )
    ]
)
