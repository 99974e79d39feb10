"""The processes of sandboxes, seen from outside: what tests of them share."""

import os
import time
import traceback
from pathlib import Path

from fastaudit_rs import Policy

#: The policy of code where only the kernel is to say no.
LOOSE = Policy(read=["/"], native=True, commands=True, network=True, threads="inherit", env=True)


def running(mark):
    """The numbers of the processes whose command has this text."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and int(directory.name) != os.getpid():
            try:
                command = directory.joinpath("cmdline").read_bytes()
                state = directory.joinpath("stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if mark.encode() in command and state != "Z":
                found.append(int(directory.name))
    return found


def of(sandbox):
    """The text that is in the command of each process of a sandbox."""
    return str(sandbox.directory.parent)


def gone(mark, seconds=2.0):
    """True if no such process is left, at the latest after some time."""
    deadline = time.monotonic() + seconds
    while running(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def wait_for(path):
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def in_copy(work):
    """Do something in a copy of this process; its error fails the test here."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with open(writing, "w") as said:
            os.close(reading)
            try:
                work()
            except BaseException:
                said.write(traceback.format_exc())
        os._exit(0)
    os.close(writing)
    with open(reading) as saying:
        said = saying.read()
    assert os.waitpid(child, 0)[1] == 0
    assert not said, said
