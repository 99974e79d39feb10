"""The network of a sandbox through the host: names hold for all code, and requests are noted."""

import contextlib
import io
import json
import os
import resource
import shutil
import socket
import sys
import textwrap
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

import promises
import pytest
from egress_servers import CHANGING, resolver, served
from sandboxes import LOOSE, in_copy, unguarded

from fastaudit_rs import Network

pytest.importorskip("h11")

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")

#: Tries each of these without a guard, and tells the ones that an answer came from.
PROBE = """
import json, socket, sys
def reached(kind, host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) as s:
            s.settimeout(5)
            s.connect((host, port))
            s.sendall(b"GET /probe HTTP/1.0\\r\\n\\r\\n")
            return b"".join(iter(lambda: s.recv(4096), b"")) != b""
    except OSError:
        return False
print(json.dumps([each for each in json.loads(sys.argv[1]) if reached(*each)]))
"""


@pytest.fixture
def site(monkeypatch):
    """A site; the host finds `good.test`, `evil.test` and `below.wild.test` there."""
    here = dict.fromkeys(("good.test", "evil.test", "below.wild.test"), "127.0.0.1")
    monkeypatch.setattr(socket, "getaddrinfo", resolver(here))
    with served() as found:
        yield found


@pytest.fixture
def sandbox(make_sandbox, site):
    """One that reaches `good.test` at the port of the site."""
    return make_sandbox(LOOSE.replace(network=Network(hosts=[f"good.test:{site.port}"])))


def told(request):
    """The parts of a request that tests compare."""
    return request.host, request.port, request.method, request.path, request.status, request.verdict


def getting(site, path="", host="good.test"):
    """Code that gets a path of the site."""
    return f"import urllib.request as u; u.urlopen('http://{host}:{site.port}/{path}').read()"


def probed(sandbox, attempts):
    """The attempts that an answer came from, and the run."""
    ran = unguarded(sandbox, PROBE, json.dumps(attempts))
    return json.loads(ran.stdout), ran


CLIENTS = {
    "urllib": "import urllib.request\nurllib.request.urlopen({url!r}).read()",
    "requests": "import requests\nrequests.get({url!r}).content",
    "httpx": "import httpx\nhttpx.get({url!r}).content",
    "asyncio": """
import asyncio
async def get():
    reader, writer = await asyncio.open_connection("{host}", {port})
    writer.write(b"GET /page HTTP/1.1\\r\\nHost: {host}:{port}\\r\\nConnection: close\\r\\n\\r\\n")
    return (await reader.read()).partition(b"\\r\\n\\r\\n")[2]
asyncio.run(get())
""",
    "curl": "import subprocess\n"
    "subprocess.run(['curl', '-sS', {url!r}], stdout=subprocess.PIPE, check=True).stdout",
}


class TestClients:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", CLIENTS)
    def test_reach_the_name_and_nothing_else(self, sandbox, site, name):
        if name in ("requests", "httpx"):
            pytest.importorskip(name)
        if name == "curl" and shutil.which("curl") is None:
            pytest.skip("curl is not here")

        def run(host):
            url = f"http://{host}:{site.port}/page?token=x"
            code = CLIENTS[name].format(url=url, host=host, port=site.port)
            return sandbox.run(code, value=True)

        ran = run("good.test")
        assert ran.value == "b'/page?token=x'" or ran.value == "b'/page'", ran.stderr
        assert [told(request) for request in ran.requests] == [
            ("good.test", site.port, "GET", "/page", 200, "allowed")
        ]
        assert not run("evil.test").success
        assert not run("127.0.0.1").success
        assert len(site.seen) == 1

    def test_without_a_guard(self, sandbox, site):
        attempts = [["tcp", host, site.port] for host in ("good.test", "evil.test", "127.0.0.1")]
        reached, ran = probed(sandbox, attempts)
        assert reached == attempts[:1]
        assert [told(request) for request in ran.requests] == [
            ("good.test", site.port, "GET", "/probe", 200, "allowed"),
            ("evil.test", None, None, None, None, "denied"),
            ("127.0.0.1", site.port, None, None, None, "denied"),
        ]
        lines = (f"{host}: denied by network.hosts" for host in ("evil.test", "127.0.0.1"))
        assert "\n".join(("failed requests:", *lines)) in ran.for_model()
        assert {request.rule for request in ran.requests} == {None, "network.hosts"}

    @pytest.mark.slow
    def test_pip(self, sandbox, site):
        name = "egress_example-1.0-py3-none-any.whl"
        site.pages = {
            "/simple/egress-example/": f'<a href="/files/{name}">{name}</a>'.encode(),
            f"/files/{name}": _wheel(),
        }
        url = f"http://good.test:{site.port}/simple"
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir"]
        command += ["--disable-pip-version-check", "--index-url", url, "egress-example"]
        command += ["--trusted-host", "good.test"]
        code = f"import subprocess; subprocess.run({command!r}, check=True)"
        ran = sandbox.run(code)
        assert ran.success, ran.stderr
        assert name in sandbox.list_files()
        assert {(request.path, request.status) for request in ran.requests} == {
            ("/simple/egress-example/", 200),
            (f"/files/{name}", 200),
        }


def _wheel():
    """A package that holds nothing."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as wheel:
        info = "egress_example-1.0.dist-info"
        metadata = "Metadata-Version: 2.1\nName: egress-example\nVersion: 1.0\n"
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return data.getvalue()


@pytest.mark.holds("kernel", promises.DATA)
class TestNothingElse:
    def test_of_this_machine(self, sandbox, site):
        proxies = sandbox._setup._carrier().places
        with served() as other, served("::1") if socket.has_ipv6 else served() as six:
            attempts = [
                ["tcp", "127.0.0.1", site.port],
                ["tcp", "::ffff:127.0.0.1", site.port],
                ["tcp", "good.test", other.port],
                ["tcp", "127.0.0.1", other.port],
                ["tcp", "127.0.0.2", other.port],
                ["tcp", "::1", six.port],
                ["tcp", "198.18.0.200", site.port],
                *(["tcp", *place] for place in proxies.values()),
            ]
            reached, ran = probed(sandbox, attempts)
            assert (reached, other.seen, six.seen, site.seen) == ([], [], [], [])
        assert len(ran.requests) == len(attempts)
        assert {request.verdict for request in ran.requests} == {"denied"}

    def test_by_other_protocols(self, sandbox):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
            here.bind(("127.0.0.1", 0))
            here.settimeout(0.1)
            ways = [["udp", "127.0.0.1", here.getsockname()[1]], ["udp", "good.test", 53]]
            assert probed(sandbox, ways)[0] == []
            with pytest.raises(TimeoutError):
                here.recv(1)

    @pytest.mark.slow
    def test_by_an_address_that_changes(self, sandbox, site):
        ran = unguarded(sandbox, CHANGING, site.port, int(socket.SOCK_STREAM), 0)
        assert site.seen == []
        assert {request.verdict for request in ran.requests} == {"denied"}

    def test_by_a_descriptor_that_is_not_open(self, sandbox):
        assert unguarded(sandbox, CLOSED).stdout == "-1 EBADF\n" * 2

    def test_by_a_socket_that_the_host_has_bound(self, sandbox, site):
        """It is no server: neither where it failed, nor after it was disconnected."""
        assert unguarded(sandbox, LISTENING, site.port).stdout == "connected\n1\n"

    @pytest.mark.slow
    def test_of_copies_of_the_host(self, sandbox, site):
        """A copy has a proxy of its own."""

        def reaches():
            reached, _ = probed(sandbox, [["tcp", "good.test", site.port]])
            assert len(reached) == 1

        reaches()
        in_copy(reaches)
        reaches()

    def test_of_other_processes(self, sandbox, site):
        """Nobody else uses the proxy, and a sandbox not that of another one."""
        assert sandbox.run("1").success
        for place in sandbox._setup._carrier().places.values():
            with socket.create_connection(place, 5) as stranger:
                with pytest.raises(ConnectionError):
                    stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    while stranger.recv(100):
                        pass
                    raise ConnectionError
        assert site.seen == []


#: Disconnects a socket, and listens at the port that the host has bound it to.
LISTENING = """
import ctypes, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
found = socket.getaddrinfo("good.test", int(sys.argv[1]), socket.AF_INET, socket.SOCK_STREAM)
made = socket.socket()
made.connect(found[0][4])
print("connected")
assert libc.connect(made.fileno(), bytes(16), 16) == 0
try:
    made.listen()
except OSError as error:
    print(error.errno)
"""

#: Connects what is no open descriptor.
CLOSED = """
import ctypes, errno, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
address = struct.pack("=H", socket.AF_INET) + struct.pack("!H", 80) + bytes(12)
for descriptor in (-1, 200):
    print(libc.connect(descriptor, address, 16), errno.errorcode[ctypes.get_errno()])
"""


@pytest.mark.parametrize(
    ("host", "network", "status"),
    [
        ("below.wild.test", {"hosts": ["*.wild.test"]}, 403),
        ("below.wild.test", {"hosts": ["*.wild.test", "127.0.0.1"]}, 200),
        ("good.test", {"hosts": ["good.test"], "block": ["127.0.0.0/8"]}, 403),
        ("good.test", {"hosts": ["good.test"], "block": ["198.18.0.0/15"]}, 200),
        ("localhost", {"hosts": ["good.test", "localhost"]}, 200),
        ("localhost", {"hosts": ["localhost"]}, 200),
        ("a.missing.test", {"hosts": ["*.missing.test"]}, 502),
    ],
    ids=[
        "into this network",
        "by request",
        "blocked",
        "usual address",
        "here",
        "here alone",
        "missing",
    ],
)
def test_names(make_sandbox, site, host, network, status):
    """Those below a wildcard lead into no private network, and none to a blocked address."""
    sandbox = make_sandbox(LOOSE.replace(network=Network(**network)))
    ran = sandbox.run(getting(site, "here", host), value=True)
    assert len(site.seen) == ran.success == (status == 200), ran.stderr
    assert ran.success or str(status) in ran.stderr
    [request] = ran.requests
    assert request.host == host
    if status == 403:
        rule = "network.block" if "block" in network else "network.hosts"
        assert (request.host, request.status, request.rule) == (host, None, rule)
    if status == 502:
        assert request.verdict == "allowed" and "looked up" in request.error


@pytest.mark.slow
def test_as_many_connections_as_the_policy_says(make_sandbox, site):
    """They are counted for programs too, until they are closed."""
    network = Network(hosts=["good.test"], max_connections=2)
    ran = unguarded(make_sandbox(LOOSE.replace(network=network)), CONNECTING, site.port)
    assert ran.stdout == "2 of 5, 2 of 5, 20 of 20\n", ran.stderr
    assert {request.rule for request in ran.requests} == {None, "network.max_connections"}


@pytest.mark.alone
@pytest.mark.slow
def test_descriptors_are_left_for_the_host(make_sandbox, site):
    """All connections of all sandboxes take no more than half of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    network = Network(hosts=["good.test"], max_connections=40)
    sandbox = make_sandbox(LOOSE.replace(network=network))
    assert sandbox.run("1").success
    with contextlib.ExitStack() as stack:
        used = stack.enter_context(open(os.devnull)).fileno()
        limit = 2 * (used + 40)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        ran = unguarded(sandbox, HOLDING, site.port)
    made, denied = map(int, ran.stdout.split())
    assert 0 < made < 40 and denied > 0
    assert {request.rule for request in ran.requests} == {None, "network.max_connections"}


#: Makes connections side by side, and tells how many there are, and how many were denied.
HOLDING = """
import socket, sys
place = socket.getaddrinfo("good.test", int(sys.argv[1]), socket.AF_INET, socket.SOCK_STREAM)[0][4]
made, denied = [], 0
for _ in range(40):
    one = socket.socket()
    one.settimeout(5)
    try:
        one.connect(place)
        one.sendall(b"GET / HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n")
        one.recv(10)
        made.append(one)
    except PermissionError:
        denied += 1
print(len(made), denied)
"""

#: Makes connections side by side, twice, and one after another.
CONNECTING = """
import socket, sys
def connected():
    try:
        return socket.create_connection(("good.test", int(sys.argv[1])), 5)
    except PermissionError:
        return None
def together():
    made = [each for each in [connected() for _ in range(5)] if each]
    for each in made:
        each.close()
    return len(made)
def apart():
    made = connected()
    return made is not None and made.close() is None
print(f"{together()} of 5, {together()} of 5, {sum(apart() for _ in range(20))} of 20")
"""


class TestRequests:
    @pytest.mark.slow
    def test_of_steps(self, sandbox, site):
        with sandbox.session() as session:
            for path in ("one", "two"):
                ran = session.run(getting(site, path))
                assert ran.value == f"/{path}".encode(), ran.stderr
                assert [request.path for request in ran.requests] == [f"/{path}"]
            assert session.run("1").requests == []

    @pytest.mark.slow
    def test_of_runs_side_by_side(self, sandbox, site):
        codes = [getting(site, path) for path in ("one", "two")]
        with sandbox.pool(2) as pool, ThreadPoolExecutor(2) as threads:
            found = list(threads.map(pool.run, codes))
        assert [[each.path for each in ran.requests] for ran in found] == [["/one"], ["/two"]]

    def test_of_many_bytes(self, sandbox, site):
        """Bodies go both ways piece by piece, and are counted."""
        site.pages["/large"] = bytes(20_000_000)
        code = f"""
            import urllib.request
            url = "http://good.test:{site.port}/large"
            len(urllib.request.urlopen(url, bytes(10_000_000)).read())
        """
        ran = sandbox.run(textwrap.dedent(code), value=True)
        assert ran.value == 20_000_000, ran.stderr
        (request,) = ran.requests
        assert (request.method, request.sent, request.received) == ("POST", 10_000_000, 20_000_000)
        assert len(site.seen[0][3]) == 10_000_000

    @pytest.mark.slow
    def test_are_kept_up_to_a_number(self, sandbox, site):
        """Many that are denied hide none that is allowed."""
        ran = unguarded(sandbox, MANY, f"http://good.test:{site.port}/after")
        assert len(ran.requests) == 1001, ran.stderr
        assert ran.requests[-1].path == "/after"
        # One of the ports is that of the name server.
        assert ran.requests_left_out == 99 and "1100 requests" in repr(ran)
        assert "99 more requests are not listed" in ran.for_model()

    def test_repr(self, sandbox, site):
        (request,) = sandbox.run(getting(site, "a?b")).requests
        told = sandbox.run(getting(site))
        assert "1 request," in repr(told) and "request" not in told.for_model()
        where = f"GET good.test:{site.port}/a: 200, 0 bytes sent, 4 received, "
        assert repr(request).startswith(f"<Request {where}")
        assert 0 < time.time() - request.time < 60 and 0 < request.duration < 20


#: More denied connections than are kept, and one that is allowed.
MANY = """
import socket, sys, urllib.request
for port in range(1, 1101):
    with socket.socket() as made:
        made.connect_ex(("10.0.0.1", port))
urllib.request.urlopen(sys.argv[1]).read()
"""
