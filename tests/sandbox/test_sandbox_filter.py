"""System calls that the kernel denies to unguarded code in a sandbox."""

import contextlib
import os
import resource
import socket
import subprocess
import threading
from pathlib import Path

import promises
import pytest
from raw_code import on_x86_64
from sandboxes import of, running

from fastaudit_rs import Network

#: Ways to send to a server, each on a connection of its own, by its name.
SEND = """
address = ("127.0.0.1", int(sys.argv[1]))
raw = struct.pack("=H", socket.AF_INET) + struct.pack("!H4B8x", address[1], 127, 0, 0, 1)
def connected(protocol, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_STREAM, protocol) as to:
        to.connect(address if family == socket.AF_INET else ("::ffff:127.0.0.1", address[1]))
        return to.send(b"leaked")
def fast(number):
    with socket.socket() as to:
        return sent(number, to.fileno(), raw, 0x20000000)
def lazy():
    with socket.socket() as to:
        to.setsockopt(socket.IPPROTO_TCP, 30, 1)
        to.connect(address)
        return to.send(b"leaked")
attempt("tcp", lambda: connected(0))
attempt("tcp6", lambda: connected(0, socket.AF_INET6))
attempt("mptcp", lambda: connected(262))
attempt("mptcp6", lambda: connected(262, socket.AF_INET6))
attempt("smc", lambda: connected(256))
attempt("sendto", lambda: fast(44))
attempt("sendmsg", lambda: fast(46))
attempt("sendmmsg", lambda: fast(307))
attempt("setsockopt", lazy)
def udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to:
        return to.sendto(b"leaked", address)
attempt("udp", udp)
"""

#: The same, to listen.
LISTEN = """
def listened(protocol, port):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as at:
        if port is not None:
            at.bind(("127.0.0.1", port))
        at.listen(1)
        return at.getsockname()[1] != 0
for protocol in (0, 262):
    for port in (None, 0):
        attempt(f"{protocol} {port}", lambda: listened(protocol, port))
for family in (16, 17, 30, 38, 40, 43, 44):
    attempt(f"family {family}", lambda: call(41, family, 2, 0))
"""


@contextlib.contextmanager
def server():
    """A server: its port, and the connections and texts that it accepted."""
    accepted = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.settimeout(2)
                        accepted.append(connection.recv(100))

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield port, accepted
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.holds("kernel", promises.DATA)
@pytest.mark.parametrize("network", [False, Network(hosts=["127.0.0.9"])])
def test_no_data_leaves(raw, network):
    with server() as (port, accepted):
        ran = raw(SEND, port, network=network)
    assert (ran.told, accepted) == ([], []), ran


@pytest.mark.parametrize("network", [True, Network(hosts=["127.0.0.1"])])
def test_allowed_data_leave(raw, network):
    """The attempts of the test before would pass."""
    with server() as (port, accepted):
        ran = raw(SEND, port, network=network)
    assert {"tcp", "udp"} <= set(ran.told) and b"leaked" in accepted, ran
    assert ("mptcp" in ran.told) <= (network is True)


@pytest.mark.slow
@pytest.mark.holds("kernel", promises.LISTEN)
@pytest.mark.parametrize("network", [False, Network(hosts=["127.0.0.1"], lookup=False)])
def test_nothing_listens(raw, network):
    passed = set(raw(LISTEN, network=network).told)
    assert passed <= (set() if network is False else {"family 16"})


@pytest.mark.slow
def test_some_may_listen(raw):
    assert {"0 None", "0 0"} <= set(raw(LISTEN, network=Network(listen=True)).told)


@pytest.mark.slow
def test_unix_sockets_stay(raw):
    code = """
import asyncio
here = os.path.abspath("here")
async def main():
    server = await asyncio.start_unix_server(lambda reader, writer: writer.close(), here)
    reader, writer = await asyncio.open_unix_connection(here)
    read = await reader.read()
    writer.close()
    return read == b""
a, b = socket.socketpair()
a.send(b"x")
answer = [b.recv(1) == b"x", asyncio.run(main())]
"""
    assert raw(code).told == [True, True]


#: Changes of another process, by each system call that makes any.
CHANGE = """
pid = int(sys.argv[1])
for resource, most in ((7, 200), (0, 1000)):
    limits = (ctypes.c_ulong * 2)(most, most)
    attempt("prlimit64", lambda: call(302, pid, resource, limits, 0))
mask = ctypes.create_string_buffer(b"\\1", 128)
attempt("sched_setaffinity", lambda: call(203, pid, 128, mask))
parameter = (ctypes.c_int * 1)(0)
attempt("sched_setscheduler", lambda: call(144, pid, 5, parameter))
attempt("sched_setparam", lambda: call(142, pid, parameter))
attributes = ctypes.create_string_buffer(struct.pack("=IIQiIQQQ", 48, 5, 0, 19, 0, 0, 0, 0))
attempt("sched_setattr", lambda: call(314, pid, attributes, 0))
attempt("setpriority", lambda: call(141, 0, pid, 19))
attempt("ioprio_set", lambda: call(251, 1, pid, 3 << 13))
# Groups and users that do not exist: another error would say that the call was not denied.
for number, which in ((141, 1), (141, 2), (251, 2), (251, 3)):
    attempt(number, lambda: call(number, which, 54321, 0) != -1 or ctypes.get_errno() != 1)
# Of its own it may make less.
own = (ctypes.c_ulong * 2)(50, 50)
assert call(302, 0, 7, own, 0) == 0
assert call(203, 0, 128, mask) == call(141, 0, 0, 19) == 0
"""


def state():
    """What another process may change of this one."""
    limits = [resource.prlimit(0, most) for most in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU)]
    io = subprocess.check_output(["ionice", "-p", str(os.getpid())])
    return limits, os.sched_getaffinity(0), os.getpriority(0, 0), os.sched_getscheduler(0), io


@pytest.mark.slow
@pytest.mark.holds("kernel", promises.OTHERS)
def test_other_processes_are_left_alone(raw):
    before = state()
    ran = raw(CHANGE, os.getpid())
    assert (ran.told, state()) == ([], before), ran


@pytest.mark.holds("kernel", promises.POWER)
def test_no_privileges(raw):
    """Judged by the process that waits for work too: the others are its descendants."""
    ran = raw('answer = open("/proc/self/status").read()')
    others = [Path(f"/proc/{number}/status") for number in running(of(ran.sandbox))]
    assert others
    names = ["CapInh", "CapPrm", "CapEff", "CapAmb", *(["CapBnd"] if os.geteuid() == 0 else [])]
    for told in (ran.told, *(status.read_text() for status in others)):
        status = dict(line.split(":\t") for line in told.splitlines() if ":\t" in line)
        assert {int(status[name], 16) for name in names} == {0}, status
        assert status["NoNewPrivs"] == "1"


@pytest.mark.holds("kernel", promises.POWER)
def test_no_devices(raw):
    """A named pipe is not one."""
    code = """
here = ctypes.create_string_buffer(b"made")
for kind, device in ((0o020000, 0x10b), (0o060000, 0x10b), (0o020000, 0)):
    attempt("mknod", lambda: call(133, here, kind | 0o666, device))
    attempt("mknodat", lambda: call(259, -100, here, kind | 0o666, device))
attempt("fifo", lambda: call(133, here, 0o010666, 0))
"""
    assert raw(code).told == ["fifo"]


@on_x86_64
@pytest.mark.holds("kernel", promises.WAYS)
@pytest.mark.parametrize("number", [0x40000000 + 41, 0x40000000 + 518])
def test_other_numbers_are_no_way_around(raw, number):
    """The numbers of x32, and the 32-bit way to call: `socket` would be 359 there."""
    code = f"""
import mmap, signal
def ended(act):
    child = os.fork()
    if not child:
        os._exit(0 if act() >= 0 else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
def old_way():
    memory = mmap.mmap(-1, 4096, prot=7)
    # mov eax, 359; mov ebx, 2; mov ecx, 1; xor edx, edx; int 0x80; ret
    memory.write(bytes.fromhex("53b867010000bb02000000b90100000031d2cd805bc3"))
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))()
answer = [ended(lambda: call({number}, 2, 1, 0)), ended(old_way)]
"""
    x32, old = raw(code).told
    assert x32 != 0 and old == -31


@pytest.mark.holds("kernel", promises.WAYS)
def test_no_io_uring(raw):
    code = "answer = call(425, 4, ctypes.create_string_buffer(120))"
    assert raw(code).told == -1
