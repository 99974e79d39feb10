"""The network of a sandbox through the host: names hold for all code, and requests are noted."""

import contextlib
import io
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
import time
import zipfile

import promises
import pytest
from egress_servers import resolver, served
from sandboxes import LOOSE

from fastaudit_rs import Network

pytest.importorskip("sandlock")
pytest.importorskip("h11")

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")

#: A client that knows nothing of proxies: it looks a name up and connects.
CLIENT = r"""
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int count, char **argument) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    char text[4096];
    if (getaddrinfo(argument[1], argument[2], &hints, &found)) return 2;
    int s = socket(found->ai_family, SOCK_STREAM, 0);
    if (connect(s, found->ai_addr, found->ai_addrlen)) return 3;
    int size = sprintf(text, "GET /c HTTP/1.0\r\nHost: %s:%s\r\n\r\n", argument[1], argument[2]);
    if (write(s, text, size) != size) return 4;
    shutdown(s, SHUT_WR);
    while ((size = read(s, text, sizeof text)) > 0) fwrite(text, 1, size, stdout);
    return 0;
}
"""

#: The hosts that the compiled client does not reach.
OTHERS = ("evil.test", "127.0.0.1")

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
            return s.recv(5) != b""
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

    @pytest.fixture
    def compiled(self, tmp_path):
        """The path of the compiled client."""
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler is here")
        source = tmp_path / "client.c"
        source.write_text(CLIENT)
        subprocess.run([compiler, "-o", tmp_path / "client", source], check=True)
        return str(tmp_path / "client")

    def test_compiled(self, sandbox, site, compiled):
        code = f"""
            import subprocess
            for host in ("good.test", "evil.test", "127.0.0.1"):
                done = subprocess.run([{compiled!r}, host, "{site.port}"], capture_output=True)
                print(done.returncode, done.stdout[-2:])
        """
        ran = sandbox.run(textwrap.dedent(code))
        assert ran.stdout.splitlines() == ["0 b'/c'", "2 b''", "3 b''"], ran.stderr
        assert [told(request) for request in ran.requests] == [
            ("good.test", site.port, "GET", "/c", 200, "allowed"),
            ("evil.test", None, None, None, None, "denied"),
            ("127.0.0.1", site.port, None, None, None, "denied"),
        ]
        lines = ("failed requests:", *(f"{host}: denied by network.hosts" for host in OTHERS))
        assert "\n".join(lines) in ran.for_model()
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
    def probed(self, sandbox, attempts):
        command = [sys.executable, "-I", "-c", PROBE, json.dumps(attempts)]
        ran = sandbox.run(f"import subprocess; subprocess.run({command!r}, check=True)")
        assert ran.success, ran.stderr
        return json.loads(ran.stdout), ran.requests

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
            reached, requests = self.probed(sandbox, attempts)
            assert (reached, other.seen, six.seen, site.seen) == ([], [], [], [])
        assert len(requests) == len(attempts)
        assert {request.verdict for request in requests} == {"denied"}

    def test_by_other_protocols(self, sandbox):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
            here.bind(("127.0.0.1", 0))
            here.settimeout(0.1)
            ways = [["udp", "127.0.0.1", here.getsockname()[1]], ["udp", "good.test", 53]]
            assert self.probed(sandbox, ways)[0] == []
            with pytest.raises(TimeoutError):
                here.recv(1)

    @pytest.mark.slow
    def test_by_an_address_that_changes(self, sandbox, site):
        """Another thread writes another place, or family, where the kernel reads the address."""
        with served() as other:
            command = [sys.executable, "-I", "-c", CHANGING, str(site.port), str(other.port)]
            ran = sandbox.run(f"import subprocess; subprocess.run({command!r}, check=True)")
            assert ran.success, ran.stderr
            assert (site.seen, other.seen) == ([], [])
        assert {request.verdict for request in ran.requests} == {"denied"}

    def test_by_a_descriptor_that_is_not_open(self, sandbox):
        command = [sys.executable, "-I", "-c", CLOSED]
        ran = sandbox.run(f"import subprocess; subprocess.run({command!r}, check=True)")
        assert ran.stdout == "-1 EBADF\n" * 2, ran.stderr

    def test_by_a_socket_that_the_host_has_bound(self, sandbox, site):
        """It is no server: neither where it failed, nor after it was disconnected."""
        command = [sys.executable, "-I", "-c", LISTENING, str(site.port)]
        ran = sandbox.run(f"import subprocess; subprocess.run({command!r}, check=True)")
        assert ran.stdout == "connected\n1\n", ran.stderr

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


#: Connects while a thread changes the address: it is denied at each moment, by one ring or another.
CHANGING = """
import ctypes, socket, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
places = [
    struct.pack("=H", family) + struct.pack("!H", port) + socket.inet_aton("127.0.0.1") + bytes(8)
    for family in (socket.AF_INET, socket.AF_UNSPEC) for port in map(int, sys.argv[1:])
]
address = ctypes.create_string_buffer(places[0], 16)
going = True
def change():
    while going:
        for place in places:
            address.raw = place
changing = threading.Thread(target=change)
changing.start()
for _ in range(500):
    with socket.socket() as made:
        if libc.connect(made.fileno(), address, 16) == 0:
            try:
                made.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
                made.recv(10)
            except OSError:
                pass
going = False
changing.join()
"""

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


class TestNames:
    @pytest.mark.slow
    def test_below_a_wildcard_lead_into_no_private_network(self, make_sandbox, site):
        code = (
            f"import urllib.request\nurllib.request.urlopen('http://below.wild.test:{site.port}')"
        )
        network = Network(hosts=["*.wild.test"])
        ran = make_sandbox(LOOSE.replace(network=network)).run(code)
        assert [(each.status, each.rule) for each in ran.requests] == [(None, "network.hosts")]
        assert site.seen == []
        network = Network(hosts=["*.wild.test", "127.0.0.1"])
        assert make_sandbox(LOOSE.replace(network=network)).run(code).success
        assert len(site.seen) == 1

    def test_that_lead_to_a_blocked_address(self, make_sandbox, site):
        network = Network(hosts=["good.test"], block=["127.0.0.0/8"])
        ran = make_sandbox(LOOSE.replace(network=network)).run(
            f"import urllib.request\nurllib.request.urlopen('http://good.test:{site.port}')"
        )
        assert "403" in ran.stderr
        assert [(each.host, each.rule) for each in ran.requests] == [("good.test", "network.block")]
        assert site.seen == []

    def test_where_their_usual_addresses_are_blocked(self, make_sandbox, site):
        network = Network(hosts=["good.test"], block=["198.18.0.0/15"])
        code = f"import urllib.request\nurllib.request.urlopen('http://good.test:{site.port}')"
        ran = make_sandbox(LOOSE.replace(network=network)).run(code)
        assert ran.success, ran.stderr

    def test_of_this_machine(self, make_sandbox, site):
        network = Network(hosts=["good.test", f"localhost:{site.port}"])
        ran = make_sandbox(LOOSE.replace(network=network)).run(
            f"import urllib.request\nurllib.request.urlopen('http://localhost:{site.port}/here').read()",
            value=True,
        )
        assert ran.value == "b'/here'", ran.stderr

    def test_that_do_not_exist(self, make_sandbox, site):
        network = Network(hosts=["*.missing.test"])
        ran = make_sandbox(LOOSE.replace(network=network)).run(
            "import urllib.request\nurllib.request.urlopen('http://a.missing.test')"
        )
        assert "502" in ran.stderr
        assert [(each.verdict, "looked up" in each.error) for each in ran.requests] == [
            ("allowed", True)
        ]


@pytest.mark.slow
def test_as_many_connections_as_the_policy_says(make_sandbox, site):
    """They are counted for programs too, until they are closed."""
    network = Network(hosts=["good.test"], max_connections=2)
    command = [sys.executable, "-I", "-c", CONNECTING, str(site.port)]
    ran = make_sandbox(LOOSE.replace(network=network)).run(
        f"import subprocess; subprocess.run({command!r}, check=True)"
    )
    assert ran.stdout == "2 of 5, 2 of 5, 20 of 20\n", ran.stderr
    assert {request.rule for request in ran.requests} == {None, "network.max_connections"}


@pytest.mark.alone
@pytest.mark.slow
def test_descriptors_are_left_for_the_host(make_sandbox, site):
    """All connections of all sandboxes take no more than half of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    network = Network(hosts=["good.test"], max_connections=40)
    command = [sys.executable, "-I", "-c", HOLDING, str(site.port)]
    code = f"import subprocess; subprocess.run({command!r}, check=True)"
    sandbox = make_sandbox(LOOSE.replace(network=network))
    assert sandbox.run("1").success
    with contextlib.ExitStack() as stack:
        used = stack.enter_context(open(os.devnull)).fileno()
        limit = 2 * (used + 40)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        ran = sandbox.run(code)
    assert ran.success, ran.stderr
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
        get = f"import urllib.request as u; u.urlopen('http://good.test:{site.port}/{{}}').read()"
        with sandbox.session() as session:
            for path in ("one", "two"):
                ran = session.run(get.format(path))
                assert ran.value == f"/{path}".encode(), ran.stderr
                assert [request.path for request in ran.requests] == [f"/{path}"]
            assert session.run("1").requests == []

    @pytest.mark.slow
    def test_of_runs_side_by_side(self, sandbox, site):
        found = {}
        get = f"import urllib.request as u; u.urlopen('http://good.test:{site.port}/{{}}').read()"
        with sandbox.pool(2) as pool:

            def run(name):
                found[name] = pool.run(get.format(name)).requests

            threads = [threading.Thread(target=run, args=(name,)) for name in ("one", "two")]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert {name: [each.path for each in made] for name, made in found.items()} == {
            "one": ["/one"],
            "two": ["/two"],
        }

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
        command = [sys.executable, "-I", "-c", MANY]
        ran = sandbox.run(
            f"import subprocess; subprocess.run({command!r}, check=True)\n"
            f"import urllib.request as u; u.urlopen('http://good.test:{site.port}/after').read()"
        )
        assert ran.success and len(ran.requests) == 1001, ran.stderr
        assert ran.requests[-1].path == "/after"
        # One of the ports is that of the name server.
        assert ran.requests_left_out == 99 and "1100 requests" in repr(ran)
        assert "99 more requests are not listed" in ran.for_model()

    def test_repr(self, sandbox, site):
        code = f"import urllib.request as u; u.urlopen('http://good.test:{site.port}/a?b').read()"
        (request,) = sandbox.run(code).requests
        told = sandbox.run(f"import urllib.request as u; u.urlopen('http://good.test:{site.port}')")
        assert "1 request," in repr(told) and "request" not in told.for_model()
        where = f"GET good.test:{site.port}/a: 200, 0 bytes sent, 4 received, "
        assert repr(request).startswith(f"<Request {where}")
        assert 0 < time.time() - request.time < 60 and 0 < request.duration < 20


#: More denied connections than are kept.
MANY = """
import socket
for port in range(1, 1101):
    with socket.socket() as made:
        made.connect_ex(("10.0.0.1", port))
"""


class TestOtherProtocols:
    @pytest.fixture
    def spoken(self, monkeypatch, make_sandbox):
        """`spoken(serve, code)`: the run of code where a function serves one connection."""
        monkeypatch.setattr(socket, "getaddrinfo", resolver({"good.test": "127.0.0.1"}))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            sandbox = make_sandbox(LOOSE.replace(network=Network(hosts=[f"good.test:{port}"])))

            def run(serve, code):
                def accept():
                    with listener.accept()[0] as one:
                        serve(one)

                thread = threading.Thread(target=accept, daemon=True)
                thread.start()
                start = "import socket\ns = socket.create_connection(('good.test', PORT))\n"
                return sandbox.run((start + code).replace("PORT", str(port)), value=True)

            yield run

    @pytest.mark.slow
    def test_where_the_server_speaks_first(self, spoken):
        def serve(one):
            one.sendall(b"220 hello\r\n")
            one.sendall(one.recv(100).upper())

        ran = spoken(serve, "s.recv(100), s.sendall(b'get / http/1.1\\r\\n'), s.recv(100)")
        assert ran.value == "(b'220 hello\\r\\n', None, b'GET / HTTP/1.1\\r\\n')", ran.stderr
        (request,) = ran.requests
        assert (request.method, request.sent, request.received) == (None, 16, 27)

    def test_where_the_client_does(self, spoken):
        ran = spoken(
            lambda one: one.sendall(one.recv(100)[::-1]), "s.sendall(b'\\0abc'); s.recv(100)"
        )
        assert ran.value == "b'cba\\x00'", ran.stderr

    @pytest.mark.slow
    def test_requests_for_others(self, spoken):
        """Nothing of them reaches the server, after a silence neither."""
        heard = []
        for number, said in enumerate(FOR_OTHERS):
            silence = "import time; time.sleep(0.7)\n" if number == 0 else ""
            code = f"{silence}s.sendall({said.encode()!r}); s.recv(12)"
            ran = spoken(lambda one: heard.append(one.recv(100)), code)
            assert ran.value in {f"b'HTTP/1.1 {status}'" for status in (400, 403, 431, 505)}, said
            (request,) = ran.requests
            assert request.status is None
            assert request.rule == "network.hosts" or request.error == "the request is malformed"
        assert not any(heard)


#: Requests that are for another site than the one that is connected to, or for none.
FOR_OTHERS = [
    "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",
    "CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: good.test:1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: good.test@evil.test\r\n\r\n",
    "GET / HTTP/1.1\r\n Host: good.test\r\nHost: evil.test\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    f"GET /{'x' * 200_000} HTTP/1.1\r\nHost: good.test\r\n\r\n",
]
