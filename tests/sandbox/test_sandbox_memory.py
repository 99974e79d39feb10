"""The memory of a sandbox, and its limits without the kernel part, as any user."""

import os
import signal
import sys
import textwrap
from pathlib import Path

import promises
import pytest
from programs import ran
from waiting import until

from fastaudit_rs import Limits, Policy, Sandbox
from fastaudit_rs.sandbox.host import cgroup
from fastaudit_rs.sandbox.limits import limit_of

by_group = pytest.mark.skipif(not cgroup.are_there(), reason="no control groups can be made here")

#: Ways to use 900 MB that no count of private memory sees, under a limit of 200 MB.
HUNGRY = {
    "a file in memory": """
        import os
        file = os.memfd_create("x")
        for _ in range(900):
            os.write(file, bytes(1 << 20))
    """,
    "copies of shared pages": """
        import os, time
        data = bytearray(60 << 20)
        for _ in range(15):
            if os.fork() == 0:
                for place in range(0, len(data), 4096):
                    data[place] = 1
                time.sleep(1)
                os._exit(0)
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
    """,
}

#: Processes that each fill pipes, and the megabytes that were in all of them.
PIPES = """
import contextlib, fcntl, time
read, write = os.pipe()
for _ in range(8):
    if os.fork() == 0:
        kept, count = [], 0
        for _ in range(110):
            kept.append(os.pipe())
            os.set_blocking(kept[-1][1], False)
            # Without privileges the pipes of a user are small as soon as they are many.
            with contextlib.suppress(PermissionError):
                fcntl.fcntl(kept[-1][1], 1031, 1 << 20)
            with contextlib.suppress(BlockingIOError):
                count += os.write(kept[-1][1], bytes(1 << 20))
        os.write(write, count.to_bytes(8, "big"))
        time.sleep(1)
        os._exit(0)
answer = sum(int.from_bytes(os.read(read, 8), "big") for _ in range(8)) >> 20
"""


@pytest.mark.slow
@pytest.mark.holds("kernel", promises.MEMORY)
@pytest.mark.parametrize("way", HUNGRY)
def test_all_memory_counts(raw, way):
    _, ran, sandbox = raw(textwrap.dedent(HUNGRY[way]), limits={"memory": "200M"})
    if sandbox.explain()["memory"] == "kernel":
        assert ran.killed_by == "memory", ran
    elif way == "a file in memory":
        assert "PermissionError" in ran.stderr, ran


@pytest.mark.slow
@pytest.mark.holds("kernel", promises.MEMORY)
def test_pipes_are_small(raw):
    told, ran, _ = raw(PIPES, limits={"memory": "200M"})
    assert ran.killed_by == "memory" or told < 200, ran


@pytest.mark.slow
@by_group
def test_memory_that_is_reserved(make_sandbox):
    """Common libraries reserve much more than they use."""
    ran = make_sandbox(memory="200M").run("import mmap; place = mmap.mmap(-1, 500 << 20)")
    assert ran.success, ran
    # Four times as much is too much.
    ran = make_sandbox(memory="200M").run("x = bytearray(10**9)")
    assert (ran.error.kind, ran.killed_by) == ("MemoryError", None)


@pytest.mark.slow
@by_group
def test_a_kill_is_told(make_sandbox):
    """Also of a program that the code started; a `MemoryError` is not a kill."""
    sandbox = make_sandbox(memory="200M")
    code = """if 1:
        import os
        file = os.memfd_create('x')
        for _ in range(400):
            os.write(file, bytes(1 << 20))
    """
    ran = sandbox.run(code)
    assert (ran.killed_by, ran.returncode, ran.success) == ("memory", -9, False)
    started = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    assert sandbox.run(started).killed_by == "memory"
    ran = sandbox.run("raise MemoryError")
    assert (ran.killed_by, ran.returncode) == (None, 1)
    assert sandbox.run("print(1)").success


@pytest.mark.slow
@by_group
def test_groups_are_removed(monkeypatch):
    """After runs, kills and at the end; also those that a killed host left behind."""
    made = []
    make = cgroup.made
    monkeypatch.setattr(cgroup, "made", lambda limits: made.append(make(limits)) or made[-1])
    with Sandbox(Policy(), Limits(memory="200M", wall_seconds=1)) as sandbox:
        sandbox.run("1")
        [path, *_] = made[0].paths
        for each in made[0].paths:
            assert len((each / "cgroup.procs").read_text().split()) == 1
        assert sandbox.run("while True: pass").timed_out
        sandbox.run("1")
    assert len(made) == 2 and not any(path.exists() for each in made for path in each.paths)
    left = path.with_name("fastaudit-rs-1-left")
    left.mkdir()
    cgroup._sweep(path.parent)
    assert not left.exists()


@pytest.mark.slow
def test_without_groups(monkeypatch):
    """Each process has the limit by itself, and no files in memory."""
    monkeypatch.setattr(cgroup, "made", lambda limits: None)
    monkeypatch.setattr(cgroup, "are_there", lambda controller="memory": False)
    with Sandbox(Policy(), Limits(memory="200M")) as sandbox:
        assert sandbox.explain()["memory"] == "kernel, each process by itself"
        limit = "import resource; resource.getrlimit(resource.RLIMIT_DATA)"
        assert sandbox.run(limit, value=True).value == [200 << 20] * 2
        ran = sandbox.run("import os; os.memfd_create('x')")
        assert "PermissionError" in ran.stderr
    with Sandbox(Policy(), Limits(memory=None)) as sandbox:
        assert sandbox.run("import os; os.memfd_create('x')").success


GREEDY = """
import os, time
def much():
    try:
        return len(bytearray(b'x') * (600 << 20))
    except MemoryError:
        return 0
def files():
    kept = []
    try:
        while True:
            kept.append(open(os.devnull))
    except OSError:
        return len(kept)
def forks():
    count = 0
    try:
        for _ in range(30):
            if os.fork() == 0:
                time.sleep(20)
                os._exit(0)
            count += 1
    except OSError:
        pass
    return count
[files(), forks(), much()]
"""


@pytest.mark.slow
@pytest.mark.parametrize("confine", ["prefer", "audit"])
def test_limits_without_the_kernel_part(monkeypatch, confine):
    if confine == "prefer":
        monkeypatch.setitem(sys.modules, "sandlock", None)
    policy = Policy(threads="inherit", commands=True)
    limits = Limits(memory="200M", processes=5, open_files=40, wall_seconds=20)
    with Sandbox(policy, limits, confine=confine) as sandbox:
        told, done = sandbox.explain(), sandbox.run(GREEDY, value=True)
    is_root = os.geteuid() == 0
    assert told["open_files"] == "kernel" and told["cpu_percent"] in ("kernel", "nothing")
    assert told["memory"] in ("kernel", "kernel, each process by itself")
    assert told["processes"] == ("nothing" if is_root else "kernel, with all of its user's")
    if told["memory"] == "kernel":
        assert done.killed_by == "memory"
    else:
        files, forks, much = done.value
        assert files < 40 and much == 0 and (forks == 30) == is_root


#: A host that is killed while its code runs; its group is told first.
KILLED = """
import os, signal, sys, threading
from fastaudit_rs import Policy, Sandbox
from fastaudit_rs.sandbox.host import cgroup
from fastaudit_rs.sandbox.limits import limit_of
join = cgroup.joined
def joined(process, limits):
    found = join(process, limits)
    print(*(found.paths if found else ()), sep="\\n", flush=True)
    return found
cgroup.joined = joined
with Sandbox(Policy()) as sandbox:
    sandbox.run("1")
    threading.Timer(.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
    sandbox.run("while True: pass")
"""


@pytest.mark.slow
@by_group
def test_a_killed_host_leaves_an_empty_group():
    for path in map(Path, ran(KILLED).stdout.split()):
        assert until(lambda path=path: not (path / "cgroup.procs").read_text(), 5)
        # It is younger than the ones that are removed.
        cgroup._sweep(path.parent)
        assert path.exists()
        assert cgroup._removed(path)


def test_delegated_groups(tmp_path):
    """A tree of version 2, as files: a group beside the host's own, where memory is counted."""
    own = tmp_path / "user/app/own"
    own.mkdir(parents=True)
    for place, passed in ((own, ""), (own.parent, "cpu memory io"), (own.parent.parent, "cpu")):
        place.joinpath("cgroup.subtree_control").write_text(passed)
        place.joinpath("cgroup.procs").write_text("")
    mount = f"30 23 0:26 / {tmp_path} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
    for at in ("/user/app/own", "/user/app"):
        nearest, *others = cgroup._of_mount(mount, ["1:name=systemd:/a", f"0::{at}"])
        assert nearest == cgroup._Place(own.parent, 2, frozenset({"memory", "cpu"}))
        assert others == [cgroup._Place(own.parent.parent, 2, frozenset({"cpu"}))]
    assert not [*cgroup._of_mount(mount.replace(" / ", " /elsewhere "), ["0::/user/app/own"])]
    made = cgroup._made_in(nearest, {"memory": 1 << 20, "cpu": 20, "pids": 5})
    assert made.controllers == {"memory", "cpu"} and made.path.parent == own.parent
    assert (made.path / "memory.max").read_text() == "1048576"
    assert (made.path / "memory.oom.group").read_text() == "1"
    assert (made.path / "cpu.max").read_text() == "20000 100000"
    (made.path / "memory.events").write_text("max 5\noom 2\noom_kill 3\noom_group_kill 1\n")
    assert cgroup.Cgroup([made]).kills() == 3


def test_groups_of_the_first_version(tmp_path):
    """Each tree counts something: a group has a directory in each that is needed."""
    groups = ["9:cpu,cpuacct:/", "8:pids:/own", "7:name=systemd:/"]
    found = []
    for number, counts in enumerate(("cpu,cpuacct", "pids", "blkio")):
        place = tmp_path / counts / "own" if counts == "pids" else tmp_path / counts
        place.mkdir(parents=True)
        place.joinpath("cgroup.procs").write_text("")
        mount = f"{number} 2 0:2 / {tmp_path / counts} rw shared:4 - cgroup cgroup rw,{counts}"
        found += cgroup._of_mount(mount, groups)
    assert found == [
        cgroup._Place(tmp_path / "cpu,cpuacct", 1, frozenset({"cpu"})),
        cgroup._Place(tmp_path / "pids/own", 1, frozenset({"pids"})),
    ]
    cpu, pids = (cgroup._made_in(place, {"cpu": 50, "pids": 7}) for place in found)
    assert (cpu.path / "cpu.cfs_quota_us").read_text() == "50000"
    assert (cpu.path / "cpu.cfs_period_us").read_text() == "100000"
    assert (pids.path / "pids.max").read_text() == "7"
    assert cgroup._made_in(found[0], {"pids": 7}) is None


@pytest.mark.parametrize(
    ("status", "limit"),
    [(-signal.SIGKILL, "memory"), (1, "memory"), (-signal.SIGALRM, None), (-signal.SIGSEGV, None)],
)
def test_another_signal_is_not_told_as_memory(status, limit):
    """The kernel may count a process that it killed in the step before only now."""
    assert limit_of(status, Limits(), was_short=True) == limit


def test_processor_time_that_the_kernel_counts_apart_is_not_told_as_memory():
    """It kills by the ticks of its clock; what it tells is measured, and can be less by a third."""
    limits = Limits(cpu_seconds=1)
    assert limit_of(-signal.SIGKILL, limits, was_short=False, computed=1.3) == "cpu_seconds"
    assert limit_of(-signal.SIGKILL, limits, was_short=False, computed=0.5) == "memory"
