"""Sessions of one sandbox are copies of one process, and know nothing of each other."""

import operator
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from raw_code import SYSTEM_CALLS
from sandboxes import of, running
from waiting import until

from fastaudit_rs import Limits, Policy, Sandbox, SandboxError
from fastaudit_rs.sandbox.host import cgroup

pytestmark = [
    pytest.mark.skipif(not cgroup.are_there(), reason="this user can make no control groups here"),
]


#: Those that may read /proc are not copied.
POLICY = Policy.preset("sandbox").replace(commands=True, env=True, threads="inherit", native=True)


@pytest.fixture
def sandbox():
    with Sandbox(POLICY, Limits(wall_seconds=20, processes=9)) as made:
        yield made


def raw(session, code):
    """What raw code tells in a program that a step starts."""
    program = f"{SYSTEM_CALLS}{code}\nprint(json.dumps(answer), flush=True)"
    step = "import json, subprocess, sys\njson.loads(subprocess.check_output([sys.executable, '-I',"
    ran = session.run(f"{step} '-c', program]))", variables={"program": program})
    assert ran.success, ran
    return ran.value


def has_ended(session):
    try:
        return not session.run("1").success
    except SandboxError:
        return True


def waiting(session):
    """The numbers of a session's process and of those above it, up to the one that was started."""
    found = [session.run("import os; os.getpid()").value]
    for _ in range(2):
        fields = Path(f"/proc/{found[-1]}/stat").read_text().rpartition(")")[2].split()
        found.append(int(fields[1]))
    return found


def test_they_are_opened_without_starting_a_process(sandbox):
    first = sandbox.session(undo_depth=0)
    others = [sandbox.session(undo_depth=0) for _ in range(4)]
    assert [each.run("1 + 1").value for each in (first, *others)] == [2] * 5
    roots = {waiting(each)[-1] for each in (first, *others)}
    assert len(roots) == 1 and len(running(of(sandbox))) == 1 + 2 * 5
    for each in (first, *others):
        each.close()
    # The next one would be copied from it.
    assert until(lambda: len(running(of(sandbox))) == 1, 2)


@pytest.mark.nightly
def test_a_thousand(sandbox, monkeypatch):
    """Opened, used and closed one after the other, and 300 at once: nothing of them is left."""

    made, make = [], cgroup.made
    monkeypatch.setattr(cgroup, "made", lambda limits: made.append(make(limits)) or made[-1])

    def left():
        groups = sum(path.exists() for group in made for path in group.paths)
        return len(os.listdir("/proc/self/fd")), len(running(of(sandbox))), groups

    with sandbox.session() as session:
        session.run("1")
    before = left()
    for number in range(1000):
        with sandbox.session() as session:
            assert session.run("n + 1", variables={"n": number}).value == number + 1
    assert until(lambda: all(map(operator.le, left(), before))), (left(), before)
    sessions = [sandbox.session() for _ in range(300)]
    assert all(session.run("1 + 1").value == 2 for session in sessions)
    for session in sessions:
        session.close()
    # Those that the others were copied from end when the next one is opened.
    sandbox.session().close()
    assert until(lambda: all(map(operator.le, left(), before))), (left(), before)


def test_many_at_once(sandbox):
    """Each has its own names, and none of another's."""
    sessions = {}

    def use(number):
        session = sessions[number] = sandbox.session()
        session.run(f"mine = {number}")

    threads = [threading.Thread(target=use, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: session.get("mine") for number, session in sessions.items()} == {
        number: number for number in range(12)
    }
    for number in range(0, 12, 2):
        sessions[number].close()
    assert all(sessions[number].run("mine").value == number for number in range(1, 12, 2))


def test_what_is_preloaded_is_there():
    """In runs too; each draws its own random numbers."""
    pytest.importorskip("numpy")
    code = "import sys; there = 'numpy' in sys.modules\nimport random, numpy\n"
    code += "[there, random.random(), float(numpy.random.random())]"
    with Sandbox(preload=["numpy"]) as sandbox:
        found = [sandbox.session().run(code).value for _ in range(2)]
        found.append(sandbox.run(code, value=True).value)
    there, *drawn = zip(*found, strict=True)
    assert there == (True, True, True) and [len({*each}) for each in drawn] == [3, 3]


def test_preload_takes_names_of_modules():
    with pytest.raises(TypeError, match=r"not str: write \['numpy'\]"):
        Sandbox(preload="numpy")
    with Sandbox(preload=["no_such_module"]) as sandbox:
        with pytest.raises(SandboxError, match="No module named 'no_such_module'"):
            sandbox.session()
    with pytest.raises(ValueError, match="preload needs backend='process'"):
        Sandbox(preload=["numpy"], backend="docker", image="python")


#: Sends signals to others in each way, and reads their memory.
REACH = """
path = lambda name: ctypes.create_string_buffer(name.encode())
own = os.open("/proc/self", os.O_RDONLY)
for pid in PIDS:
    for number in (9, 0, 19):
        attempt("kill", lambda: call(62, pid, number))
        attempt("tkill", lambda: call(200, pid, number))
        attempt("tgkill", lambda: call(234, pid, pid, number))
        attempt("queue", lambda: call(129, pid, number, (ctypes.c_int * 32)(number, 0, -1)))
    opened = call(434, pid, 0)
    attempt("pidfd", lambda: opened >= 0 and call(424, opened, 9, 0, 0))
    attempt("getfd", lambda: opened >= 0 and call(438, opened, 0, 0))
    attempt("ptrace", lambda: call(101, 16, pid, 0, 0))
    attempt("seize", lambda: call(101, 0x4206, pid, 0, 0))
    part = (ctypes.c_ulong * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    attempt("read", lambda: call(310, pid, part, 1, part, 1, 0))
    for name in ("mem", "environ", "maps", "cmdline", "fd/1", "fd/3", "fd/9", "task"):
        attempt(name, lambda: call(257, -100, path(f"/proc/{pid}/{name}"), 0))
        attempt(name, lambda: call(2, path(f"/proc/self/../{pid}/{name}"), 2))
        attempt(name, lambda: call(257, own, path(f"../{pid}/task/{pid}/{name}"), 1))
    attempt("prlimit", lambda: call(302, pid, 7, (ctypes.c_ulong * 2)(5, 5), 0))
"""


def test_none_reaches_another(sandbox):
    """Nor the process that waits for it, nor the one that both are copies of."""
    one, other = sandbox.session(), sandbox.session()
    pids = [*waiting(one), waiting(other)[1]]
    assert raw(other, f"PIDS = {pids}\n{REACH}") == []
    assert one.run("1").value == other.run("1").value == 1
    # A program that a step has started reaches its own.
    assert raw(other, 'attempt("kill", lambda: call(62, os.getppid(), 0))') == ["kill"]


def test_abstract_sockets_reach_none(sandbox):
    one, other = sandbox.session(), sandbox.session()
    program = "import socket as s, time; a = s.socket(s.AF_UNIX); a.bind('\\0ours'); a.listen()"
    listen = f"[sys.executable, '-I', '-c', {program + '; print(flush=True); time.sleep(60)'!r}]"
    begun = f"subprocess.Popen({listen}, stdout=subprocess.PIPE).stdout.readline()"
    assert one.run(f"import subprocess, sys; {begun}").value == b"\n"
    connect = "attempt('a', lambda: socket.socket(socket.AF_UNIX).connect('\\0ours') or True)"
    assert (raw(other, connect), raw(one, connect)) == ([], ["a"])


def test_limits_are_those_of_each(sandbox):
    one, other = sandbox.session(), sandbox.session()
    fill = """
import subprocess
started = []
try:
    while len(started) < 30:
        started.append(subprocess.Popen(["sleep", "60"]))
except OSError as error:
    print(error.errno)
len(started)
"""
    # Besides there is the session's own process; the place of a copy for `undo` is free.
    assert (one.run(fill).value, one.run("1").value) == (9, 1)
    assert other.run(fill).value == 9


def test_what_it_leaves_behind_ends_with_it(sandbox):
    """Also where the process that waits for it was killed: the one above it ends the rest."""
    one, other = sandbox.session(undo_depth=0), sandbox.session(undo_depth=0)
    start = "import subprocess; subprocess.Popen(['setsid', 'sleep', '{}'])"
    one.run(start.format("71.5"))
    assert running("71.5")
    other.run(start.format("72.5"))
    os.kill(waiting(one)[1], signal.SIGKILL)
    assert until(lambda: has_ended(one))
    assert until(lambda: not running("71.5"), 5) and running("72.5")
    one.reset()
    assert one.run("1").value == other.run("1").value == 1
    other.close()
    assert until(lambda: not running("72.5"), 5)


def test_the_one_that_they_are_copies_of_is_killed(sandbox):
    one, other = sandbox.session(), sandbox.session()
    os.kill(waiting(one)[-1], signal.SIGKILL)
    for session in (one, other):
        assert until(lambda session=session: has_ended(session))
        session.reset()
        assert session.run("1").value == 1
    assert waiting(one)[-1] == waiting(other)[-1]
    assert sandbox.session().run("2").value == 2


def test_the_host_is_killed():
    code = """
        from fastaudit_rs import Sandbox
        import os, sys
        sandbox = Sandbox()
        sessions = [sandbox.session() for _ in range(3)]
        for session in sessions:
            session.run("1")
        print(sandbox.directory.parent, flush=True)
        os.kill(os.getpid(), 9)
    """
    program = "\n".join(line[8:] for line in code.splitlines())
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    mark = ran.stdout.strip()
    assert mark and until(lambda: not running(mark), 5)


def test_a_directory_that_is_another_one_later(tmp_path):
    """Sessions that are opened then are copies of another process."""
    place, old = tmp_path / "place", tmp_path / "old"
    place.mkdir()
    write = f"open({str(place / 'file')!r}, 'w').close()"
    with Sandbox(POLICY.replace(write=[str(place)])) as sandbox:
        one = sandbox.session()
        assert one.run(write).success
        place.rename(old)
        place.mkdir()
        other = sandbox.session()
        assert other.run(write).success
        assert waiting(one)[-1] != waiting(other)[-1]
        one.close()
        assert sandbox.session().run(write).success
    assert (place / "file").exists() and (old / "file").exists()
