"""`Policy(network=Network(...))`: what the rules allow and stop, with real servers."""

import asyncio
import contextlib
import os
import platform
import socket
import socketserver
import threading
import urllib.request

import pytest

from fastaudit_rs import AuditDenied, Network, Policy


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(1000)
        self.request.sendall(b"HTTP/1.0 200 OK\r\n\r\nfine")


@pytest.fixture
def port():
    """The port of a server on the loopback interface."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def by_rules(under):
    """The denial of an operation under a guard with rules for the network."""

    def run(operation, *args, **rules):
        denied = under(operation, *args, write=(), network=Network(**rules))
        return denied and denied.rule

    return run


def connect(*address):
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(address, 5) as made:
        made.sendall(b"x")
        assert made.recv(8) == b"HTTP/1.0"


def connect_directly(host, port):
    with contextlib.suppress(ConnectionRefusedError), socket.socket() as made:
        made.connect((host, port))


def own_name():
    """A name that has to be looked up, and its address."""
    name = socket.gethostname()
    try:
        return name, socket.gethostbyname(name)
    except OSError:
        pytest.skip(f"{name!r}, the name of this machine, has no address here")


def test_connecting(under, port):
    assert under(connect, "127.0.0.1", port) is None
    with socket.socket() as made:
        denied = under(made.connect, ("127.0.0.1", port), network=False)
        assert (denied.rule, denied.effect, denied.host) == ("network", "network", "127.0.0.1")
        # The port is one that the system handed out.
        assert denied.hint == "network = Network(hosts=['127.0.0.1'])"
        assert denied.message == f"Denied: connect to the address 127.0.0.1:{port}"
        assert under(made.connect_ex, ("127.0.0.1", port), network=False).rule == "network"
        with pytest.raises(OSError, match="not connected"):
            made.getpeername()


class TestHosts:
    def test_by_whatever_name_an_address_is_given(self, by_rules, port):
        """`connect` itself resolves these."""
        for host in ("127.0.0.1", "127.1", "0x7f000001", "2130706433", "localhost", "", "0.0.0.0"):
            rules = {"hosts": ["127.0.0.1"]}
            assert by_rules(connect_directly, host, port, **rules) is None, host
            rules = {"block": ["127.0.0.0/8"]}
            assert by_rules(connect_directly, host, port, **rules) == "network.block", host

    def test_the_address_a_name_was_looked_up_to(self, under, port, tmp_path, monkeypatch):
        """Allowed by name: there, and not before, and nowhere else."""
        name, address = own_name()

        def before_the_look_up():
            with socket.socket() as made:
                made.connect_ex((address, port))

        def after_it():
            socket.getaddrinfo(name, port)
            before_the_look_up()

        def elsewhere():
            socket.getaddrinfo(name, port)
            with socket.socket() as made:
                made.connect_ex(("127.8.8.8", port))

        by_name = {"network": Network(hosts=[name])}
        assert under(before_the_look_up, **by_name).rule == "network.hosts"
        assert under(after_it, **by_name) is None
        assert under(lambda: (socket.gethostbyname(name), before_the_look_up()), **by_name) is None
        assert (
            under(lambda: (socket.gethostbyname_ex(name), before_the_look_up()), **by_name) is None
        )
        assert under(elsewhere, **by_name).rule == "network.hosts"
        blocked = Network(hosts=[name], block=[address])
        assert under(after_it, network=blocked).rule == "network.block"
        assert under(connect_directly, name, port, network=blocked).rule == "network.block"
        assert under(connect_directly, name, port, **by_name) is None
        if platform.libc_ver()[0] == "glibc":  # musl finds names of /etc/hosts as they are there.
            assert under(connect_directly, name.upper(), port, **by_name) is None
        # Blocked at a port: by the name, and where it was looked up to.
        blocked = Network(block=[f"{name}:{port}"])
        assert under(connect_directly, name, port, network=blocked).rule == "network.block"
        assert under(after_it, network=blocked).rule == "network.block"
        assert under(after_it, network=Network(block=[f"{name}:{port + 1}"])) is None

    def test_looked_up_under_one_guard(self, port):
        """Another guard's look-ups are none of its business."""
        name, address = own_name()
        perms = Policy(network=Network(hosts=[name])).guard(monitor_calls=False)
        with perms():
            socket.getaddrinfo(host=name, port=port)
        with perms(), socket.socket() as made, pytest.raises(AuditDenied):
            made.connect((address, port))

    def test_looking_up_international_names(self, under):
        """By the name that is looked up for them."""
        rules = Network(hosts=["xn--bcher-kva.example"])
        with contextlib.suppress(socket.gaierror):
            assert under(socket.getaddrinfo, "bücher.example", 80, network=rules) is None
        denied = under(
            socket.getaddrinfo, "bücher.example", 80, network=Network(hosts=["d.example"])
        )
        assert denied.rule == "network.hosts"

    def test_libraries(self, under, port):
        def get():
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).read()

        assert under(lambda: get() == b"fine", network=Network(hosts=["127.0.0.1"])) is None
        with Policy(network=Network(hosts=["127.0.0.2"])).guard(monitor_calls=False)() as guard:
            with pytest.raises(OSError, match="Denied: connect to the address"):
                get()
        [denied] = guard.violations
        assert (denied.rule, denied.host) == ("network.hosts", "127.0.0.1")
        assert denied.hint == "network = Network(hosts=['127.0.0.2', '127.0.0.1'])"

    def test_asyncio(self, under, port):
        async def get(host):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"x")
            assert (await reader.read()).endswith(b"fine")
            writer.close()

        rules = Network(hosts=["127.0.0.1", "localhost"])
        assert under(lambda: asyncio.run(get("127.0.0.1")), network=rules) is None
        # The look-up is done in a thread.
        both = {"network": rules, "threads": "inherit"}
        assert under(lambda: asyncio.run(get("localhost")), **both) is None
        name = {"network": Network(hosts=[]), "threads": "inherit"}
        assert under(lambda: asyncio.run(get("127.0.0.1")), **name).rule == "network.hosts"


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="has no Unix sockets")
class TestUnixSockets:
    @pytest.fixture
    def served(self, places):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(places.out + "/served")
            server.listen()
            yield places.out + "/served"

    def test_connecting(self, by_rules, served, places):
        def connect(path):
            with socket.socket(socket.AF_UNIX) as made:
                made.connect(path)

        os.symlink(served, places.ok + "/link")
        for path in (served, os.fsencode(served), places.ok + "/link"):
            assert by_rules(connect, path) == "network.unix"
            assert by_rules(connect, path, unix=[served]) is None
            assert by_rules(connect, path, unix=[places.out]) is None
            assert by_rules(connect, path, unix=None) is None
            assert by_rules(connect, path, unix=[places.ok]) == "network.unix"


class TestConnections:
    def test_at_a_time(self, port):
        perms = Policy(network=Network(max_connections=2)).guard(monitor_calls=False)
        with perms(), contextlib.ExitStack() as opened:
            first = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            with pytest.raises(AuditDenied) as caught:
                socket.create_connection(("127.0.0.1", port))
            assert caught.value.rule == "network.max_connections"
            assert caught.value.hint == "network = Network(max_connections=3)"
            first.close()
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        with perms():
            socket.create_connection(("127.0.0.1", port)).close()


class TestOddities:
    def test_a_socket_that_lies(self, by_rules, port):
        class Liar(socket.socket):
            family = socket.AF_UNIX

            def fileno(self):
                return -1

        def connect():
            with Liar(socket.AF_INET) as made:
                made.connect(("127.0.0.1", port))

        assert by_rules(connect, hosts=[], unix=None) == "network.hosts"

    @pytest.mark.parametrize(
        ("rules", "error", "message"),
        [
            ({"block": None}, TypeError, "block must be an iterable of hosts, not NoneType"),
            ({"ports": "80"}, TypeError, "ports must be None or an iterable of ports, not str"),
            ({"ports": [True]}, ValueError, r"ports\[0\] must be a port from 0 to 65535 or a ra"),
            ({"ports": ["9-8"]}, ValueError, r"ports\[0\] must be a port from 0 to 65535 or a r"),
            ({"listen": None}, TypeError, "listen must be True, False or an iterable of hosts"),
            ({"unix": "/run"}, TypeError, "unix must be None or an iterable of paths, not str"),
            ({"lookup": 1}, TypeError, "lookup must be True or False, not 1"),
            ({"max_connections": "1"}, TypeError, "max_connections must be None or a whole numb"),
            ({"max_connections": -1}, ValueError, "max_connections must be None or a whole numb"),
        ],
    )
    def test_bad_values(self, rules, error, message):
        with pytest.raises(error, match=message):
            Network(**rules)

    def test_what_is_no_host(self):
        odd = "a_b/|a.org:|a.org:x|a..b|300.1.2.3|*.|a/b|[a.org]:80|1.2.3.4:70000|*a.org|1.2.3.4/40"
        for host in ["", *odd.split("|")]:
            with pytest.raises(ValueError, match=r"hosts\[0\] must be a host name"):
                Network(hosts=[host])
        Network(hosts=["a.org.", "A.org", "xn--bcher-kva.example", "::1", "1.2.3.4:80"])
