"""Opening `/dev/stdout` and its kin under a guard keeps what the host wrote to its log."""

import json
import os
import subprocess
import sys

import pytest

NAMES = [
    "/dev/stdout",
    "/dev/stderr",
    "/dev/fd/1",
    "/proc/self/fd/1",
    "/proc/thread-self/fd/1",
    "/proc/{pid}/fd/2",
    "/proc/{pid}/task/{pid}/fd/2",
    "/dev/../dev/./stdout",
    "{ok}/link",
]
OPENS = {
    "w": lambda name: open(name, "w"),
    "r+": lambda name: open(name, "r+"),
    "wb": lambda name: open(name, "wb", buffering=0),
    "os.open": lambda name: os.open(name, os.O_WRONLY),
    "truncating at its end": lambda name: os.open(name, os.O_WRONLY | os.O_APPEND | os.O_TRUNC),
    "opener": lambda name: open(name, "a", opener=lambda *_: os.open(name, os.O_WRONLY)),
}
APPENDS = {
    "a": lambda name: open(name, "a"),
    "a+": lambda name: open(name, "ab+"),
    "os.open": lambda name: os.open(name, os.O_WRONLY | os.O_APPEND),
}
GUARDS = {
    "mk_audit": "mk_audit([ok], monitor_calls=False)()",
    "policy": "Policy(write=[ok], network=False).guard(monitor_calls=False)()",
    "v02": "v02.mk_audit([ok], monitor_calls=False)()",
    "install": "contextlib.nullcontext(Policy(write=[ok]).install(monitor_calls=False))",
}
HOST = """
import contextlib, json, os, sys
sys.path.insert(0, {tests!r})
import test_standing_streams as cases
from fastaudit_rs import AuditDenied, Policy, mk_audit, v02
ok = {ok!r}
os.write(1, b"first line of the host\\n")
names = [name.format(pid=os.getpid(), ok=ok) for name in {names!r}]
verdicts = {{}}
with {guard}:
    for way, opens in cases.{ways}.items():
        for name in names:
            try:
                opened = opens(name)
                verdicts[way + " " + name] = True
                os.close(opened) if isinstance(opened, int) else opened.close()
            except AuditDenied:
                verdicts[way + " " + name] = False
            except OSError as error:
                verdicts[way + " " + name] = True
os.write(9, json.dumps(verdicts).encode())
"""


def run(places, guard, ways, names=NAMES, stdout=None, stderr=None):
    """The verdicts, and what is in the log then."""
    log = places.out + "/log"
    code = HOST.format(
        tests=os.path.dirname(__file__), ok=places.ok, guard=GUARDS[guard], ways=ways, names=names
    )
    read, write = os.pipe()

    def inherit():
        os.dup2(write, 9)

    if not os.path.lexists(places.ok + "/link"):
        os.symlink("/dev/stdout", places.ok + "/link")
    with open(log, "wb") as file:
        ended = subprocess.run(
            [sys.executable, "-c", code],
            stdout=file if stdout is None else stdout,
            stderr=file if stderr is None else stderr,
            preexec_fn=inherit,
            pass_fds=[9],
        )
    os.close(write)
    with os.fdopen(read) as pipe:
        verdicts = json.loads(pipe.read() or "{}")
    with open(log, "rb") as file:
        kept = file.read()
    assert verdicts, kept
    return ended, verdicts, kept


@pytest.mark.slow
@pytest.mark.parametrize("guard", GUARDS)
def test_a_log_is_not_cut(places, guard):
    _, verdicts, log = run(places, guard, "OPENS")
    assert log == b"first line of the host\n"
    assert {way for way, passed in verdicts.items() if passed} == set()
    assert len(verdicts) == len(OPENS) * len(NAMES)


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize(
    ("ways", "stream"),
    [("APPENDS", None), ("OPENS", subprocess.PIPE), ("OPENS", subprocess.DEVNULL)],
    ids=["adding to it", "pipes", "what leads nowhere"],
)
def test_what_cuts_no_log_passes(places, guard, ways, stream):
    _, verdicts, log = run(places, guard, ways, NAMES[:-1], stream, stream)
    assert log == (b"" if stream else b"first line of the host\n")
    assert {way for way, passed in verdicts.items() if not passed} == set()


def test_a_log_in_a_root(places):
    from fastaudit_rs import Policy

    with open(places.ok + "/log", "w") as log, Policy(write=[places.ok]).guard()():
        open(f"/proc/self/fd/{log.fileno()}", "w").close()
        open(f"/dev/fd/{log.fileno()}", "r+").close()


def test_a_descriptor_for_reading_gives_no_right_to_write(places, guard):
    """Neither by another number, nor by that of a standard stream."""
    path = places.out + "/theirs"
    with open(path, "w") as file:
        file.write("theirs")
    os.mkfifo(places.out + "/pipe")
    with guard():
        for name in ("theirs", "pipe"):
            opened = os.open(f"{places.out}/{name}", os.O_RDONLY | os.O_NONBLOCK)
            for mode in ("w", "a", "r+"):
                with pytest.raises(PermissionError):
                    open(f"/proc/self/fd/{opened}", mode)
                with pytest.raises(PermissionError):
                    open(f"/dev/fd/{opened}", mode)
            os.close(opened)
    with open(path) as file:
        assert file.read() == "theirs"


def test_those_of_another_process(places, guard):
    with open(places.out + "/log", "w") as log:
        log.write("theirs")
        log.flush()
        code = "import time; print(end='', flush=True); time.sleep(60)"
        other = subprocess.Popen([sys.executable, "-c", code], stdout=log, stdin=subprocess.PIPE)
    try:
        with guard():
            for mode in ("w", "a", "r+"):
                with pytest.raises(PermissionError):
                    open(f"/proc/{other.pid}/fd/1", mode)
                with pytest.raises(PermissionError):
                    open(f"/proc/{other.pid}/fd/0", mode)
    finally:
        other.kill()
        other.communicate()
    with open(places.out + "/log") as log:
        assert log.read() == "theirs"
