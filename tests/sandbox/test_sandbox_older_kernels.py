"""Older versions of Landlock: what they lack is switched off here, and held in other ways."""

import contextlib
import os
import socket
import subprocess
import sys
import threading

import pytest
from egress_servers import CHANGING, served
from sandboxes import LOOSE, unguarded

from fastaudit_rs import Network, Sandbox, _landlock
from fastaudit_rs._native import _hold_sockets

pytest.importorskip("sandlock")
from fastaudit_rs.sandbox.host import older, process

#: What each version is the first to hold, by the names of `sandlock`.
FIRST = {
    3: ["FS_TRUNCATE"],
    4: ["NET_TCP"],
    5: ["FS_IOCTL_DEV"],
    6: ["SIGNAL_SCOPE", "ABSTRACT_UNIX_SOCKET_SCOPE"],
}

#: Says by a name whether a call of the C library succeeds.
BEGIN = """
import ctypes, os, socket, sys
c = ctypes.CDLL(None, use_errno=True)
told = {}
def call(name, function, *args):
    told[name] = getattr(c, function)(*args) >= 0
def attempt(name, function):
    try: function()
    except OSError: told[name] = False
    else: told[name] = True
"""
END = "\nopen('told', 'w').write(repr(told))"


@pytest.fixture(params=[1, 2, 3, 4, 5], ids="ABI {}".format)
def landlock(request, monkeypatch):
    if request.param > _landlock.version():
        pytest.skip("the kernel has an older one itself")
    # The first of these is an allowance, which `sandlock` does not switch off.
    lacking = [name for first in range(max(request.param + 1, 3), 7) for name in FIRST[first]]

    def options(kernel):
        return {"disable": [int(kernel.Protection[name]) for name in lacking]}

    monkeypatch.setattr(_landlock, "version", lambda: request.param)
    monkeypatch.setattr(older, "options", options)
    return request.param


def told(sandbox, program, *args):
    unguarded(sandbox, BEGIN + program + END, *args)
    return eval((sandbox.directory / "told").read_text())


def test_files(landlock, tmp_path):
    (tmp_path / "kept").write_text("kept")
    program = """
out, inside = sys.argv[1].encode(), b"inside"
open(inside, "w").write("inside")
os.mkdir("below")
call("truncate", "truncate", out, ctypes.c_long(1))
for name, access in (("read", os.O_RDONLY), ("none", 3), ("write", os.O_WRONLY)):
    call(name, "open", out, access | os.O_TRUNC)
call("read alone", "open", out, os.O_RDONLY)
call("make", "open", out + b"2", os.O_CREAT | os.O_WRONLY, 0o600)
call("remove", "unlink", out)
call("own truncate", "truncate", inside, ctypes.c_long(3))
call("own write", "open", inside, os.O_RDWR | os.O_TRUNC)
call("own rename", "rename", inside, b"below/inside")
"""
    with Sandbox(LOOSE.replace(read=[tmp_path], write=["."])) as sandbox:
        allowed = {name for name, done in told(sandbox, program, tmp_path / "kept").items() if done}
    assert allowed == {"read alone", "own truncate", "own write", "own rename"}
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "kept"


def test_truncating_is_limited_as_writing_is(landlock):
    program = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
open("a", "w").close()
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
attempt("less", lambda: os.truncate("a", 1000))
attempt("more", lambda: os.truncate("a", 1001))
"""
    with Sandbox(LOOSE.replace(write=["."])) as sandbox:
        assert told(sandbox, program) == {"less": True, "more": False}


def test_signals(landlock):
    program = """
import signal
other = int(sys.argv[1])
call("kill", "kill", other, 0)
call("thread", "syscall", 200, other, 0)
call("thread of", "syscall", 234, other, other, 0)
call("queue", "syscall", 129, other, 0, ctypes.create_string_buffer(128))
call("by a descriptor", "syscall", 424, os.pidfd_open(os.getppid()), 0, None, 0)
call("its group", "kill", -other, 0)
call("owner", "fcntl", 0, 8, other)
call("parent", "kill", os.getppid(), 0)
call("own", "kill", os.getpid(), 0)
call("none", "kill", 0x3fffffff, 0)
# The process that started this one gets the signal to all too, and must outlive it.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])
children = []
for _ in range(2):
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os._exit(42 if signal.sigtimedwait([signal.SIGCONT], 60) else 1)
    children.append(child)
os.kill(children[0], 9)
told["child"] = os.waitpid(children[0], 0)[1] == 9
call("all", "kill", -1, signal.SIGCONT)
told["other child"] = os.waitstatus_to_exitcode(os.waitpid(children[1], 0)[1]) == 42
"""
    victim = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        with Sandbox(LOOSE.replace(write=["."], network=False)) as sandbox:
            done = told(sandbox, program, victim.pid)
            assert sandbox.run("42", value=True).value == 42
        reached = {name for name, is_sent in done.items() if is_sent}
        assert reached == {"own", "parent", "child", "other child", "all"}
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_a_signal_reaches_processes_of_the_sandbox_alone():
    """The host decides so itself, whatever the kernel holds besides."""
    first = subprocess.Popen(
        [sys.executable, "-c", "import os, time\nif not os.fork(): os.fork()\ntime.sleep(60)"]
    )
    other = subprocess.Popen(["sleep", "60"])
    try:
        signals = older.Signals()

        def answer(caller, name, *args):
            return signals.answer(name, Asked(caller, args))

        assert answer(first.pid, "kill", first.pid, 0) == 1
        signals.first = first.pid
        child = waited_child(first.pid)
        below = waited_child(child)
        for target, expected in ((below, None), (child, None), (first.pid, 1), (other.pid, 1)):
            assert answer(child, "kill", target, 0) == expected
            assert answer(child, "tgkill", target, target, 0) == expected
            assert answer(child, "rt_sigqueueinfo", target, 0) == expected
        assert answer(first.pid, "kill", child, 0) is None
        assert answer(child, "tgkill", child, other.pid, 0) == 1
        assert answer(child, "kill", 0x3FFFFFFF, 0) == 3
        # All are in the group of this process; one of another session is in none of theirs.
        assert answer(child, "kill", 0, 0) == 0
        assert answer(child, "kill", -other.pid & 0xFFFFFFFF, 0) == 3
        assert answer(child, "kill", 0xFFFFFFFF, 9) == 0
        assert os.waitpid(-1, os.WNOHANG) == (0, 0) and other.poll() is None
    finally:
        for process in (first, other):
            process.kill()
            process.wait()


class Asked:
    def __init__(self, pid, args):
        self.pid, self.args = pid, [*args, 0, 0, 0]


def waited_child(process):
    from waiting import until

    found = []

    def read():
        with open(f"/proc/{process}/task/{process}/children") as file:
            found[:] = map(int, file.read().split())
        return found

    assert until(read, 10)
    return found[0]


def test_devices(landlock):
    program = """
import fcntl, termios
reading, writing = os.pipe()
attempt("pipe", lambda: fcntl.ioctl(reading, termios.FIONREAD, b"1234"))
attempt("socket", lambda: fcntl.ioctl(socket.socketpair()[0], termios.FIONREAD, b"1234"))
for number, name in ((0x5412, "TIOCSTI"), (0x541C, "TIOCLINUX"), (0x125D, "BLKROSET")):
    attempt(name, lambda: fcntl.ioctl(os.open("/dev/null", os.O_RDONLY), number, b"1234"))
told["terminal"] = os.isatty(reading)
"""
    with Sandbox(LOOSE.replace(write=["."])) as sandbox:
        done = told(sandbox, program)
    reached = {"pipe", "socket"}
    assert {name for name, allowed in done.items() if allowed} == reached


def test_the_network(landlock):
    abstract = socket.socket(socket.AF_UNIX)
    names = [f"fastaudit-older-{os.getpid()}-{kind}" for kind in ("stream", "datagrams")]
    abstract.bind(f"\0{names[0]}")
    abstract.listen()
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagrams.bind(f"\0{names[1]}")
    named, other = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    ports = [one.getsockname()[1] for one in (named, other)]
    program = """
ports, (stream, datagrams) = list(map(int, sys.argv[1:3])), sys.argv[3:]
attempt("named", lambda: socket.create_connection(("127.0.0.1", ports[0])))
attempt("other", lambda: socket.create_connection(("127.0.0.1", ports[1])))
attempt("listen", lambda: socket.create_server(("127.0.0.1", 0)))
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0" + stream))
sender = lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
attempt("datagram", lambda: sender().sendto(b"a", "\\0" + datagrams))
attempt("connected datagram", lambda: sender().connect("\\0" + datagrams))
"""
    threading.Thread(target=named.accept, daemon=True).start()
    try:
        network = Network(hosts=[f"127.0.0.1:{ports[0]}"], listen=False)
        with Sandbox(LOOSE.replace(write=["."], network=network)) as sandbox:
            done = told(sandbox, program, *ports, *names)
        assert {name for name, allowed in done.items() if allowed} == {"named"}
        with Sandbox(LOOSE.replace(write=["."], network=False)) as sandbox:
            done = told(sandbox, program, *ports, *names)
        assert not any(done.values())
        with free_port() as port:
            network = Network(hosts=[], listen=[f"127.0.0.1:{port}"])
        ports = port, port ^ 1
        program = """
for name, port in zip(("named", "other"), map(int, sys.argv[1:])):
    attempt(name, lambda: socket.create_server(("127.0.0.1", port)))
"""
        with Sandbox(LOOSE.replace(write=["."], network=network)) as sandbox:
            done = told(sandbox, program, *ports)
        assert done == {"named": landlock >= 4, "other": False}
    finally:
        for one in (abstract, datagrams, named, other):
            one.close()


@pytest.mark.parametrize("network", [Network(hosts=[]), False], ids=["no hosts", "no network"])
def test_no_network_in_that_of_the_host(landlock, monkeypatch, network):
    """A sandbox of an ordinary user has none of its own."""

    def hold(roots, directory, _is_alone):
        _hold_sockets(roots, directory, False)

    monkeypatch.setattr(process, "_hold_sockets", hold)
    program = """
port = int(sys.argv[1])
attempt("tcp", lambda: socket.create_connection(("127.0.0.1", port)))
attempt("udp", lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"a", ("127.0.0.1", port)))
attempt("listen", lambda: socket.create_server(("127.0.0.1", 0)))
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with Sandbox(LOOSE.replace(write=["."], network=network)) as sandbox:
            done = told(sandbox, program, server.getsockname()[1])
        assert not any(done.values()), done


@contextlib.contextmanager
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        yield free.getsockname()[1]


def test_sessions(landlock):
    with Sandbox(LOOSE.replace(write=["."])) as sandbox, sandbox.session(timeout=5) as session:
        assert session.run("import os, signal\nx = 1\nx").value == 1
        assert session.run("while True: pass", timeout=0.3).killed_by == "wall_seconds"
        assert session.run("x = 2\nos.kill(os.getpid(), 9)").error.kind != ""
        session.undo()
        assert session.run("x").value == 1


def test_without_the_kernel_part(monkeypatch):
    monkeypatch.setattr(_landlock, "version", lambda: 5)
    with Sandbox(confine="audit") as sandbox, sandbox.session() as session:
        assert sandbox.run("42", value=True).value == 42
        assert session.run("43").value == 43


@pytest.mark.slow
@pytest.mark.parametrize(
    "network",
    [
        Network(hosts=["good.test"]),
        Network(hosts=["127.0.0.2"]),
        Network(block=["127.0.0.1"]),
        Network(hosts=[]),
        False,
    ],
    ids=["names", "addresses", "block", "none", "no network"],
)
def test_by_an_address_that_changes(landlock, network):
    """What code writes while the host decides has no effect."""
    pytest.importorskip("h11")
    with served() as site, Sandbox(LOOSE.replace(network=network)) as sandbox:
        unguarded(sandbox, CHANGING, site.port, int(socket.SOCK_STREAM), 0, check=bool(network))
        assert site.seen == []
