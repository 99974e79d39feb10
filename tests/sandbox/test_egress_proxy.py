"""The proxy of sandboxes by itself: each connection is one that a sandbox's process could make."""

import contextlib
import ipaddress
import socket
import struct
import threading
import time

import pytest
from egress_servers import all_of, answering, head, said, served

from fastaudit_rs import Network
from fastaudit_rs.sandbox.host.egress.log import KEPT, WAITING, Log, WaitingConnections, Wanted
from fastaudit_rs.sandbox.host.egress.rules import FIRST, NAMES, Names, Question, Rules, address_of

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


class TestHTTP:
    def test_many_in_one_connection(self, connected, log):
        """Also those that are sent before the answers to others."""
        with served() as site:
            pieces = [head("GET /1", site.port) + head("HEAD /2", site.port)]
            pieces += [head("POST /3", site.port, "Content-Length: 3") + b"abc"]
            pieces += [head("GET /4", site.port, "Connection: close")]
            assert said(connected(site.port), *pieces).count(b"HTTP/1.1 200") == 4
        assert [each[1] for each in site.seen] == ["/1", "/2", "/3", "/4"]
        told = [(each.method, each.path, each.sent, each.received) for each in log.taken(wait=True)]
        assert told == [
            ("GET", "/1", 0, 2),
            ("HEAD", "/2", 0, 0),
            ("POST", "/3", 3, 2),
            ("GET", "/4", 0, 2),
        ]

    def test_where_the_server_is_asked_first(self, connected, serve):
        """Expect: 100-continue, RFC 9110, 10.1.1."""

        def act(one):
            one.recv(1000)
            one.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            assert one.recv(1000) == b"abc"
            one.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

        port = serve(act)
        made = connected(port)
        lines = ("Content-Length: 3", "Expect: 100-continue", "Connection: close")
        made.sendall(head("PUT /", port, *lines))
        assert made.recv(1000).startswith(b"HTTP/1.1 100")
        made.sendall(b"abc")
        assert all_of(made).startswith(b"HTTP/1.1 204")

    def test_that_becomes_another_protocol(self, connected, serve, log):
        def act(one):
            assert b"pgrade: websocket\r\n" in one.recv(1000)
            one.sendall(
                b"HTTP/1.1 101 Yes\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello"
            )
            one.sendall(one.recv(1000)[::-1])

        port = serve(act)
        made = connected(port)
        made.sendall(head("GET /", port, "Connection: upgrade", "Upgrade: websocket"))
        heard = made.recv(1000)
        while not heard.endswith(b"hello"):
            heard += made.recv(1000)
        assert heard.startswith(b"HTTP/1.1 101")
        made.sendall(b"abc")
        assert all_of(made) == b"cba"
        (request,) = log.taken(wait=True)
        assert (request.status, request.sent, request.received) == (101, 3, 8)

    @pytest.mark.parametrize(
        ("answer", "status"),
        [
            (b"", 502),
            (b"\0\1\2", 502),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 502),
            (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, 502),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab", 200),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 200),
        ],
        ids=["nothing", "other", "two lengths", "a long header", "too short", "no chunk"],
    )
    def test_with_bad_servers(self, connected, serve, log, answer, status):
        port = serve(answering(answer))
        assert said(connected(port), head("GET /", port)).startswith(b"HTTP/1.1 %d" % status)
        (request,) = log.taken(wait=True)
        assert request.status == (None if status == 502 else status)
        assert request.error.startswith("no whole answer")

    @pytest.mark.parametrize(
        ("length", "part", "why"),
        [
            ("Content-Length: 10", b"abc", "ended before its body did"),
            ("Transfer-Encoding: chunked", b"3\r\nabc\r\n", "ended before its body did"),
            ("Transfer-Encoding: chunked", b"3\r\nabc\r\nzz\r\n", "is malformed"),
        ],
    )
    def test_whose_body_stops_midway(self, connected, serve, log, length, part, why):
        """The server is not left to wait for the rest."""
        ended = threading.Event()

        def act(one):
            one.settimeout(30)
            with contextlib.suppress(ConnectionError):
                while one.recv(1000):
                    pass
            ended.set()

        port = serve(act)
        made = connected(port)
        made.sendall(head("POST /", port, length) + part)
        made.shutdown(socket.SHUT_WR)
        assert ended.wait(10)
        assert all_of(made).startswith(b"HTTP/1.1 502")
        (request,) = log.taken(wait=True)
        assert (request.sent, request.status) == (3, None)
        assert request.error == f"no whole answer: the request {why}"

    def test_that_nobody_waits_for(self, connected, serve, log, proxy):
        """The end of a process ends its connections at once."""
        arrived = threading.Event()
        ended = threading.Event()

        def act(one):
            one.recv(1000)
            arrived.set()
            with contextlib.suppress(OSError):
                one.recv(1000)
            ended.set()

        port = serve(act)
        connected(port).sendall(head("GET /", port))
        assert arrived.wait(10)
        proxy.end(log)
        assert ended.wait(10)
        (request,) = log.taken(wait=True)
        assert (request.status, log.carried[False]) == (None, 0)

    @pytest.mark.slow
    def test_of_a_client_that_reads_nothing(self, connected, serve, log):
        """The host keeps no more than some pieces of what nobody takes."""
        sent = 0

        def act(one):
            nonlocal sent
            one.recv(1000)
            one.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            one.settimeout(0.5)
            with contextlib.suppress(OSError):
                while sent < 200_000_000:
                    sent += one.send(bytes(1 << 16))

        port = serve(act)
        made = connected(port)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        made.sendall(head("GET /", port))
        before = -1
        deadline = time.monotonic() + 10
        while before != sent and time.monotonic() < deadline:
            before = sent
            time.sleep(0.3)
        assert 0 < sent < 50_000_000


class TestOthers:
    @pytest.mark.parametrize("piece", [b"\r\n" * 1000, b"GET" * 1000, b"GET /" + b"x" * 1000])
    def test_beginnings_without_an_end(self, connected, log, piece):
        """The host keeps a part of it, and ends the connection."""
        assert said(connected(80), *[piece] * 1000)[:10] in (b"", b"HTTP/1.1 4")
        (request,) = log.taken(wait=True)
        assert request.error == "the request is malformed"

    def test_both_halves(self, connected, serve, log):
        """A client may end its half and still read."""

        def act(one):
            one.sendall(b"".join(iter(lambda: one.recv(1000), b""))[::-1])

        made = connected(serve(act))
        made.sendall(b"\0abc")
        made.shutdown(socket.SHUT_WR)
        assert all_of(made) == b"cba\0"
        (request,) = log.taken(wait=True)
        assert (request.sent, request.received, request.error) == (4, 4, None)

    def test_where_the_server_speaks_first(self, connected, serve, log):
        def act(one):
            one.sendall(b"220 hello\r\n")
            one.sendall(one.recv(100).upper())

        made = connected(serve(act))
        assert made.recv(100) == b"220 hello\r\n"
        made.sendall(b"get / http/1.1\r\n")
        assert all_of(made) == b"GET / HTTP/1.1\r\n"
        (request,) = log.taken(wait=True)
        assert (request.method, request.sent, request.received) == (None, 16, 27)

    def test_a_server_that_is_not_there(self, connected, log):
        with socket.create_server(("127.0.0.1", 0)) as gone:
            port = gone.getsockname()[1]
        assert said(connected(port), b"\0abc") == b""
        (request,) = log.taken(wait=True)
        assert "good.test cannot be reached" in request.error and request.verdict == "allowed"


def asked(name, kind=1, more=b"", number=7, flags=0x0100, counts=(1, 0, 0, 0)):
    labels = b"".join(bytes([len(each)]) + each for each in name.encode().split(b".") if each)
    header = struct.pack("!6H", number, flags, *counts)
    return header + labels + b"\0" + struct.pack("!2H", kind, 1) + more


class TestNames:
    def answers(self, connected, *messages):
        made = connected(53)
        made.sendall(b"".join(len(each).to_bytes(2, "big") + each for each in messages))
        made.shutdown(socket.SHUT_WR)
        said, found = all_of(made), []
        while said:
            end = 2 + int.from_bytes(said[:2], "big")
            found.append(said[2:end])
            said = said[end:]
        return found

    def test_have_addresses_of_their_own(self, connected, proxy, log):
        names = ["good.test", "GOOD.test", "a.wild.test", "bad.wild.test", "other.test"]
        found = self.answers(connected, *map(asked, names), asked("good.test", 28))
        assert [answer[3] & 15 for answer in found] == [0, 0, 0, 3, 3, 0]
        addresses = [answer[-4:] for answer in found[:3]]
        assert addresses[0] == addresses[1] != addresses[2]
        for name, packed in zip(("good.test", "a.wild.test"), addresses[1:], strict=True):
            assert proxy.names.name(ipaddress.IPv4Address(packed)) == name
        # No address of IPv6, though the name is known.
        assert found[5][6:8] == b"\0\0"
        assert [(each.host, each.rule) for each in log.taken(wait=True)] == [
            ("bad.wild.test", "network.block"),
            ("other.test", "network.hosts"),
        ]

    def test_up_to_a_number(self):
        names = Names(FIRST[0])
        found = {names.address(f"n{number}.wild.test") for number in range(NAMES + 10)}
        assert len(found) == NAMES + 1 and None in found
        assert names.address("n0.wild.test") is not None

    @pytest.mark.parametrize(
        "message",
        [
            b"",
            asked("good.test")[:11],
            asked("good.test")[:-1],
            asked("good.test", counts=(2, 0, 0, 0)),
            asked("good.test", counts=(0, 0, 0, 0)),
            asked("good.test", counts=(1, 1, 0, 0)),
            asked("good.test", flags=0x8000),
            asked("good.test", flags=0x2800),
            asked("")[:12] + b"\xc0\x0c\0\1\0\1",
            asked("")[:12] + b"\x3fx",
            asked("")[:12] + b"\x3f" * 2000,
        ],
    )
    def test_of_malformed_questions(self, connected, message):
        assert self.answers(connected, message, asked("good.test")) == []

    @pytest.mark.parametrize(
        "name", ["a b.wild.test", "-.wild.test", "ü.wild.test", "a" * 63 + ".x" * 99]
    )
    def test_that_are_none(self, connected, name):
        (answer,) = self.answers(connected, asked(name))
        assert answer[3] & 15 == 3

    def test_more_is_left_out(self):
        """EDNS of a question, RFC 6891, is no error."""
        question = Question(asked("good.test", more=b"\0\0)\x10\0" + bytes(6), counts=(1, 0, 0, 1)))
        assert question.name == "good.test" and question.wants_ipv4


class TestRequests:
    def told(self, log):
        found = [(each.host, each.verdict) for each in log.taken(wait=False)]
        return found, log.left_out

    @pytest.mark.parametrize("are_late", [False, True])
    def test_denied_ones_hide_no_others(self, are_late):
        """Neither those that are denied at once, nor those that began."""
        log = Log()
        for number in range(3 * KEPT):
            if are_late:
                log.begin(f"{number}.test", 80).rule = "network.hosts"
            else:
                log.deny(f"{number}.test", None, "network.hosts")
        log.begin("good.test", 80)
        found, left_out = self.told(log)
        assert found[-1] == ("good.test", "allowed") and found[0] == ("0.test", "denied")
        assert len(found) <= 2 * KEPT and len(found) + left_out == 3 * KEPT + 1

    def test_allowed_ones_hide_no_others(self):
        log = Log()
        for number in range(KEPT + 5):
            log.begin(f"{number}.test", 80)
        log.deny("bad.test", None, "network.hosts")
        found, left_out = self.told(log)
        assert len(found) == KEPT + 1 and found[-1] == ("bad.test", "denied") and left_out == 5
        assert self.told(log) == ([], 0)


def test_few_connections_wait_at_a_time(log, monkeypatch):
    waiting = WaitingConnections()
    wanted = Wanted("good.test", None, 80, log, log.begin("good.test", 80))
    told = [waiting.put((socket.AF_INET, port), wanted) for port in range(WAITING + 2)]
    assert told.count(0) == WAITING == log.carried[False]
    assert waiting.put((socket.AF_INET, 0), wanted) != 0
    waiting.drop((socket.AF_INET, 0))
    waiting.drop((socket.AF_INET, 0))
    assert log.carried[False] == WAITING - 1
    waiting.expire()
    assert log.carried[False] == WAITING - 1
    assert waiting.put((socket.AF_INET, 0), wanted) == 0
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    waiting.expire()
    assert log.carried[False] == 0


@pytest.mark.parametrize(
    ("name", "port", "rule"),
    [
        ("good.test", 443, None),
        ("good.test", 80, "network.ports"),
        ("a.wild.test", 8005, None),
        ("a.b.wild.test", 8009, None),
        ("wild.test", 8005, "network.hosts"),
        ("xwild.test", 8005, "network.hosts"),
        ("a.wild.test", 8010, "network.ports"),
        ("a.wild.test", 443, "network.ports"),
        ("bad.wild.test", 8005, "network.block"),
        ("half.wild.test", 8005, None),
        ("half.wild.test", 8006, "network.block"),
        ("other.test", 443, "network.hosts"),
        ("10.0.0.1", 443, None),
        ("10.0.0.1", 80, "network.ports"),
        ("::1", 443, None),
    ],
)
def test_verdicts_on_names(name, port, rule):
    """They are those of a guard, which looks the name up besides: here nothing is waited for."""
    hosts = ["GOOD.test.", "*.wild.test:8000-8009", "10.0.0.0/8", "::1"]
    block = ["bad.wild.test", "half.wild.test:8006"]
    rules = Rules(Network(hosts=hosts, block=block, ports=[443, "1000-1009"]))
    begun = time.monotonic()
    assert rules.of_name(name, port) == rule
    assert time.monotonic() - begun < 4


@pytest.mark.parametrize(
    ("address", "is_public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("64:ff9b::93.184.216.34", True),
        *((each, False) for each in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "224.0.0.1")),
        *((each, False) for each in ("0.0.0.0", "255.255.255.255", "240.0.0.1", "100.64.0.1")),
        *((each, False) for each in ("::1", "::", "fe80::1", "fc00::1", "fec0::1", "ff0e::1")),
        ("::127.0.0.1", False),
        ("::93.184.216.34", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:0:127.0.0.1", False),
        ("64:ff9b::127.0.0.1", False),
        ("64:ff9b::10.0.0.1", False),
        ("64:ff9b::224.0.0.1", False),
        ("64:ff9b:1::127.0.0.1", False),
        ("2002:7f00:1::", False),
        ("2001:0:7f00:1::", False),
    ],
)
def test_addresses_of_names_below_a_wildcard(address, is_public):
    """None that leads into this network, in whatever form."""
    rules = Rules(Network(hosts=["*.wild.test"]))
    assert (rules.of_resolved("a.wild.test", address_of(address), 80) is None) == is_public


def test_a_blocked_address_in_another_one():
    """NAT64, RFC 6052: it leads to the one that is blocked."""
    rules = Rules(Network(hosts=["good.test"], block=["93.184.216.34"]))
    told = [
        rules.of_resolved("good.test", address_of(f"64:ff9b::93.184.216.{end}"), 80)
        for end in (33, 34)
    ]
    assert told == [None, "network.block"]
    rules = Rules(Network(hosts=["good.test", "::/0"], block=["10.0.0.0/8", "64:ff9b::/112"]))
    for text in ("64:ff9b::10.0.0.1", "64:ff9b::0.0.0.9"):
        address = address_of(text)
        assert rules.of_resolved("good.test", address, 80) == "network.block"
        assert rules.of_address(address, 80) == "network.block"
