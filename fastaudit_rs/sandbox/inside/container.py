"""The program of a sandbox's container, started by `sandbox_docker.py`."""

import os
import pickle
import sys
from typing import NoReturn

from ..._native import _govern
from .child import program


def main() -> NoReturn:
    """Run the job in the directory that is the argument, and end with its status."""
    place = sys.argv[1]
    with open(f"{place}/job", "rb") as file:
        policy, governing, job = pickle.load(file)
    for each in governing:
        _govern(each)
    given = os.open(f"{place}/input", os.O_RDONLY)
    os.dup2(given, 0)
    os.close(given)
    report = os.open(f"{place}/report", os.O_WRONLY | os.O_APPEND)
    sys.exit(program(policy, job, report))
