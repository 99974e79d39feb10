"""Unix sockets of the host, against system calls that no guard sees, judged by what it accepts."""

import contextlib
import json
import os
import selectors
import socket
import threading
import time

import promises
import pytest
from raw_code import told_outside
from users import directory_of

from fastaudit_rs import Network

pytestmark = [pytest.mark.slow, pytest.mark.holds("kernel", promises.UNIX)]


@pytest.fixture
def listening():
    """A directory with sockets of the host, and what tells those that got data since."""
    got, is_over = [], threading.Event()
    # A path that is short enough for a socket.
    with directory_of("root") as outside, contextlib.ExitStack() as stack:
        sockets = selectors.DefaultSelector()
        for name, kind in (("stream", 1), ("datagram", 2), ("sequence", 5)):
            for label, address in (
                (name, f"{outside}/{name}"),
                (f"@{name}", f"\0{outside}/{name}"),
            ):
                at = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
                at.bind(address)
                if kind != socket.SOCK_DGRAM:
                    at.listen()
                sockets.register(at, selectors.EVENT_READ, label)

        def answer():
            while not is_over.is_set():
                for key, _ in sockets.select(0.05):
                    is_datagram = key.fileobj.type == socket.SOCK_DGRAM
                    it = key.fileobj if is_datagram else key.fileobj.accept()[0]
                    if it.recv(9) == b"leaked":
                        got.append(key.data)
                    if not is_datagram:
                        it.close()

        def settled():
            time.sleep(0.2)
            found = sorted({*got})
            got.clear()
            return found

        thread = threading.Thread(target=answer)
        thread.start()
        yield outside, settled
        is_over.set()
        thread.join()


#: Connects and sends, in each way and to each of these places.
REACH = """
outside = sys.argv[1]
os.symlink(outside, "link")
os.symlink(f"{outside}/stream", "socket")
O_PATH = 0o10000000
directory = os.open(outside, O_PATH) if os.path.isdir(outside) else -1
def address(name):
    text = name if isinstance(name, bytes) else os.fsencode(name)
    return struct.pack("=H", 1) + text + (b"" if text[:1] == b"\\0" else b"\\0")
def made(kind):
    return call(41, 1, kind, 0)
def connected(kind, name):
    to, where = made(kind), address(name)
    if call(42, to, ctypes.create_string_buffer(where, len(where)), len(where)) == -1:
        return False
    return call(1, to, ctypes.create_string_buffer(b"leaked", 6), 6)
def by_descriptor(name):
    return f"/proc/self/fd/{os.open(f'{outside}/{name}', O_PATH)}"
bases = {
    "path": lambda name: f"{outside}/{name}",
    "dots": lambda name: f"{os.getcwd()}/{'../' * 12}{outside}/{name}",
    "link": lambda name: f"link/{name}",
    "root": lambda name: f"/proc/self/root{outside}/{name}",
    "directory": lambda name: f"/proc/self/fd/{directory}/{name}",
    "descriptor": by_descriptor,
    "relative": lambda name: f"{'../' * 12}{outside}/{name}",
    "abstract": lambda name: b"\\0" + os.fsencode(f"{outside}/{name}"),
}
for base, place in bases.items():
    attempt(f"{base}: connect", lambda: connected(1, place("stream")))
    attempt(f"{base}: connect datagrams", lambda: connected(2, place("datagram")))
    attempt(f"{base}: connect packets", lambda: connected(5, place("sequence")))
    for number, name in ((44, "sendto"), (46, "sendmsg"), (307, "sendmmsg")):
        attempt(f"{base}: {name}", lambda: sent(number, made(2), address(place("datagram"))))
attempt("link to it: connect", lambda: connected(1, "socket"))
os.chdir("/")
attempt("from the root: connect", lambda: connected(1, f"{outside}/stream".lstrip("/")))
"""

#: The sockets that the attempts reach without a sandbox.
ALL = ["@datagram", "@sequence", "@stream", "datagram", "sequence", "stream"]


@pytest.fixture
def reached(raw, listening):
    """`reached(network)`: the attempts that passed in a sandbox, and the sockets that got data."""
    outside, settled = listening
    # Seven places and a name for each of six ways, and two more of one.
    assert len(told_outside(REACH, outside)) == 50
    assert settled() == ALL
    return lambda network: (raw(REACH, outside, network=network).told, settled())


@pytest.mark.parametrize(
    "network",
    [False, True, Network(), Network(hosts=["127.0.0.1"], unix=["/nowhere"], listen=True)],
)
def test_none_of_the_host(reached, network):
    assert reached(network) == ([], [])


def test_no_others_than_the_named_one(reached, listening):
    """By its full path alone, however it is written."""
    passed, found = reached(Network(hosts=[], unix=[f"{listening[0]}/stream"]))
    assert "path: connect" in passed and found == ["stream"], (passed, found)


#: The descriptors that code has.
OWN = """
own = {}
for name in os.listdir("/proc/self/fd"):
    try:
        own[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        # The one that listed them.
        pass
answer = own
"""
GUARDED = f"import json, os\n{OWN}print(json.dumps(own))"

#: Takes descriptors of the host, of the process that waits for work, and of the first one.
TAKE = """
parent = open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1]
def taken(process, number):
    handle = call(434, process, 0)
    return call(438, handle, number, 0) if handle >= 0 else -1
for process in (int(sys.argv[1]), int(parent), 1):
    for number in range(40):
        attempt(f"pidfd_getfd {process}", lambda: taken(process, number))
        attempt(f"open {process}", lambda: os.open(f"/proc/{process}/fd/{number}", os.O_RDONLY))
"""


def test_no_descriptors_of_the_host(raw):
    """Of the host a run has pipes alone: its streams and its report. Two are its own process's."""
    with open("/etc/passwd") as kept, socket.socket() as other:
        for each in (kept, other):
            os.set_inheritable(each.fileno(), True)
        ran = raw(OWN)
        guarded = ran.sandbox.run(GUARDED).stdout
    for own in (ran.told, json.loads(guarded)):
        others = [to for to in own.values() if not to.startswith("pipe:")]
        assert len(own) - len(others) in (3, 4), ran
        for to in others:
            assert to == "anon_inode:[landlock-ruleset]" or to.endswith("/children"), ran


def test_no_descriptors_of_other_processes(raw):
    assert raw(TAKE, os.getpid()).told == []
