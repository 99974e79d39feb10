"""The limits of a sandbox, against system calls and machine code that no guard sees.

The host watches from outside.
"""

import os
from typing import Any, NamedTuple

import promises
import pytest
from programs import SLOWER
from raw_code import on_x86_64
from watched import Watched

from fastaudit_rs.results import Result
from fastaudit_rs.sandbox.host import cgroup

pytestmark = [pytest.mark.slow, on_x86_64]

#: Machine code, and tasks that run it on stacks of their own; and time for the host to look.
MACHINE = """
import mmap, signal, time
def wait_for_host(seconds):
    time.sleep(seconds * SLOWER)
kept = []
def memory(size, data=b"", protection=3):
    kept.append(mmap.mmap(-1, size, prot=protection))
    kept[-1].write(data)
    return ctypes.addressof(ctypes.c_char.from_buffer(kept[-1]))
def machine_code(text):
    return memory(4096, bytes.fromhex(text), 7)
SPIN = machine_code("ebfe")
# mov eax, 34; syscall; jmp back: pause(2) for ever
PAUSE = machine_code("b8220000000f05ebf7")
def stack(code):
    at = memory(1 << 14)
    # The system call returns to the code.
    ctypes.c_ulong.from_address(at + (1 << 14) - 64).value = code
    return at, at + (1 << 14) - 64
SIGCHLD, VM, PARENT = 17, 0x100, 0x8000
# CLONE_FS, CLONE_FILES, CLONE_SIGHAND, CLONE_THREAD and CLONE_SYSVSEM with it.
THREAD = VM | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000
def clone(flags, code=PAUSE):
    return call(56, flags, stack(code)[1], 0, 0, 0)
def clone3(flags, end, code=PAUSE):
    at, top = stack(code)
    return call(435, (ctypes.c_uint64 * 11)(flags, 0, 0, 0, end, at, top - at), 88)
def copied(number, *arguments, code=PAUSE, alone=False):
    child = call(number, *arguments)
    if child == 0:
        if alone:
            call(112)
        ctypes.CFUNCTYPE(None)(code)()
    return child
def told(value):
    print(json.dumps(value), flush=True)
"""


#: In a run, and in a session, whose process is a copy with limits of its own.
in_both = pytest.mark.parametrize("in_session", [False, True], ids=["run", "session"])


class Seen(NamedTuple):
    """What the host saw of raw code that ran under limits, and who holds these."""

    told: Any
    ran: Result
    rings: dict[str, str]
    most: dict[str, float]


@pytest.fixture
def watched(raw, monkeypatch):
    """`watched(code, *args, groups, in_session, **limits)`: what the host saw of raw code."""

    def run(code, *args, groups=True, in_session=False, **limits):
        if not groups:
            monkeypatch.setattr(cgroup, "made", lambda limits: None)
            monkeypatch.setattr(cgroup, "are_there", lambda controller="memory": False)
        watching = Watched()
        told, ran, sandbox = raw(
            f"SLOWER = {SLOWER}{MACHINE}{code}", *args, limits=limits, in_session=in_session
        )
        return Seen(told, ran, sandbox.explain(), watching.told())

    return run


def counted(controller):
    if not cgroup.are_there(controller):
        pytest.skip("this user can make no control groups here")


#: Spins in machine code until it is ended.
COMPUTE = """
how, cpu = sys.argv[1], 0
attempt("prlimit64", lambda: call(302, 0, cpu, (ctypes.c_ulong * 2)(900, 900), 0))
attempt("setrlimit", lambda: call(160, cpu, (ctypes.c_ulong * 2)(900, 900)))
told(passed)
if how == "signals":
    # It is ended all the same, a second later.
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
if how == "threads":
    for _ in range(3):
        assert clone(THREAD, SPIN) > 0
ctypes.CFUNCTYPE(None)(SPIN)()
"""


@pytest.mark.holds("kernel", promises.CPU)
@pytest.mark.parametrize("how", ["plain", "threads", "signals"])
def test_cpu_seconds(watched, how):
    seen = watched(COMPUTE, how, cpu_seconds=1)
    assert seen.told == [], seen
    # The status of a program that a signal ended.
    ended_by = {"signals": -9}.get(how, -24)
    assert (seen.ran.returncode, seen.ran.killed_by) == (ended_by & 0xFF, None), seen


#: Computes for a while, with threads, processes and sessions of its own.
SHARE = """
for _ in range(2):
    assert clone(THREAD, SPIN) > 0 and copied(57, code=SPIN) > 0
    assert copied(57, code=SPIN, alone=True) > 0
# One that would go on by itself if it were stopped.
signal.signal(signal.SIGCONT, lambda *_: None)
event, timer = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0), (ctypes.c_int * 1)()
assert call(222, 1, event, timer) == 0
assert call(223, timer[0], 0, (ctypes.c_long * 4)(0, 1000000, 0, 1000000), 0) == 0
end = time.monotonic() + 1.5
while time.monotonic() < end:
    pass
told(True)
os._exit(0)
"""


@pytest.mark.holds("kernel", promises.SHARE)
@in_both
def test_cpu_percent(watched, in_session):
    counted("cpu")
    seen = watched(SHARE, in_session=in_session, cpu_percent=30)
    assert seen.told and seen.rings["cpu_percent"] == "kernel"
    assert seen.most["cores"] < 0.42, seen


@pytest.mark.holds("host", promises.SHARE)
def test_cpu_percent_without_groups(watched):
    seen = watched(SHARE, groups=False, cpu_percent=30)
    assert seen.told and seen.rings["cpu_percent"] == "host, each core by itself"
    # It takes a while to stop them all.
    assert seen.most["cores"] < 0.7 * (os.cpu_count() or 1), seen


#: Starts as many as it can in one way, 2,000 at most.
START = """
# A chain of 200 processes, each of which waits in vfork(2) for the next one:
# mov r12, 200; dec r12; jz pause; mov eax, 58; syscall; test eax, eax; jz back to dec; pause
CHAIN = machine_code("49c7c4c8000000" "49ffcc740bb83a0000000f0585c074f0" "b8220000000f05ebf7")
def after_a_wait():
    # A wait for a child that there is not.
    call(61, 999999, 0, 0, 0)
    call(247, 1, 999999, 0, 4, 0)
    return copied(57)
ways = {
    "fork": lambda: copied(57),
    "fork after a wait": after_a_wait,
    "clone": lambda: copied(56, SIGCHLD, 0, 0, 0, 0),
    "clone alone": lambda: copied(56, SIGCHLD, 0, 0, 0, 0, alone=True),
    "clone without a signal": lambda: clone(VM),
    "clone beside": lambda: clone(SIGCHLD | VM | PARENT),
    "clone3": lambda: clone3(VM, SIGCHLD),
    "clone3 beside": lambda: clone3(VM | PARENT, 0),
    "vfork": lambda: clone(SIGCHLD | VM, CHAIN),
    "threads": lambda: clone(THREAD),
    "threads of clone3": lambda: clone3(THREAD, 0),
}
way, most = ways[sys.argv[1]], int(sys.argv[2])
started, error = 0, 0
while started < most:
    if way() == -1:
        error = ctypes.get_errno()
        break
    started += 1
wait_for_host(0.2)
told([started, error])
os._exit(0)
"""

FORKS = ["fork", "fork after a wait", "clone", "clone alone", "clone without a signal"]
FORKS += ["clone beside", "clone3", "clone3 beside", "vfork"]


@pytest.mark.holds("kernel", promises.PROCESSES)
@pytest.mark.parametrize("way", FORKS)
@in_both
def test_processes(watched, way, in_session):
    """Twelve, and those that wait for work: for a session there is one more."""
    seen = watched(START, way, 100, in_session=in_session, processes=12)
    _, error = seen.told
    # EAGAIN, or ENOSYS: the C library takes another way.
    assert error in (11, 38), seen
    assert seen.most["processes"] <= 13 + in_session, seen
    # It is told a little later that one has ended.
    assert error == 38 or seen.most["processes"] > 6, seen


@pytest.mark.holds("kernel", promises.PROCESSES)
@pytest.mark.parametrize("way", ["threads", "threads of clone3"])
@in_both
def test_threads(watched, way, in_session):
    """Libraries start one for each core: only a great number is too much."""
    counted("pids")
    seen = watched(START, way, 1500, in_session=in_session, processes=12)
    count, error = seen.told
    assert error in (11, 38) and seen.most["tasks"] <= 13 + in_session + 1024, seen
    assert (count > 1000) == (error == 11)


#: Opens as many as it can in one way; tells the ways in which it could raise the limit, too.
OPEN = """
many, files = (ctypes.c_ulong * 2)(5000, 5000), 7
attempt("prlimit64", lambda: call(302, 0, files, many, 0))
attempt("setrlimit", lambda: call(160, files, many))
# Two system calls that name the place.
attempt("dup2", lambda: call(33, 0, 300))
attempt("dup3", lambda: call(292, 0, 300, 0))
attempt("fcntl", lambda: call(72, 0, 0, 300))
null, pair = ctypes.create_string_buffer(b"/dev/null"), (ctypes.c_int * 2)()
ways = {
    "open": lambda: call(2, null, 0, 0),
    "openat": lambda: call(257, -100, null, 0, 0),
    "openat2": lambda: call(437, -100, null, (ctypes.c_ulong * 3)(), 24),
    "dup": lambda: call(32, 0),
    "fcntl": lambda: call(72, 0, 0, 0),
    "pipe": lambda: call(22, pair),
    "pipe2": lambda: call(293, pair, 0),
    "socket": lambda: call(41, 1, 1, 0),
    "socketpair": lambda: call(53, 1, 1, 0, pair),
    "eventfd": lambda: call(290, 0, 0),
    "epoll_create1": lambda: call(291, 0),
    "timerfd_create": lambda: call(283, 1, 0),
    "memfd_create": lambda: call(319, null, 0),
    "pidfd_open": lambda: call(434, os.getpid(), 0),
    "inotify_init1": lambda: call(294, 0),
}
def error_of(act):
    # That of the last of as many as can be opened, by a process of its own.
    child = os.fork()
    if not child:
        # A copy has the same limit.
        attempt("prlimit64", lambda: call(302, 0, files, many, 0))
        count = 0
        while count < 500 and not passed and act() != -1:
            count += 1
        error = ctypes.get_errno()
        wait_for_host(0.06)
        os._exit(1 if passed or count == 500 else error)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
answer = [passed, {name: error_of(act) for name, act in ways.items()}]
"""


@pytest.mark.holds("kernel", promises.OPEN_FILES)
def test_open_files(watched):
    seen = watched(OPEN, open_files=40)
    raised, errors = seen.told
    assert raised == [], seen
    # EMFILE; some are not there at all: ENOSYS, or EPERM.
    assert set(errors.values()) <= {24, 38, 1} and errors["open"] == errors["dup"] == 24, errors
    assert seen.most["files"] == 40, seen


#: Uses 600 MB in one way, if it may.
USE = """
MB, way, used, at = 1 << 20, sys.argv[1], 0, 0
# The place of twenty more megabytes; 0 if there are none.
def grown():
    global at
    if way == "brk":
        end = call(12, 0)
        return end if call(12, end + 20 * MB) == end + 20 * MB else 0
    if way == "mremap" and at:
        at = call(25, at, used, used + 20 * MB, 1)
        return at + used if at != -1 else 0
    # MAP_SHARED or MAP_PRIVATE, with MAP_ANONYMOUS.
    at = call(9, 0, 20 * MB, 3, 0x21 if way == "shared" else 0x22, -1, 0)
    return max(at, 0)
for limit in (2, 9):
    # Data and the whole, if they are limited, up to infinity.
    call(302, 0, limit, (ctypes.c_long * 2)(-1, -1), 0)
# Files in memory that last: shmget, msgget, mq_open.
attempt("shmget", lambda: call(29, 0, 50 * MB, 0o1600))
attempt("msgget", lambda: call(68, 0, 0o1600))
attempt("mq_open", lambda: call(240, ctypes.create_string_buffer(b"name"), 0o102, 0o600, 0))
told(passed)
for _ in range(30):
    place = grown()
    if not place:
        break
    ctypes.memset(place, 1, 20 * MB)
    used += 20 * MB
    wait_for_host(0.04)
"""


@pytest.mark.holds("kernel", promises.MEMORY)
@pytest.mark.parametrize("groups", [True, False], ids=["groups", "no groups"])
@pytest.mark.parametrize("way", ["private", "shared", "brk", "mremap"])
@in_both
def test_memory(watched, way, groups, in_session):
    seen = watched(USE, way, groups=groups, in_session=in_session, memory="100M")
    assert seen.told == [], seen
    is_counted = seen.rings["memory"] == "kernel"
    # The process of a session goes on: the kernel ends the greatest one.
    assert seen.ran.killed_by == "memory" or in_session or not is_counted, seen
    # Without a group shared memory counts as reserved: it may be four times as much.
    most = 400 if way == "shared" and not is_counted else 100
    assert 40 < seen.most["megabytes"] < most + 40, seen
