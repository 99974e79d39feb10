"""Modules of Cython code, made for a test."""

import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent


def build(name, directory, *options):
    """Compile `name.pyx`, which is beside this, into the directory."""
    source = Path(directory, f"{name}.c")
    cython = [sys.executable, "-m", "cython", str(HERE / f"{name}.pyx"), "-o", str(source)]
    subprocess.run(cython, check=True, capture_output=True)
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    include = f"-I{sysconfig.get_path('include')}"
    target = Path(directory, f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}")
    flags = ["-O1", "-shared", "-fPIC", "-w", include, str(source), "-o", str(target)]
    subprocess.run([*compiler, *flags, *options], check=True, capture_output=True)
