"""The proxy reads what a lenient server could take for a request, or refuses it."""

import contextlib
import ipaddress
import logging
import socket
import ssl
import sys
import time

import pytest
from egress_servers import all_of, answering, head, said, served

from fastaudit_rs import Network
from fastaudit_rs.sandbox.host.egress.rules import Rules

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")

LOOPBACK = ipaddress.ip_address("127.0.0.1")


@pytest.fixture
def heard(serve):
    """The port of a server, and what it has heard."""
    found = []

    def act(one):
        one.settimeout(5)
        with contextlib.suppress(OSError):
            found.append(one.recv(1 << 16))
            one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")

    return serve(act), found


@pytest.fixture
def refused(connected, heard, log):
    """`refused(*pieces)`: the status that answers them, and why; the server hears nothing."""
    port, found = heard

    def send(*pieces, silence=0, is_all=False):
        made = connected(port)
        time.sleep(silence)
        # A peer that has closed: `shutdown` raises ENOTCONN, which is no ConnectionError.
        with contextlib.suppress(OSError):
            for piece in pieces:
                made.sendall(piece.replace(b"{port}", b"%d" % port))
            if is_all:
                made.shutdown(socket.SHUT_WR)
        status = all_of(made)[9:12]
        (request,) = log.taken(wait=True)
        assert request.status is None and request.host.isprintable() and not any(found)
        return status, request.rule or request.error

    return send


def hello_for(name):
    """The first message of TLS with a name of this server."""
    outgoing, asked = ssl.MemoryBIO(), (("x" * 9 + ".") * 99)[: len(name) - 1] + "x"
    made = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=asked)
    with contextlib.suppress(ssl.SSLWantReadError):
        made.do_handshake()
    data = outgoing.read()
    assert asked.encode() in data
    return data.replace(asked.encode(), name)


MALFORMED = "the request is malformed"
NO_TLS = "the beginning of TLS is not understood"

HOST = "Host: other.test\r\n\r\n"

#: Beginnings that one server or another takes for a request.
LIKE_REQUESTS = [
    *(f"{blank}GET /x HTTP/1.1\r\n{HOST}" for blank in " \t\v\f\x1c\x1f\x85\xa0"),
    f"\r\n \r\n\tGET /x HTTP/1.1\r\n{HOST}",
    f"\0GET /x HTTP/1.1\r\n{HOST}",
    *(f"GET{blank}/x{blank}HTTP/1.1\r\n{HOST}" for blank in ("\t", "  ", "\v", "\x85", "\xa0")),
    f"GET /x HTTQ/1.1\r\n{HOST}",
    f"GET /x http/1.1\r\n{HOST}",
    f"GET /x HTTP/11\r\n{HOST}",
    f"GET /x\x85HTTP/1.1\r\n{HOST}",
    f"G{{T /x HTTQ/1.1\r\n{HOST}",
    f"G\xc9T /x HTTP/1.1\r\n{HOST}",
    f"\xc9GET /x HTTP/1.1\r\n{HOST}",
    f"{{GET /x HTTP/1.1\r\n{HOST}",
    f"get /x\r\n{HOST}",
    f"OPTIONS rtsp://other.test RTSP/1.0\r\n{HOST}",
    f"GET secret\r\n{HOST}",
    "GET /x\r\n",
    "GET /x",
    f"GET /x HTTP/1.1\r{HOST}",
    f"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\nGET /x HTTP/1.1\r\n{HOST}",
    "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + "\0" * 12 + f"GET /x HTTP/1.1\r\n{HOST}",
]

#: Beginnings of other protocols, in which the client speaks first and waits.
OF_OTHERS = [
    b"\0abc",
    b"*1\r\n$4\r\nPING\r\n",
    b"PING\r\n",
    b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2\r\n",
    b"NICK somebody\r\nUSER guest 0 * :A name\r\n",
    b"get name\r\n",
    b"CONNECT\naccept-version:1.2\nhost:good.test\n\n\0",
    b'{"id": 0, "method": "server.version"}\n',
    b"<?xml version='1.0'?><stream:stream to='good.test' xmlns='http://etherx.jabber.org/streams'>",
    b"Content-Length: 2\r\n\r\n{}",
    b"AMQP\0\0\x09\1",
    b"\0\0\0\x23\0\3\0\0user\0me\0database\0mine\0application\0\0",
    b"\x10\x10\0\4MQTT\4\2\0\x3c\0\4name",
    b"\n\5hello",
    b"\x93\xa3tag\xce\1\2\3\4",
]


class TestBeginnings:
    @pytest.mark.parametrize("text", LIKE_REQUESTS)
    def test_like_requests_are_refused(self, refused, text):
        told = refused(text.encode("latin-1"), is_all="\n" not in text)
        assert told == (b"400", MALFORMED)

    @pytest.mark.parametrize(
        "pieces", [(b"\0GET /x HT", b"TP/1.1\r\n"), (b"{GET /x", b" HTTP/1.1\n")]
    )
    def test_in_pieces(self, connected, serve, log, pieces):
        """The server hears no first line to its end that could be one of HTTP."""
        found = []

        def act(one):
            found.append(one.recv(1000))
            one.sendall(b"+")
            found.append(one.recv(1000))

        made = connected(serve(act))
        made.sendall(pieces[0])
        assert made.recv(1) == b"+"
        assert said(made, pieces[1]) == b""
        (request,) = log.taken(wait=True)
        assert request.error == MALFORMED and b"".join(found) == pieces[0]

    def test_at_any_pace(self, connected, heard, log, monkeypatch):
        """A beginning that waits for the server is no other protocol."""
        from fastaudit_rs.sandbox.host.egress import proxy

        monkeypatch.setattr(proxy, "SILENCE", 0.01)
        monkeypatch.setattr(proxy, "IDLE", 0.2)
        port, found = heard
        made = connected(port)
        made.sendall(b"GE")
        assert all_of(made) == b""
        assert found in ([], [b""])
        (request,) = log.taken(wait=True)
        assert request.error == "neither side says anything"

    @pytest.mark.parametrize("beginning", OF_OTHERS)
    def test_of_other_protocols_pass(self, connected, serve, beginning):
        def act(one):
            one.sendall(one.recv(1000)[::-1])

        assert said(connected(serve(act)), beginning) == beginning[::-1]

    @pytest.mark.parametrize(
        "first",
        [
            *map(bytes.fromhex, ("1503010002015a0301", "1403010001010301", "1703010001010301")),
            *(b"\x15\x03\x03\x01", b"\x17\x03\x01", b"\x16\x03", b"\x16\x03\x01\xff\xff" * 20000),
            b"\x16\x03\x01\x00\x05\xff\xff\xff\xff\xff",
        ],
        ids=[
            *("an alert", "a change of ciphers", "data", "a part of it", "a byte", "the beginning"),
            *("too long", "no handshake"),
        ],
    )
    def test_tls_that_is_malformed(self, refused, caplog, first):
        assert refused(first, is_all=True) == (b"", NO_TLS)
        assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []

    @pytest.mark.parametrize(
        "name", [b"g\xc3\xb6od.test", b"\xff" * 9, b"a" * 64 + b".test", b"good..test", b".test"]
    )
    @pytest.mark.parametrize("piece", [1, 1 << 16])
    def test_tls_with_a_name_that_is_none(self, refused, monkeypatch, name, piece):
        """Python would tell the host's standard error of each."""
        told = []
        monkeypatch.setattr(sys, "unraisablehook", told.append)
        data = hello_for(name)
        pieces = [data[at : at + piece] for at in range(0, len(data), piece)]
        assert refused(*pieces) == (b"", NO_TLS)
        assert told == []


class TestHosts:
    @pytest.mark.parametrize(
        "host",
        [
            "evil.test@good.test",
            "evil.test\\@good.test",
            "good.test#.evil.test",
            "good.test?.evil.test",
            "good.test/.evil.test",
            "evil.test:x@good.test",
            "good.test:",
            "good.test:+80",
            "good.test, evil.test",
            "good.test evil.test",
            "good.test:{port}:{port}",
            "good.test\x1b[2J",
            "good.test..",
            "",
        ],
    )
    def test_of_others_are_denied(self, refused, host):
        line = f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"
        assert refused(line.encode("latin-1")) == (b"403", "network.hosts")

    @pytest.mark.parametrize("silence", [0, 0.7])
    @pytest.mark.parametrize(
        "text",
        [
            "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            "\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            "GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
            "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",
            "CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: good.test:1\r\n\r\n",
            "GET / HTTP/1.1\r\n Host: good.test\r\nHost: evil.test\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            f"GET /{'x' * 200_000} HTTP/1.1\r\nHost: good.test\r\n\r\n",
        ],
        ids=range(11),
    )
    def test_requests_for_others(self, refused, text, silence):
        """Nothing of them reaches the server, after a silence neither."""
        status, why = refused(text.encode(), silence=silence)
        assert status in (b"400", b"403", b"431", b"505") and why in ("network.hosts", MALFORMED)

    @pytest.mark.parametrize("host", ["good.test", "GOOD.test.", "good.test:{port}", "Good.Test"])
    def test_are_written_anew(self, connected, host):
        """The server hears the name and the port that were connected to."""
        with served() as site:
            line = f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            said(connected(site.port), line.replace("{port}", str(site.port)).encode())
            assert site.seen[0][2]["host"] == f"good.test:{site.port}"

    def test_of_addresses(self, proxy, connected):
        """An address has any name; nothing else is in the header."""
        proxy.rules = Rules(Network(hosts=["127.0.0.1"]))
        with served() as site:
            for host, status in (("any.test", b"200"), ("[::1]:8", b"200"), ("a@any.test", b"403")):
                made = connected(site.port, "127.0.0.1", LOOPBACK)
                line = f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
                assert said(made, line.encode())[9:12] == status
            assert [each[2]["host"] for each in site.seen] == ["any.test", "[::1]:8"]

    @pytest.mark.parametrize(
        "target",
        ["good.test", "http:/good.test/", "https://good.test/", "http://a@good.test/", "x:y", "?"],
    )
    def test_of_targets(self, refused, target):
        assert refused(head(f"GET {target}", "{port}"))[0] in (b"400", b"403")


class TestFraming:
    @pytest.mark.parametrize(
        "lines",
        [
            ("Content-Length: 4", "Transfer-Encoding: chunked"),
            ("Transfer-Encoding: chunked", "content-length: 4"),
            ("Content-Length: 4", "Connection: close, content-length"),
            ("Transfer-Encoding: chunked", "Connection: Transfer-Encoding"),
            ("Content-Length: 4", "Transfer-Encoding: identity"),
            ("Content-Length: 4", "Transfer-Encoding: chunked, chunked"),
            ("Content-Length: 4", "Transfer-Encoding:\tchunked", "Transfer-Encoding: x"),
            ("Content-Length: 4", "Content-Length: 5"),
            ("Content-Length: +4",),
            ("Content-Length : 4",),
            ("Transfer-Encoding: \vchunked",),
            ("X: 1\rTransfer-Encoding: chunked",),
        ],
    )
    def test_of_requests(self, refused, lines):
        body = b"0\r\n\r\nGET /admin HTTP/1.1\r\nHost: other.test\r\n\r\n"
        status, why = refused(head("POST /", "{port}", *lines) + body)
        assert status in (b"400", b"501") and why == MALFORMED

    def test_of_requests_of_an_older_version(self, refused):
        asked = head("POST /", "{port}", "Transfer-Encoding: chunked")
        status, _ = refused(asked.replace(b"/1.1", b"/1.0") + b"0\r\n\r\n")
        assert status == b"400"

    def test_that_is_written_anew(self, connected, serve, log):
        """Extensions of chunks and trailers go no further."""

        def act(one):
            got = b""
            while not got.endswith(b"0\r\n\r\n"):
                got += one.recv(1000)
            body = b"%x;x=y\r\n%s\r\n0\r\nX-Trailer: x\r\n\r\n" % (len(got), got)
            one.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)

        port = serve(act)
        lines = ("Transfer-Encoding: chunked", "Trailer: Host", "Connection: close")
        body = b"3;a=b\r\nabc\r\n0\r\nHost: other.test\r\n\r\n"
        answer = said(connected(port), head("POST /", port, *lines) + body)
        assert b"\r\n3\r\nabc\r\n0\r\n\r\n" in answer
        assert b"other.test" not in answer and b"Trailer" not in answer and b"x=y" not in answer
        (request,) = log.taken(wait=True)
        assert (request.status, request.sent) == (200, 3)

    @pytest.mark.parametrize(
        "lines",
        [
            "Content-Length: 2\r\nTransfer-Encoding: chunked",
            "Content-Length: 2\r\nConnection: content-length",
            "Transfer-Encoding: chunked\r\nConnection: transfer-encoding",
        ],
    )
    def test_of_answers(self, connected, serve, log, lines):
        answer = f"HTTP/1.1 200 OK\r\n{lines}\r\n\r\n2\r\nab\r\n0\r\n\r\n"
        port = serve(answering(answer.encode()))
        assert said(connected(port), head("GET /", port))[9:12] == b"502"
        (request,) = log.taken(wait=True)
        assert request.error == "no whole answer: it is malformed"

    @pytest.mark.parametrize("upgrade", ["h2c", "TLS/1.0", "echo"])
    def test_other_protocols_than_websocket(self, connected, upgrade):
        """Nothing in them would be read: the request stays one of HTTP/1.1."""
        with served() as site:
            lines = (f"Upgrade: {upgrade}", "Connection: Upgrade, close")
            assert said(connected(site.port), head("GET /", site.port, *lines))[9:12] == b"200"
            assert "upgrade" not in site.seen[0][2]
