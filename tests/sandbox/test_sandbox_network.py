"""The part of a policy's network that the kernel holds in a sandbox: for unguarded programs."""

import contextlib
import errno
import json
import os
import socket

import promises
import pytest
from egress_servers import CHANGING
from sandboxes import LISTENS, LOOSE, MAKES_UNIX_SOCKETS, unguarded

from fastaudit_rs import Network, Sandbox
from fastaudit_rs.sandbox.host.network import NOWHERE, reachable

#: Tries each of these without a guard: what may be reached, by its address, its port and how.
PROBE = """
import json, socket, sys
def reached(kind, address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) as s:
            if kind == "listen":
                s.bind((address, port))
                s.listen()
            elif kind == "udp":
                s.sendto(b"x", (address, port))
            else:
                s.connect((address, port))
    except OSError:
        return False
    return True
print(json.dumps([each for each in json.loads(sys.argv[1]) if reached(*each)]))
"""


@pytest.fixture
def ports():
    """Two ports at which something listens, on all IPv4 addresses of this machine."""
    with socket.create_server(("0.0.0.0", 0)) as one, socket.create_server(("0.0.0.0", 0)) as two:
        yield one.getsockname()[1], two.getsockname()[1]


@pytest.fixture
def tried(make_sandbox):
    """`tried(network, attempts)`: which of them the kernel lets pass."""

    def run(network, attempts):
        sandbox = make_sandbox(LOOSE.replace(network=network))
        ran = unguarded(sandbox, PROBE, json.dumps(attempts))
        return [tuple(each) for each in json.loads(ran.stdout)]

    return run


def free_port():
    """One that nothing listens at, nor gets for having asked for any: ip(7)."""
    for port in range(20000 + os.getpid() % 10000, 30000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


@pytest.mark.holds("kernel", promises.DATA)
class TestConnecting:
    @pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.0/31", "::ffff:127.0.0.1"])
    def test_to_addresses(self, tried, ports, host):
        one, two = ports
        here = [("tcp", "127.0.0.1", one), ("udp", "127.0.0.1", one), ("tcp", "127.0.0.1", two)]
        others = [("tcp", "127.0.0.2", one), ("udp", "127.0.0.2", one), ("tcp", "::1", one)]
        assert tried(Network(hosts=[host]), here + others) == here

    @pytest.mark.slow
    def test_to_ports(self, tried, ports):
        one, two = ports
        may = [(kind, f"127.0.0.{last}", one) for kind in ("tcp", "udp") for last in (1, 2)]
        others = [(kind, "127.0.0.1", two) for kind in ("tcp", "udp")]
        assert tried(Network(ports=[one]), may + others) == may
        assert tried(Network(hosts=[f"127.0.0.0/8:{one}"]), may + others) == may
        # A name says nothing of an address: the host carries what it allows.
        assert tried(Network(hosts=[f"example.com:{one}"]), may + others) == []

    def test_blocked(self, tried, ports):
        one, two = ports
        may = [("tcp", "127.0.0.1", one), ("tcp", "127.0.0.2", two)]
        others = [("tcp", "127.0.0.2", one), ("tcp", "::ffff:127.0.0.2", one)]
        assert tried(Network(block=[f"127.0.0.2:{one}"]), may + others) == may
        network = Network(hosts=["127.0.0.0/8"], block=["127.0.0.2"])
        assert tried(network, may + others) == may[:1]

    def test_this_machine_is_blocked_by_its_name(self, tried, ports):
        one, two = ports
        others = [(kind, f"127.0.0.{last}", one) for kind in ("tcp", "udp") for last in (1, 2)]
        assert tried(Network(block=["localhost"]), others) == []
        may = [("tcp", "127.0.0.1", two)]
        assert tried(Network(block=[f"localhost:{one}"]), may + others) == may

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
    @pytest.mark.parametrize("is_swapped", [False, True], ids=["address", "descriptor"])
    def test_by_what_changes_meanwhile(self, make_sandbox, kind, is_swapped):
        sandbox = make_sandbox(LOOSE.replace(network=Network(hosts=["127.0.0.2"])))
        with socket.socket(type=kind) as here:
            here.bind(("127.0.0.1", 0))
            if kind == socket.SOCK_STREAM:
                here.listen()
            here.setblocking(False)
            unguarded(sandbox, CHANGING, here.getsockname()[1], int(kind), int(is_swapped))
            with pytest.raises(BlockingIOError):
                here.accept() if kind == socket.SOCK_STREAM else here.recv(10)

    def test_to_no_address(self, make_sandbox):
        """A socket can be disconnected: glibc does so to sort the addresses of a name."""
        program = """
import ctypes, socket
libc = ctypes.CDLL(None, use_errno=True)
with socket.socket(type=socket.SOCK_DGRAM) as made:
    for port in (1, 2):
        made.connect(("127.0.0.1", port))
        print(made.getpeername(), libc.connect(made.fileno(), bytes(16), 16))
        try:
            made.getpeername()
        except OSError as error:
            print(error.strerror)
    print(libc.connect(made.fileno(), None, 16), libc.connect(99, bytes(16), 16))
with socket.socketpair()[0] as made:
    print(made.connect_ex("\\0unaddressed"))
"""
        sandbox = make_sandbox(LOOSE.replace(network=Network(hosts=["127.0.0.1"])))
        unconnected = os.strerror(errno.ENOTCONN)
        said = [f"('127.0.0.1', {port}) 0\n{unconnected}\n" for port in (1, 2)]
        assert unguarded(sandbox, program).stdout == f"{''.join(said)}-1 -1\n{errno.EACCES}\n"

    def test_nowhere(self, tried, ports):
        attempts = [("tcp", "127.0.0.1", ports[0]), ("udp", "127.0.0.1", ports[0])]
        assert tried(Network(hosts=[]), attempts) == []
        assert tried(Network(hosts=[], listen=True), attempts) == []


@LISTENS
@pytest.mark.holds("kernel", promises.LISTEN)
@pytest.mark.slow
def test_listening(tried):
    port = free_port()
    may = [("listen", "127.0.0.1", port)]
    others = [("listen", "127.0.0.1", 0), ("listen", "127.0.0.1", port ^ 1)]
    for listen in ([f"127.0.0.1:{port}"], [f"0.0.0.0:{port}-{port}"]):
        assert tried(Network(hosts=[], listen=listen), may + others) == may
    assert tried(Network(listen=["127.0.0.1:0"]), may + others) == others[:1]
    assert tried(Network(listen=False), may + others) == []
    assert set(tried(Network(listen=["127.0.0.1"]), may + others)) >= {may[0], others[0]}


class TestUnixSockets:
    @pytest.fixture
    def served(self, tmp_path):
        """`served(name)`: a Unix socket in a directory, at which something listens."""
        with contextlib.ExitStack() as stack:

            def serve(name):
                path = tmp_path / "run" / name
                path.parent.mkdir(exist_ok=True)
                path.unlink(missing_ok=True)
                server = stack.enter_context(socket.socket(socket.AF_UNIX))
                server.bind(str(path))
                server.listen()
                return str(path)

            yield serve

    @pytest.mark.parametrize("place", ["run", "run/one", "~/run/one"])
    def test_those_that_are_named(self, make_sandbox, served, monkeypatch, tmp_path, place):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path))
        sandbox = make_sandbox(LOOSE.replace(network=Network(hosts=[], unix=[place])))
        served("one")
        for _ in range(2):
            code = f"import socket; socket.socket(socket.AF_UNIX).connect({served('one')!r})"
            ran = sandbox.run(code)
            assert ran.success, ran.stderr

    @MAKES_UNIX_SOCKETS
    @pytest.mark.holds("kernel", promises.UNIX)
    def test_no_others(self, make_sandbox, served):
        one, two = served("one"), served("two")
        sandbox = make_sandbox(LOOSE.replace(network=Network(unix=[one])))
        connect = "import socket; socket.socket(socket.AF_UNIX).connect({!r})"
        for path, may in ((one, True), (two, False)):
            ran = unguarded(sandbox, connect.format(path), check=False)
            assert ran.success is may, ran.stderr
        assert sandbox.run(connect.format(two)).returncode == 77


def test_what_the_guard_allows_passes(make_sandbox, ports):
    """The kernel denies nothing of it: not a name that is looked up, nor an answer."""
    code = f"""
import socket
socket.create_connection(("localhost", {ports[0]}), 5).close()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.bind(("127.0.0.1", 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as two:
        two.sendto(b"x", one.getsockname())
    print(one.recv(1))
"""
    # The host carries what has a name, without UDP.
    network = Network(hosts=["127.0.0.1", "::1"], listen=["127.0.0.1"])
    ran = make_sandbox(LOOSE.replace(network=network)).run(code)
    assert ran.stdout == "b'x'\n", ran.stderr


class TestRules:
    @pytest.mark.parametrize(
        ("network", "allow", "deny", "listen"),
        [
            (False, [], [], []),
            (Network(), ["*:*", "*:53"], [], []),
            (Network(ports=[443, "90-92", "0-1"]), ["*:443,90,91,92,1", "*:53"], [], []),
            (Network(ports=[443], lookup=False), ["*:443"], [], []),
            (Network(hosts=["10.1.2.3/8", "::1"]), ["10.0.0.0/8:*", "[::1/128]:*"], [], []),
            (Network(hosts=["[2001:db8::/32]:80-81"]), ["[2001:db8::/32]:80,81"], [], []),
            (Network(hosts=["*.a.org:443"], ports=[80]), ["*:443", "*:53"], [], []),
            (Network(hosts=["*:443"], block=["a.org"]), ["*:443", "*:53"], [], []),
            (Network(hosts=["1.2.3.4:0"], block=["1.2.3.4:0"]), [], [], []),
            (
                Network(hosts=[], block=["10.0.0.0/8", "[::1]:25"]),
                [],
                ["10.0.0.0/8:*", "[::1/128]:25"],
                [],
            ),
            (
                Network(hosts=[], listen=["[::1]:8000-8009", "a.org:0"]),
                [NOWHERE],
                [],
                ["8000-8009", "0"],
            ),
            (Network(hosts=[], listen=["[::1]:80", "::1"]), [NOWHERE], [], ["*"]),
            (
                Network(block=["LOCALHOST.", "a.localhost:80", "a.org"]),
                ["*:*", "*:53"],
                ["127.0.0.0/8:*", "[::1/128]:*", "127.0.0.0/8:80", "[::1/128]:80"],
                [],
            ),
        ],
    )
    def test_for_the_kernel(self, network, allow, deny, listen):
        found = reachable(network)
        assert (found.allow, found.deny, found.listen) == (allow, deny, listen)

    @pytest.mark.parametrize(
        ("network", "says"),
        [
            (True, "guard and kernel"),
            (Network(hosts=["10.0.0.0/8"], block=["10.0.0.1:25"]), "guard and kernel"),
            (Network(hosts=["example.com"]), "guard, kernel and host"),
            (Network(hosts=["localhost"]), "guard, kernel and host"),
            (Network(block=["example.com"]), "guard, and kernel for ports"),
            (Network(block=["localhost"]), "guard and kernel"),
        ],
    )
    def test_explain(self, make_sandbox, network, says):
        assert make_sandbox(LOOSE.replace(network=network)).explain()["network"] == says

    def test_explain_without_the_kernel(self):
        policy = LOOSE.replace(network=Network(hosts=["10.0.0.0/8"]))
        with Sandbox(policy, confine="audit") as sandbox:
            assert sandbox.explain()["network"] == "guard"
