"""The processes of sandboxes, seen from outside: what tests of them share."""

import os
import sys
import traceback
from pathlib import Path

import pytest
from waiting import until

from fastaudit_rs import Policy, _landlock

#: The policy of code where only the kernel is to say no.
LOOSE = Policy(read=["/"], native=True, commands=True, network=True, threads="inherit", env=True)


#: Tests of what a sandbox lets pass on newer kernels alone: "Older kernels" in docs/sandbox.md.
LISTENS = pytest.mark.skipif(_landlock.version() < 4, reason="listen=[…] came with Linux 6.7")
MAKES_UNIX_SOCKETS = pytest.mark.skipif(
    _landlock.version() < 6, reason="before Linux 6.12 no Unix sockets are made but pairs"
)
#: One with ``network=False`` makes them where it has a network of its own, which takes a privilege.
MAKES_OWN_UNIX_SOCKETS = pytest.mark.skipif(
    _landlock.version() < 6 and os.geteuid() != 0,
    reason="before Linux 6.12 an ordinary user's makes no Unix sockets but pairs",
)

#: Code that has got around its guard: our own connection to the host in its process, and a way to
#: write to it.
OURS = """
import gc, json, os, struct, threading, time
channel = next(found for found in gc.get_objects() if type(found).__name__ == "HostChannel")
write = channel._connection.sendall
def raw(head, body=b""):
    data = (head if isinstance(head, bytes) else json.dumps(head).encode()) + b"\\n" + body
    write(struct.pack("!Q", len(data)) + data)
"""


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
    return until(lambda: not running(mark), seconds)


def wait_for(path):
    assert until(path.exists, 30)


def unguarded(sandbox, program, *args, check=True):
    """Run a program in a sandbox, where the kernel alone says no."""
    command = [sys.executable, "-I", "-c", program, *map(str, args)]
    ran = sandbox.run(f"import subprocess; subprocess.run({command!r}, check=True)")
    assert ran.success or not check, ran.stderr
    return ran


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
