"""The Rust extension `uvicorn._native`; everything else about the package is in pyproject.toml.

Without a Rust toolchain the installation succeeds in pure Python; with UVICORN_REQUIRE_NATIVE=1 it fails instead.
"""

import os

from setuptools import setup
from setuptools_rust import Binding, RustExtension

setup(
    rust_extensions=[
        RustExtension(
            "uvicorn._native",
            path="native/bindings/Cargo.toml",
            binding=Binding.PyO3,
            debug=False,
            optional=os.environ.get("UVICORN_REQUIRE_NATIVE") != "1",
        )
    ]
)
