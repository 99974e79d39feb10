"""The value of a secret in what a server says: neither the code nor the log has it."""

import itertools
import socket

import pytest
from egress_servers import answering, head, resolver, said

from fastaudit_rs import Network, Secret

pytest.importorskip("trustme")

from fastaudit_rs.sandbox.host.egress.proxy import Proxy
from fastaudit_rs.sandbox.host.egress.secrets import Pair, Secrets, Swap

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")

VALUE = "s3cr3t-value-of-some-length"
NAMED = f"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-{VALUE}: 1\r\nX: {VALUE}\r\n\r\n"


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    """A secret for `good.test`, without TLS too."""
    given = [Secret("KEY", hosts=["http://good.test"], value=VALUE)]
    return Secrets(given, tmp_path_factory.mktemp("secrets") / "authority.pem")


@pytest.fixture
def proxy(monkeypatch, secrets):
    here = {"good.test": "127.0.0.1", "other.test": "127.0.0.1"}
    monkeypatch.setattr(socket, "getaddrinfo", resolver(here))
    proxy = Proxy(Network(hosts=[*here]), secrets)
    yield proxy
    proxy.close()


@pytest.mark.parametrize(
    "answer",
    [
        f"HTTP/1.1 200 OK\r\nX Echo: {VALUE}\r\n\r\n",
        f"HTTP/1.1 200 OK\r\nX: \0{VALUE}\r\n\r\n",
        f"HTTP/1.1 200 OK\r\n {VALUE}\r\n\r\n",
        f"HTTP/1.1 200 OK\r\nContent-Length: {VALUE}\r\n\r\n",
        f"HTTP/1.1 200 OK\r\nTransfer-Encoding: {VALUE}\r\n\r\n",
        f"HTTP/1.1 200 {VALUE}\0\r\n\r\n",
        f"HTTP/1.1 {VALUE}\r\n\r\n",
        f"{VALUE} 200 OK\r\n\r\n",
        f"HTTP/1.1 099 {VALUE}\r\n\r\n",
        f"ERROR {VALUE}\r\n\r\n",
        f"{VALUE}\r\n\r\n",
        f"HTTP/1.1 101 {VALUE}\r\nUpgrade: {VALUE}\r\n\r\n{VALUE}",
        f"HTTP/1.1 103 {VALUE}\r\nX-{VALUE}: {VALUE}\r\n\r\n{NAMED}",
        NAMED,
        f"HTTP/1.1 404 {VALUE}\r\nContent-Length: 0\r\n\r\n",
        f"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{VALUE}",
        f"HTTP/1.1 200 OK\r\n\r\n{VALUE}",
        f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{VALUE}\r\n",
        f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0;{VALUE}\r\nX: {VALUE}\r\n\r\n",
        f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na{VALUE}\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + "".join(f"1\r\n{each}\r\n" for each in VALUE)
        + "0\r\n\r\n",
    ],
)
@pytest.mark.parametrize("host", ["good.test", "other.test"])
def test_servers_that_say_it(connected, serve, log, answer, host):
    """Anywhere in an answer of HTTP, malformed or not, of whatever host that is read."""
    port = serve(answering(answer.encode()))
    asked = head("GET /", port, "Connection: close").replace(b"good.test", host.encode())
    told = said(connected(port, host), asked)
    (request,) = log.taken(wait=True)
    assert told[:9] == b"HTTP/1.1 "
    assert VALUE.encode() not in told and VALUE.encode() not in told.replace(b"\r\n1\r\n", b"")
    assert VALUE not in repr(vars(request))


class TestSwap:
    VALUES = (b"secret-1", b"secret-1-and-the-rest", b"the-rest-of-it", b"1-and-th")

    @pytest.fixture
    def swap(self):
        pairs = [
            Pair(bytes([number + 65]) * len(each), each, None)
            for number, each in enumerate(self.VALUES)
        ]
        return Swap(pairs)

    def test_values_that_overlap(self, swap):
        assert swap.out_of(b"secret-1-and-the-rest-of-it.") == b"B" * 21 + b"C" * 6 + b"."
        assert swap.out_of(b"secret-1secret-secret-1") == b"A" * 8 + b"secret-" + b"A" * 8

    @pytest.mark.parametrize("size", [1, 2, 3, 5])
    def test_of_all_sizes(self, swap, size):
        text = b"".join(b"".join(pair) for pair in itertools.product(self.VALUES, self.VALUES))
        pieces = (text[at : at + size] for at in range(0, len(text), size))
        found = b"".join(map(swap.piece, pieces)) + swap.rest()
        assert len(found) == len(text)
        assert not any(each in found for each in self.VALUES)
        assert set(found) == set(b"ABCD")
