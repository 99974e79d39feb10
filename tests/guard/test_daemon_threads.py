"""A daemon thread may be in Python code that a check calls as the interpreter ends: before 3.14
CPython unwinds the thread then, and it is held instead."""

import signal
import sys

import programs
import pytest

MKDIR = 'sys.audit("os.mkdir", {}, 0, -1)'
# What a thread does over and over, and its guard: `slow` gives other threads their turn.
GUARDED = {
    "sleeping": ("time.sleep(0.001)", ""),
    "opening": ("os.close(os.open(fifo, os.O_RDONLY))", ""),
    "looking up": ("socket.getaddrinfo('localhost', 80)", ""),
    "writing": ("file.write(b'x'); file.flush()", ""),
    "being denied": ("os.mkdir(out + '/a')", ""),
    "before_deny": (MKDIR.format("'/'"), "before_deny=slow"),
    "on_denied": (MKDIR.format("'/'"), "on_denied=slow"),
    "on_violation": (MKDIR.format("'/'"), "on_violation=slow"),
    "a repr": (MKDIR.format("Slow()"), ""),
    "a path": (MKDIR.format("Path()"), ""),
    "a hook": ('sys.audit("fastaudit_rs.test")', ""),
}
WORK = {
    "a named pipe": "os.mkfifo(Path())",
    "a node": "os.mknod(Path())",
    "a history file": "readline.write_history_file(Path())",
    "cutting a file": "os.truncate(Path(), 0)",
    "a database": "sqlite3.connect(Pure())",
    "starting a program": "subprocess.Popen(Path())",
    "spawning": "os.posix_spawn(Path(), ['x'], {})",
    "file actions": "os.posix_spawn('/bin/true', ['x'], {}, file_actions=[(0, 1, Path(), 0, 0)])",
    "comparing": "later == Slow()",
    "hashing": "hash(slow_later)",
    "showing": "repr(slow_later)",
    "a thread": "_thread.start_new_thread(Slow(), ())",
    "an executor": "queue.put(Slow())",
    "a native call": "slow_callable()",
    "the name of a call": "sys.audit('fastaudit.call', 'x', Slow())",
    "a host's name": "socket.getaddrinfo('ä.example', 80)",
}

PROGRAM = """
import _thread, os, sys, threading, time
import concurrent.futures, signal, socket, sqlite3, subprocess
try:
    import readline
except ImportError:
    pass
from pathlib import PurePosixPath
from fastaudit_rs import Network, Policy
import _queue

out = {out!r}
queue = _queue.SimpleQueue()

def slow(*args):
    time.sleep(0.001)

class Path:
    def __fspath__(self):
        slow()
        return out + "/a"

class Pure(PurePosixPath):
    def __fspath__(self):
        slow()
        return out + "/a"

class Slow:
    fn = None
    def __call__(self, *args):
        pass
    def __eq__(self, other):
        slow()
        return False
    def __hash__(self):
        slow()
        return 1
    def __str__(self):
        slow()
        return "slow"
    def __repr__(self):
        slow()
        return "slow"
    def __getattribute__(self, name):
        if name in ("__self__", "__name__", "__module__", "__qualname__", "fn", "task"):
            slow()
        return object.__getattribute__(self, name)

def run():
    while True:
        try:
            {work}
        except (OSError, RuntimeError, TypeError, NameError, ValueError):
            slow()

sys.addaudithook(lambda event, args: slow() if event == "fastaudit_rs.test" else None)
fifo = f"fifo-{{os.getpid()}}"
os.mkfifo(fifo)
file = open("file", "wb")
policy = Policy(
    write=["."], threads="inherit", max_bytes="1G", commands=["true"], network=Network(hosts=[])
)
with policy.guard(monitor_calls=False)():
    signal.signal(signal.SIGUSR1, int)
    signal.signal(signal.SIGUSR2, Slow())
with policy.guard(monitor_calls=False)():
    pass
later, slow_later = signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGUSR2)

class Deep(Slow):
    __call__ = Slow()
slow_callable = Deep()
options = dict({options})
policy = policy.replace(on_violation=options.pop("on_violation", "raise"))
with policy.guard(**{{"monitor_calls": False, **options}})():
    for _ in range(4):
        threading.Thread(target=run, daemon=True).start()
    time.sleep(0.05)
"""


HOST_WORK = {
    "a tool": "policy.tool(typed)",
    "its signature": "tool.__signature__",
    "its error": "call(tool)",
    "a decorated function": "policy.guard(monitor_calls=False)()(typed)()",
    "a denial's values": "denial().to_dict()",
    "an explanation": "str(policy.explain('os.mkdir', '/none/such', 0, -1))",
    "a wrong argument": "call(Policy, wirte=['.'])",
    "a question": "policy.guard(on_ask=no, monitor_calls=False)()(remove)()",
}

HOST = """
import logging, os, sys, threading, time
from fastaudit_rs import AuditDenied, Policy

sys.setswitchinterval(1e-6)

class Refused(Exception):
    def __str__(self):
        return str(self.args)

def raises():
    raise Refused(1)

def typed(one: "list[int]" = [1], *more: dict, **names: str) -> "tuple[int, ...]":
    return (1,)

def call(function, **names):
    try:
        function(**names)
    except Exception:
        pass

def remove():
    try:
        os.mkdir("/none/such")
    except AuditDenied as denied:
        return denied

def no(denied):
    return str(denied) == ""

def denial():
    with policy.guard(monitor_calls=False)():
        return remove()

policy = Policy()
tool = policy.tool(raises)
denial()
{work}
turns = [0]

def run():
    while True:
        {work}
        turns[0] += 1

for _ in range(4):
    threading.Thread(target=run, daemon=True).start()
while turns[0] < 20:
    time.sleep(0.001)
"""


def end(program):
    """Three times, as a process with daemon threads does.

    About one in 200 such processes crashes on CPython 3.10, with this package or without: a thread
    reads the interpreter that `Py_Finalize` has freed. One such crash is made up for.
    """
    tries, may_crash = 3, sys.version_info < (3, 11)
    while tries:
        done = programs.ran(program)
        if may_crash and (done.returncode, done.stderr) == (-signal.SIGSEGV, ""):
            may_crash = False
            continue
        assert (done.returncode, done.stderr) == (0, "")
        tries -= 1


@pytest.mark.parametrize(
    "work", [*GUARDED, *(pytest.param(work, marks=pytest.mark.slow) for work in WORK)]
)
def test_they_are_held(places, work):
    monitor = work == "a native call"
    default = (WORK.get(work), f"monitor_calls={monitor}")
    work, options = GUARDED.get(work, default)
    end(PROGRAM.format(out=places.out, work=work, options=options))


@pytest.mark.parametrize(
    "work",
    [
        next(iter(HOST_WORK)),
        *(pytest.param(work, marks=pytest.mark.slow) for work in [*HOST_WORK][1:]),
    ],
)
def test_those_of_the_host_are_held(work):
    end(HOST.format(work=HOST_WORK[work]))
