"""Modules of Cython code, made for a test."""

import atexit
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
#: The variable with the directory of the modules that were compiled: the first process of a run of
#: pytest makes it, and those that it starts compile nothing again.
COMPILED = "FASTAUDIT_RS_COMPILED"


def share_compiled():
    """Make the directory of compiled modules, if no process before this one did."""
    if COMPILED not in os.environ:
        os.environ[COMPILED] = tempfile.mkdtemp(prefix="fastaudit-rs-compiled-")
        atexit.register(shutil.rmtree, os.environ[COMPILED], ignore_errors=True)


def build(name, directory, *options):
    """Compile `name.pyx`, which is beside this, into the directory."""
    compiled = Path(os.environ[COMPILED], f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}")
    if not compiled.exists():
        # Processes that compile it at the same time each put the same in its place.
        with tempfile.TemporaryDirectory(dir=compiled.parent) as own:
            os.replace(_compile(name, Path(own, compiled.name), options), compiled)
    shutil.copy(compiled, directory)


def compiler():
    """The words that call the compiler of this Python, whose C library modules are linked to."""
    return (sysconfig.get_config_var("CC") or "cc").split()


def _compile(name, target, options):
    source = target.with_name(f"{name}.c")
    cython = [sys.executable, "-m", "cython", str(HERE / f"{name}.pyx"), "-o", str(source)]
    subprocess.run(cython, check=True, capture_output=True)
    include = f"-I{sysconfig.get_path('include')}"
    flags = ["-O1", "-shared", "-fPIC", "-w", include, str(source), "-o", str(target)]
    subprocess.run([*compiler(), *flags, *options], check=True, capture_output=True)
    return target
