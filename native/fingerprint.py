"""Identify the sources of the native core. `setup.py` writes the result into the module; `scripts/install` and the
tests compare it with their tree, so that a module of other sources is rebuilt, and never tested.
"""

from hashlib import sha256
from pathlib import Path

__all__ = ["fingerprint"]

PATTERNS = ("Cargo.toml", "*/Cargo.toml", "*/build.rs", "*/src/**/*.rs")


def fingerprint(native: Path = Path(__file__).parent) -> str:
    """Return a hash of the files from which cargo builds the module; the directory is this one."""
    found = sha256()
    for path in sorted({path for pattern in PATTERNS for path in native.glob(pattern)}):
        content = path.read_bytes()
        found.update(b"%b %d\n%b" % (path.relative_to(native).as_posix().encode(), len(content), content))
    return found.hexdigest()[:32]


if __name__ == "__main__":
    print(fingerprint())
