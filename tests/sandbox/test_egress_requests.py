"""Rules for requests by method and path: what a server gets is what was judged."""

import socket
import ssl

import pytest
from egress_servers import resolver, said, served

from fastaudit_rs import Network

pytest.importorskip("h11")
pytest.importorskip("h11")
pytest.importorskip("trustme")

import trustme

from fastaudit_rs.sandbox.host.egress.proxy import Proxy
from fastaudit_rs.sandbox.host.egress.secrets import Secrets

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")

#: What may be asked of `good.test`; of `other.test` anything.
ALLOWED = ["GET good.test/v1/*", "POST good.test/v1/items", "* good.test/any"]


@pytest.fixture
def site():
    with served() as found:
        yield found


@pytest.fixture
def authority(monkeypatch, tmp_path):
    """The authority of servers, which the host trusts."""
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    return made


@pytest.fixture
def secrets(authority, tmp_path):
    return Secrets([], tmp_path / "own.pem")


@pytest.fixture
def proxy(monkeypatch, secrets):
    here = {"good.test": "127.0.0.1", "other.test": "127.0.0.1", "here.test": "127.0.0.2"}
    monkeypatch.setattr(socket, "getaddrinfo", resolver(here))
    http = [*ALLOWED, "GET 127.0.0.2/a"]
    proxy = Proxy(Network(hosts=[*here, "127.0.0.2", "localhost"], http=http), secrets)
    yield proxy
    proxy.close()


def request(line, *lines, host="good.test"):
    return "\r\n".join((f"{line} HTTP/1.1", f"Host: {host}", *lines, "", "")).encode()


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("GET /v1/", "/v1/"),
        ("GET /v1/a/b?x=/../y", "/v1/a/b?x=/../y"),
        ("GET /v1/%61", "/v1/a"),
        ("GET /v1/a%2fb", "/v1/a%2Fb"),
        ("POST /v1/items", "/v1/items"),
        ("HEAD /any", "/any"),
        ("GET http://good.test/v1/a", "/v1/a"),
    ],
)
def test_requests_that_a_rule_has(connected, site, log, line, path):
    """They arrive with the path that was judged."""
    host = "good.test" if "//" in line else f"good.test:{site.port}"
    told = said(connected(site.port), request(line, "Connection: close", host=host))
    assert told.startswith(b"HTTP/1.1 200"), told
    assert [each[1] for each in site.seen] == [path]
    assert [(each.status, each.rule) for each in log.taken(wait=True)] == [(200, None)]


HOSTILE = {
    "another path": request("GET /v2/"),
    "another method": request("DELETE /v1/a"),
    "small letters": request("get /v1/a"),
    "without the slash": request("GET /v1"),
    "up": request("GET /v1/../admin"),
    "up, escaped": request("GET /v1/%2e%2e/admin"),
    "up, half escaped": request("GET /v1/.%2E/admin"),
    "up, with an escaped slash": request("GET /v1/..%2fadmin"),
    "up, escaped twice": request("GET /v1/%252e%252e/admin"),
    "up, by a parameter": request("GET /v1/..;/admin"),
    "up, by a backslash": request("GET /v1/..%5cadmin"),
    "here": request("GET /v1/./a"),
    "two slashes": request("GET //v1/a"),
    "a fragment": request("GET /v1/a#/../b"),
    "no text": request("GET /v1/%ff%fe"),
    "an end of a line": request("GET /v1/%0d%0aX:1"),
    "no escape": request("GET /v1/%zz"),
    "an absolute form of a path": request("GET http://good.test/admin"),
    "an absolute form of a host": request("GET http://other.test/v1/a"),
    "two hosts": request("GET http://other.test/v1/a", host="other.test"),
    "another host": request("GET /v1/a", host="other.test"),
    "an asterisk": request("OPTIONS *"),
    "a proxy": request("CONNECT good.test:80"),
    "another method in a header": request("POST /v1/items", "X-HTTP-Method-Override: DELETE"),
    "such a header in other letters": request("POST /v1/items", "x_http_METHOD: DELETE"),
    "another path in a header": request("GET /v1/a", "X-Original-URL: /admin"),
    "two lengths": request("POST /v1/items", "Content-Length: 1", "Content-Length: 2") + b"ab",
    "a length and pieces": request(
        "POST /v1/items", "Content-Length: 4", "Transfer-Encoding: chunked"
    )
    + b"0\r\n\r\nGET /admin HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "two paths": b"GET /v1/a /admin HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "a blank first": b" GET /admin HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "HTTP/0.9": b"GET /admin\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a tab": b"GET\t/admin HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "another protocol": b"HELLO there\r\n",
    "bytes": b"\x00\x01\x02\x03" * 10,
    "TLS that is none": b"\x16\x03\x01\x00\x05hello",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_requests(connected, site, log, name):
    """The server sees none of it, and the log says that it was denied or malformed."""
    told = said(connected(site.port), HOSTILE[name])
    assert b" 200 " not in told and site.seen == []
    noted = log.taken(wait=True)
    assert all(each.status is None and (each.rule or each.error) for each in noted) and noted


@pytest.mark.parametrize(("name", "host"), [("HEAD /admin", "good.test"), ("HEAD /v1/a", "b.test")])
def test_an_answer_to_head_has_no_body(connected, site, name, host):
    told = said(connected(site.port), request(name, host=host))
    head, _, body = told.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 ") and b"Content-Length: " in head and body == b""


def test_long_names(connected, site, log):
    """A request is short in the log, whatever code names."""
    said(connected(site.port), request(f"{'A' * 9000} /v1/a"))
    said(connected(site.port), request("GET /v1/a", host="b" * 9000))
    noted = log.taken(wait=True)
    assert [each.rule for each in noted] == ["network.http", "network.hosts"]
    assert max(len(f"{each.method}{each.host}{each.path}") for each in noted) < 600


def test_each_request_of_a_connection_is_judged(connected, site, log):
    """Also those that come before the answers to others, and what follows a body."""
    pieces = [request("GET /v1/a") + request("POST /v1/items", "Content-Length: 2") + b"ab"]
    pieces += [request("GET /admin") + request("GET /v1/b")]
    told = said(connected(site.port), *pieces)
    assert told.count(b"HTTP/1.1 200") == 2 and b"403" in told
    assert [each[1] for each in site.seen] == ["/v1/a", "/v1/items"]
    assert [each.rule for each in log.taken(wait=True)] == [None, None, "network.http"]


def test_the_answer_says_why(connected, site):
    told = said(connected(site.port), request("DELETE /v1/a"))
    assert b"denied by network.http: no rule has DELETE good.test:" in told


def test_no_other_protocol_follows(connected, site):
    """Nobody would read what goes on in it."""
    lines = ("Connection: upgrade, close", "Upgrade: websocket")
    assert b" 200 " in said(connected(site.port), request("GET /v1/a", *lines))
    assert "upgrade" not in site.seen[0][2]


def test_other_hosts_are_held_to_none(connected, site):
    made = connected(site.port, "other.test")
    assert b" 200 " in said(made, request("GET /admin", "Connection: close", host="other.test"))


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "::ffff:0.0.0.0", "127.0.0.1", "::1"])
def test_all_addresses_of_this_machine(log, address):
    """A rule for one of them holds for those that lead to it."""
    from fastaudit_rs.sandbox.host.egress.log import Wanted
    from fastaudit_rs.sandbox.host.egress.rules import Rules, address_of

    found = address_of(address)
    for rule in ("GET 127.0.0.1:80/a", "GET localhost/a", "GET ::1/a"):
        rules = Rules(Network(hosts=["127.0.0.1:80"], http=[rule]))
        wanted = Wanted(rules.named(found, 80), found, 80, log, None)
        assert rules.holds_requests(wanted.names, 80)
        assert rules.request(wanted.names, 80, "GET", "/a") == "/a"
        assert rules.request(wanted.names, 80, "GET", "/b") is None


@pytest.mark.parametrize(
    ("host", "address"), [("here.test", None), ("127.0.0.2", "127.0.0.2"), ("other", "127.0.0.2")]
)
def test_by_another_name_of_the_address(connected, log, host, address):
    """A name that leads to an address with rules is no way around them."""
    from fastaudit_rs.sandbox.host.egress.rules import address_of

    with served("127.0.0.2") as site:
        made = connected(site.port, host, address and address_of(address))
        assert b" 200 " not in said(made, request("GET /b", host=host))
        assert site.seen == []
    (noted,) = log.taken(wait=True)
    assert noted.rule in ("network.http", "network.hosts")


class TestTLS:
    @pytest.fixture
    def shaken(self, connected, secrets):
        """`shaken(port)`: a connection of TLS whose other end the host has opened."""

        def shake(port, host="good.test"):
            context = ssl.create_default_context(cafile=str(secrets.bundle))
            return context.wrap_socket(connected(port, host), server_hostname=host)

        return shake

    @pytest.fixture
    def safe(self, authority):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("good.test", "other.test").configure_cert(context)
        with served(tls=context) as found:
            yield found

    def test_is_read_where_rules_are(self, shaken, safe, log):
        made = shaken(safe.port)
        assert b" 200 " in said(made, request("GET /v1/a", "Connection: close"))
        assert b" 403 " in said(shaken(safe.port), request("GET /v2"))
        assert [each[1] for each in safe.seen] == ["/v1/a"]
        told = [(each.path, each.status, each.rule) for each in log.taken(wait=True)]
        assert told == [("/v1/a", 200, None), ("/v2", None, "network.http")]

    def test_other_protocols_in_it(self, shaken, safe):
        assert b" 200 " not in said(shaken(safe.port), b"HELLO there\r\n\r\n")
        assert safe.seen == []

    def test_is_not_read_elsewhere(self, connected, safe, authority, tmp_path):
        """The certificate is the server's own."""
        context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
        made = context.wrap_socket(connected(safe.port, "other.test"), server_hostname="other.test")
        assert b" 200 " in said(made, request("GET /v2", "Connection: close", host="other.test"))
