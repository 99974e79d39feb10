"""The files that `os.posix_spawn` opens for a program are judged as files that Python opens."""

import os
import subprocess
from pathlib import Path

import pytest
from in_turn import Numbers, Paths

from fastaudit_rs import Policy

pytestmark = pytest.mark.skipif(
    not hasattr(os, "POSIX_SPAWN_OPEN"), reason="the system starts no programs so"
)

WRITES = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def spawn(*actions, function=os.posix_spawn, **options):
    pid = function("/bin/echo", ["echo", "said"], {}, file_actions=actions, **options)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def opening(path, flags=WRITES):
    return (os.POSIX_SPAWN_OPEN, 1, path, flags, 0o600)


@pytest.fixture
def spawned(under):
    """`spawned(*actions, **fields)`: the denial of a program that may start, or `None`."""

    def run(*actions, function=os.posix_spawn, **fields):
        return under(lambda: spawn(*actions, function=function), commands=["/bin/echo"], **fields)

    return run


@pytest.mark.parametrize("function", [os.posix_spawn, os.posix_spawnp])
@pytest.mark.parametrize("kind", [str, os.fsencode, Path])
def test_writing(spawned, places, function, kind):
    Path(places.out, "theirs").write_text("theirs")
    for name in ("theirs", "new"):
        denied = spawned(opening(kind(f"{places.out}/{name}")), function=function)
        assert (denied.event, denied.rule, denied.path) == ("open", "write", f"{places.out}/{name}")
    assert spawned(opening(kind(places.ok + "/ours")), function=function) is None
    assert Path(places.ok, "ours").read_text() == "said\n"
    assert os.listdir(places.out) == ["theirs"]
    assert Path(places.out, "theirs").read_text() == "theirs"


def test_reading(spawned, places):
    Path(places.out, "theirs").touch()
    read = (os.POSIX_SPAWN_OPEN, 0, places.out + "/theirs", os.O_RDONLY, 0)
    null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0)
    assert spawned(read, null) is None
    assert spawned(read, block=[places.out]).rule == "block"
    assert spawned(read, read=["/bin", "/usr"]).rule == "read"


def test_relative_names(spawned, places, monkeypatch):
    assert spawned(opening("new")).event == "open"
    monkeypatch.chdir(places.ok)
    assert spawned(opening("new")) is None
    assert spawned(opening("../out/new")).event == "open"


def test_what_opens_nothing(spawned, places):
    with open(places.ok + "/ours", "w") as ours:
        actions = [(os.POSIX_SPAWN_DUP2, ours.fileno(), 1), (os.POSIX_SPAWN_CLOSE, 0)]
        assert spawned(*actions) is None
    assert Path(places.ok, "ours").read_text() == "said\n"


def test_what_is_judged_is_what_is_opened(spawned, places):
    """Objects that answer differently when they are asked again."""
    inside, outside = places.ok + "/new", places.out + "/new"
    assert spawned(opening(Paths(inside, outside))) is None
    assert spawned(opening(Paths(outside, inside))).event == "open"
    changing = [
        (Numbers(os.POSIX_SPAWN_OPEN), 1, outside, WRITES, 0o600),
        (os.POSIX_SPAWN_OPEN, 1, outside, Numbers(WRITES), 0o600),
        (os.POSIX_SPAWN_OPEN, 1, outside, Numbers(os.O_RDONLY, WRITES), 0o600),
    ]
    for action in changing:
        assert spawned(action).event == "open"

    class Sequence:
        def __init__(self):
            self.rounds = [[opening(inside)], [opening(outside)]]

        def __iter__(self):
            return iter(self.rounds.pop(0))

    class Tuple(tuple):
        def __iter__(self):
            return iter((os.POSIX_SPAWN_OPEN, 1, inside, WRITES, 0o600))

    with Policy(write=[places.ok], commands=["/bin/echo"]).guard(monitor_calls=False)():
        pid = os.posix_spawn("/bin/echo", ["echo"], {}, file_actions=Sequence())
        os.waitpid(pid, 0)
    assert spawned(Tuple(opening(outside))).event == "open"
    assert os.listdir(places.out) == []


def test_changing_a_list_meanwhile(under, places):
    class Changes:
        def __fspath__(self):
            actions[1] = opening(places.out + "/new")
            return places.ok + "/new"

    actions = [opening(Changes()), opening(places.ok + "/other")]

    def run():
        os.waitpid(os.posix_spawn("/bin/echo", ["echo"], {}, file_actions=actions), 0)

    assert under(run, commands=["/bin/echo"]) is None
    assert os.listdir(places.out) == []


def test_an_approved_start(mk_audit, places):
    with mk_audit([places.ok], before_deny=lambda name, *_: name == "os.posix_spawn")():
        with pytest.raises(PermissionError, match="^open "):
            spawn(opening(places.out + "/new"))
        assert spawn(opening(places.ok + "/new")) == 0
    assert os.listdir(places.out) == []


@pytest.mark.parametrize("actions", [None, (), [], 5, [5], [()], [("x",)], [(0, 1, None, 0, 0)]])
def test_wrong_actions_raise_as_without_a_guard(under, actions):
    def run():
        pid = os.posix_spawn("/bin/echo", ["echo"], {}, file_actions=actions)
        os.waitpid(pid, 0)

    def raised(call):
        try:
            call()
        except TypeError:
            return True
        return False

    assert raised(lambda: under(run, commands=["/bin/echo"])) == raised(run)


def test_subprocess(under, places):
    """It opens what it hands over itself, and lets the start close and copy descriptors."""

    def run(place):
        with open(place, "w") as file:
            subprocess.run(["/bin/echo", "said"], stdout=file, stdin=subprocess.DEVNULL, check=True)

    assert under(run, places.ok + "/new", commands=["/bin/echo"]) is None
    assert under(run, places.out + "/new", commands=["/bin/echo"]).event == "open"
    fast = {"close_fds": False, "env": {}, "stdout": subprocess.PIPE}
    assert under(lambda: subprocess.run(["/bin/echo"], **fast), commands=["/bin/echo"]) is None
