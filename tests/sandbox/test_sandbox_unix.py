"""Unix sockets of the host, against system calls that no guard sees, judged by what it accepts."""

import json

import promises
import pytest
from raw_code import by_number, raw
from users import USERS, directory_of

pytestmark = [
    pytest.mark.once,
    pytest.mark.slow,
    pytest.mark.holds("kernel", promises.UNIX),
    pytest.mark.parametrize("user", USERS),
    by_number,
]

#: A host that listens, at paths and at names without a file, and that first shows that the attempts
#: reach it without a sandbox.
LISTENING = """
import threading
got = []
def serve(kind, name, address):
    at = socket.socket(socket.AF_UNIX, kind)
    at.bind(address)
    if kind != socket.SOCK_DGRAM:
        at.listen()
    def answer():
        while True:
            it = at if kind == socket.SOCK_DGRAM else at.accept()[0]
            got.append([name, it.recv(9).decode()])
    threading.Thread(target=answer, daemon=True).start()
import socket
for name, kind in (("stream", 1), ("datagram", 2), ("sequence", 5)):
    serve(kind, name, f"{given}/{name}")
    serve(kind, f"@{name}", f"\\0{given}/{name}")
def settled():
    time.sleep(0.2)
    found = sorted({name for name, said in got if said == "leaked"})
    got.clear()
    return found
done = subprocess.run([sys.executable, "-I", "-c", code, given], capture_output=True, text=True)
before = [json.loads(done.stdout), settled()]
"""

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


def reached(user, network):
    """The attempts that passed, and the sockets that got data, without a sandbox and in one."""
    with directory_of(user) as outside:
        ran = raw(
            user,
            REACH,
            outside,
            network.replace("OUTSIDE", outside),
            before=LISTENING,
            after="after = settled()",
        )
    passed, found = ran["before"]
    # Seven places and a name for each of six ways, and two more of one.
    assert (len(passed), found) == (50, ALL), ran
    return ran["told"], ran["after"]


@pytest.mark.parametrize(
    "network",
    ["False", "True", "Network()", "Network(hosts=['127.0.0.1'], unix=['/nowhere'], listen=True)"],
)
def test_none_of_the_host(user, network):
    assert reached(user, network) == ([], [])


def test_no_others_than_the_named_one(user):
    """By its full path alone, however it is written."""
    passed, found = reached(user, "Network(hosts=[], unix=['OUTSIDE/stream'])")
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


def test_no_descriptors_of_the_host(user):
    """Of the host a run has pipes alone: its streams and its report. Two are its own process's."""
    before = """
        kept = [open("/etc/passwd"), *os.pipe()]
        for each in kept:
            os.set_inheritable(each if isinstance(each, int) else each.fileno(), True)
    """
    after = f"after = sandbox.run({GUARDED!r}).stdout"
    ran = raw(user, OWN, before=before, after=after)
    for own in (ran["told"], json.loads(ran["after"])):
        others = [to for to in own.values() if not to.startswith("pipe:")]
        assert len(own) - len(others) in (3, 4), ran
        for to in others:
            assert to == "anon_inode:[landlock-ruleset]" or to.endswith("/children"), ran


def test_no_descriptors_of_other_processes(user):
    assert raw(user, TAKE, "HOST")["told"] == []
