"""Sockets that act without an audit event of their own: those that listen without an address, and
those of families that send and receive without being connected."""

import asyncio
import importlib.util
import os
import socket
import socketserver

import programs
import pytest

from fastaudit_rs import Network


def listen(*arguments, family=socket.AF_INET):
    with socket.socket(family) as made:
        made.listen(*arguments)


class TestListening:
    @pytest.mark.parametrize("arguments", [(), (5,)])
    def test_without_an_address(self, under, arguments):
        for network in (False, Network(), Network(listen=["127.0.0.1"])):
            assert under(listen, *arguments, network=network).event == "socket.listen"
        for network in (True, Network(listen=True), Network(listen=["0.0.0.0"])):
            assert under(listen, *arguments, network=network) is None

    @pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
    def test_at_ipv6(self, under):
        def listen_there():
            with socket.socket(socket.AF_INET6) as made:
                made.listen()

        assert under(listen_there, network=Network(listen=["0.0.0.0"])).event == "socket.listen"
        assert under(listen_there, network=Network(listen=["::"])) is None

    @pytest.mark.parametrize(
        "way",
        [
            lambda made: socket.socket.listen(made),
            lambda made: made.listen.__call__(5),
            lambda made: list(map(made.listen, [5])),
            lambda made: type(made).__mro__[1].listen(made, 1),
        ],
    )
    def test_by_any_name(self, under, way):
        with socket.socket() as made:
            assert under(way, made, network=False).event == "socket.listen"

    def test_of_a_module_that_is_made_anew(self, under):
        spec = importlib.util.find_spec("_socket")
        if spec.origin == "built-in":
            pytest.skip("part of the interpreter here")

        def load():
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            module.socket(socket.AF_INET, socket.SOCK_STREAM).listen(1)

        assert under(load, network=False).event == "socket.listen"

    def test_asyncio_and_socketserver(self, under):
        async def serve():
            made = socket.socket()
            server = await asyncio.start_server(lambda *_: None, sock=made)
            server.close()

        def serve_by_library():
            class Server(socketserver.TCPServer):
                def server_bind(self):
                    pass

            Server(("", 0), socketserver.BaseRequestHandler).server_close()

        for way in (lambda: asyncio.run(serve()), serve_by_library):
            assert under(way, network=False).event == "socket.listen"
            assert under(way, network=Network(listen=["0.0.0.0"])) is None

    def test_what_the_host_handed_over(self, under):
        """A socket that listens or has an address already is the code's to use."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            assert under(server.listen, 5, network=False) is None
        with socket.socket() as made:
            made.bind(("127.0.0.1", 0))
            assert under(made.listen, network=False) is None
            assert under(made.listen, network=Network()) is None

    def test_what_cannot_listen(self, under):
        with socket.socket() as made:
            pass
        for network in (False, True):
            with pytest.raises(OSError, match="Bad file descriptor"):
                under(made.listen, network=network)
        with pytest.raises(TypeError):
            under(lambda: socket.socket.listen(), network=False)

    def test_unix_sockets_by_their_rules(self, under, places):
        def serve(place):
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(place)
                made.listen()

        inside = Network(unix=[places.ok])
        assert under(serve, places.ok + "/s", network=inside) is None
        assert under(serve, places.out + "/s", network=inside).rule == "network.unix"

    def test_mk_audit_lets_it_pass(self, guard):
        with guard():
            listen()

    def test_an_installed_policy(self):
        code = """
from fastaudit_rs import Policy
import socket
Policy(write=[], network=False).install()
try:
    socket.socket().listen()
except PermissionError as denied:
    print(denied.event)
"""
        assert programs.printed(code) == "socket.listen\n"


ODD = [
    (name, kind)
    for name, kind in (
        ("AF_NETLINK", socket.SOCK_RAW),
        ("AF_NETLINK", socket.SOCK_DGRAM),
        ("AF_PACKET", socket.SOCK_RAW),
        ("AF_PACKET", socket.SOCK_DGRAM),
        ("AF_VSOCK", socket.SOCK_STREAM),
        ("AF_BLUETOOTH", socket.SOCK_STREAM),
        ("AF_CAN", socket.SOCK_RAW),
        ("AF_QIPCRTR", socket.SOCK_DGRAM),
        ("AF_ALG", socket.SOCK_SEQPACKET),
        ("AF_TIPC", socket.SOCK_DGRAM),
        ("AF_INET", socket.SOCK_RAW),
        ("AF_INET6", socket.SOCK_RAW),
    )
    if hasattr(socket, name)
]
XDP = 44
NETLINK = getattr(socket, "AF_NETLINK", None)
needs_netlink = pytest.mark.skipif(NETLINK is None, reason="of Linux")


class TestFamilies:
    @pytest.mark.parametrize(("name", "kind"), ODD)
    def test_those_that_act_without_events(self, under, name, kind):
        for network in (False, Network(), Network(listen=True, unix=None)):
            for flags in (0, getattr(socket, "SOCK_NONBLOCK", 0)):
                denied = under(socket.socket, getattr(socket, name), kind | flags, network=network)
                assert (denied.event, denied.rule) == ("socket.__new__", "network")

    def test_by_number_and_by_the_native_class(self, under):
        import _socket

        assert under(_socket.socket, XDP, socket.SOCK_RAW, network=False)
        assert under(lambda: _socket.SocketType(family=XDP, type=3), network=False)
        assert under(_socket.socket.__init__, _socket.socket(), XDP, 3, network=False)

    @needs_netlink
    def test_with_the_network(self, under):
        assert under(lambda: socket.socket(NETLINK, socket.SOCK_RAW).close(), network=True) is None

    @pytest.mark.parametrize("network", [False, Network()])
    def test_plain_ones(self, under, network):
        def make():
            for arguments in (
                (),
                (socket.AF_INET, socket.SOCK_DGRAM),
                (socket.AF_INET6, socket.SOCK_STREAM),
                (socket.AF_UNIX, socket.SOCK_DGRAM),
                (socket.AF_UNIX, socket.SOCK_SEQPACKET | getattr(socket, "SOCK_CLOEXEC", 0)),
            ):
                socket.socket(*arguments).close()
            for end in socket.socketpair():
                end.close()

        assert under(make, network=network) is None

    @needs_netlink
    def test_those_of_the_host(self, under):
        with socket.socket(NETLINK, socket.SOCK_RAW) as given:

            def use():
                socket.fromfd(given.fileno(), NETLINK, socket.SOCK_RAW).close()
                socket.socket(fileno=os.dup(given.fileno())).close()
                socket.socket(NETLINK, socket.SOCK_RAW, 0, os.dup(given.fileno())).close()
                given.dup().close()

            assert under(use, network=False) is None
            assert under(socket.socket, NETLINK, socket.SOCK_RAW, 0, None, network=False)

    @needs_netlink
    def test_a_hook_that_makes_sockets(self, under):
        """A socket of an open descriptor says nothing of one that is made meanwhile."""

        class Inner(socket.socket):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                socket.socket(NETLINK, socket.SOCK_RAW)

        with socket.socket() as given:
            assert under(lambda: Inner(fileno=os.dup(given.fileno())), network=False)


def test_the_hint_says_what_would_allow_it(under):
    assert "network = Network(" in str(under(listen, network=False))


def test_the_rules_of_0_2(places):
    from fastaudit_rs import v02

    with socket.create_server(("127.0.0.1", 0)) as server:
        with v02.mk_audit([places.ok])():
            with pytest.raises(PermissionError, match=r"socket\.listen"):
                listen()
            server.listen(5)
