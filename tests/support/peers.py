"""An environment with what ours is compared with: today's fastaudit and its real client.

It is made once for each Python, from `peer-requirements.txt`.
"""

import os
import subprocess
import sys
from pathlib import Path

from filelock import FileLock
from repository import ROOT, SUPPORT

import fastaudit_rs

CACHE = ROOT / ".cache" / "peer"
REQUIREMENTS = SUPPORT / "peer-requirements.txt"


def python() -> str:
    """Its interpreter; the environment is made if it is not there yet."""
    venv = CACHE / "{}.{}".format(*sys.version_info)
    found, made = venv / "bin/python", venv / "made-from.txt"
    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(CACHE / "lock"):  # Tests run side by side.
        _make(venv, found, made)
    return str(found)


def _make(venv: Path, found: Path, made: Path) -> None:
    if not made.exists() or made.read_text() != REQUIREMENTS.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        install = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([found, *install, "--requirement", REQUIREMENTS], check=True)
        made.write_text(REQUIREMENTS.read_text())


def environment(directory: Path, **variables: str) -> dict[str, str]:
    """Variables with which it finds this package too, by a link in an empty directory."""
    link = directory / "fastaudit_rs"
    if not link.exists():
        link.symlink_to(Path(fastaudit_rs.__file__).parent)
    return {**os.environ, "PYTHONPATH": str(directory), **variables}
