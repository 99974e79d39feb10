"""Run the test file of fastaudit 0.1.0, as it comes from PyPI, on this package.

While it runs, the names `fastaudit` and `fastaudit.core` are this package's.
"""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import fastaudit_rs
import fastaudit_rs.core

VERSION = "0.1.0"
CACHE = Path(__file__).resolve().parent.parent / ".cache" / "conformance"


def fetch() -> Path:
    """The unpacked source distribution."""
    source = CACHE / f"fastaudit-{VERSION}"
    if not source.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        requirement = ["--no-deps", "--no-binary", "fastaudit", f"fastaudit=={VERSION}"]
        command = [sys.executable, "-m", "pip", "download", "--quiet", *requirement]
        subprocess.run([*command, "--dest", str(CACHE)], check=True)
        with tarfile.open(CACHE / f"fastaudit-{VERSION}.tar.gz") as archive:
            archive.extractall(CACHE, filter="data")
    return source


def main() -> int:
    """Run the tests; pytest's exit code."""
    source = fetch()
    os.chdir(source)
    sys.modules["fastaudit"] = fastaudit_rs
    sys.modules["fastaudit.core"] = fastaudit_rs.core
    code = pytest.main(["-v", "-p", "no:cacheprovider", "--rootdir", ".", "tests/test_core.py"])
    tested = sys.modules["test_core"].mk_audit
    assert tested is fastaudit_rs.mk_audit, f"tested {tested} and not this package"
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
