"""TLS of a sandbox through the host, and the secrets that the host puts into its requests."""

import base64
import contextlib
import json
import shutil
import socket
import ssl
import sys
from functools import partial

import promises
import pytest
from egress_servers import resolver, served
from sandboxes import LOOSE

from fastaudit_rs import Network, Sandbox, SandboxError, SandboxManager, Secret

pytest.importorskip("h11")
trustme = pytest.importorskip("trustme")

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")

#: The modules of the host that carry connections.
EGRESS = "fastaudit_rs.sandbox.host.egress."

#: A value that is nowhere else, made of two parts: this file is no place to find it whole.
VALUE = "s3cr3t-of-the" + "-host/+=0123456789"
SECRET = Secret("KEY", hosts=["good.test"], value=VALUE)


@pytest.fixture
def site(monkeypatch, tmp_path):
    """A site with TLS; the host finds `good.test` and `other.test` there, and trusts it."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    names = "good.test", "other.test", "wrong.test", "no_name.test"
    here = dict.fromkeys(names, "127.0.0.1")
    monkeypatch.setattr(socket, "getaddrinfo", resolver(here))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("good.test", "other.test").configure_cert(context)
    with served(tls=context) as found:
        yield found


@pytest.fixture
def made():
    """`made(site, *secrets)`: a sandbox that reaches the names of the site, with secrets."""
    with contextlib.ExitStack() as stack:

        def make(site, *secrets, names=("good.test", "other.test", "wrong.test")):
            network = Network(hosts=[f"{name}:{site.port}" for name in names])
            sandbox = Sandbox(LOOSE.replace(network=network), secrets=secrets)
            return stack.enter_context(sandbox)

        yield make


def told(ran):
    return [(each.host, each.method, each.path, each.status, each.rule) for each in ran.requests]


#: Opens a URL with the secret in a header, without looking at certificates if there are no secrets.
GET = """
import os, sys, ssl, urllib.request
def get(url, context=None, **headers):
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return urllib.request.urlopen(urllib.request.Request(url, headers=given), context=context)
"""
ANY = "ssl._create_unverified_context()"


class TestWithoutSecrets:
    def test_is_carried_as_it_is(self, made, site):
        code = f"{GET}\nget('https://good.test:{site.port}/a', {ANY}).read()"
        ran = made(site).run(code, value=True)
        assert ran.value == "b'/a'", ran.stderr
        (request,) = ran.requests
        assert (request.method, request.path, request.status) == (None, None, None)
        assert request.sent > 100 and request.received > 100

    def test_the_name_is_that_of_the_connection(self, made, site):
        code = f"""
import socket, ssl
context = ssl._create_unverified_context()
def shaken(name):
    with socket.create_connection(("good.test", {site.port})) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=name) as made:
                return made.version()
        except ssl.SSLError as error:
            return error.reason
[shaken("good.test")[:5], shaken("other.test"), shaken(None)[:5]]
"""
        ran = made(site).run(code, value=True)
        assert ran.value == ["TLSv1", "TLSV1_UNRECOGNIZED_NAME", "TLSv1"], ran.stderr
        assert [(each.host, each.rule) for each in ran.requests] == [
            ("good.test", None),
            ("other.test", "network.hosts"),
            ("good.test", None),
        ]


class TestSecrets:
    def test_reach_the_server_alone(self, made, site):
        """The server sees the value, and the code the placeholder, also in what the server says."""
        site.answer = lambda path, headers: (
            {"X-Echo": headers["authorization"]},
            b"<" + headers["authorization"].encode() + b">",
        )
        code = f"""{GET}
answer = get("https://good.test:{site.port}/a", Authorization="Bearer " + os.environ["KEY"])
[os.environ["KEY"], answer.headers["X-Echo"], answer.read().decode()]
"""
        ran = made(site, SECRET).run(code, value=True)
        assert ran.value is not None, ran.stderr
        placeholder, header, body = ran.value
        assert (header, body) == (f"Bearer {placeholder}", f"<Bearer {placeholder}>")
        assert len(placeholder) == len(VALUE) and placeholder != VALUE
        assert site.seen[0][2]["authorization"] == f"Bearer {VALUE}"
        assert told(ran) == [("good.test", "GET", "/a", 200, None)]

    @pytest.mark.slow
    @pytest.mark.parametrize("client", ["requests", "httpx", "curl"])
    def test_of_clients(self, made, site, client):
        url = f"https://good.test:{site.port}/a"
        codes = {
            "requests": f"import requests; requests.get({url!r}, auth=('me', key)).text",
            "httpx": f"import httpx; httpx.get({url!r}, auth=('me', key)).text",
            "curl": "import subprocess; subprocess.run(['curl', '-sS', '-u', 'me:' + key, "
            f"{url!r}], stdout=subprocess.PIPE, text=True).stdout",
        }
        if client != "curl":
            pytest.importorskip(client)
        elif shutil.which("curl") is None:
            pytest.skip("curl is not here")
        ran = made(site, SECRET).run(
            f"import os; key = os.environ['KEY']\n{codes[client]}", value=True
        )
        assert ran.value == "/a", ran.stderr
        basic = base64.b64encode(f"me:{VALUE}".encode()).decode()
        assert site.seen[0][2]["authorization"] == f"Basic {basic}"

    @pytest.mark.slow
    def test_go_to_no_other_host(self, made, site):
        """Nor into another header, a path or a body."""
        secret = Secret("KEY", hosts=["good.test"], value=VALUE, header="X-Key")
        code = f"""{GET}
key = os.environ["KEY"]
get("https://other.test:{site.port}/1", {ANY}, X_Key=key).read()
get("https://good.test:{site.port}/2", X_Other=key).read()
get("https://good.test:{site.port}/3?" + key).read()
urllib.request.urlopen("https://good.test:{site.port}/4", key.encode()).read()
get("https://good.test:{site.port}/5", X_Key=key).read()
"""
        ran = made(site, secret).run(code)
        assert ran.success, ran.stderr
        having = [path for _, path, *rest in site.seen if VALUE in json.dumps([path, str(rest)])]
        assert having == ["/5"]
        assert [path for *_, path, _, _ in told(ran)] == [None, "/2", "/3", "/4", "/5"]

    def test_another_site_at_the_same_address(self, made, site):
        url = f"https://good.test:{site.port}/"
        ran = made(site, SECRET).run(f"{GET}\nget({url!r}, Host='other.test', X=os.environ['KEY'])")
        assert "403" in ran.stderr and site.seen == []
        assert told(ran) == [("other.test", "GET", "/", None, "network.hosts")]

    @pytest.mark.slow
    def test_in_the_clear_where_the_host_says_so(self, made, monkeypatch):
        monkeypatch.setattr(socket, "getaddrinfo", resolver({"good.test": "127.0.0.1"}))
        with served() as site:
            url = f"http://good.test:{site.port}/"
            code = f"{GET}\nget({url!r}, X_Key=os.environ['KEY']).read()"
            for host in ("good.test", "http://good.test"):
                secret = Secret("KEY", hosts=[host], value=VALUE)
                ran = made(site, secret, names=["good.test"]).run(code)
                if host == "good.test":
                    # A placeholder in the clear is a mistake, and somebody says so.
                    assert "403" in ran.stderr and site.seen == []
                    assert told(ran) == [("good.test", "GET", "/", None, "secrets")]
                    assert str(ran.requests[0]).endswith("/: denied by secrets")
            assert [each[2]["x-key"] for each in site.seen] == [VALUE]

    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "http://localhost"])
    @pytest.mark.parametrize("named", ["localhost", "127.0.0.1"])
    def test_of_this_machine(self, host, named):
        """Its names are one host, and what is sent to it goes over no wire: it needs no TLS."""
        with served() as site, served() as other:
            places = [f"{named}:{site.port}", f"{named}:{other.port}"]
            secret = Secret("KEY", hosts=[f"{host}:{site.port}"], value=VALUE)
            policy = LOOSE.replace(network=Network(hosts=places))
            code = f"{GET}\nfor place in {places!r}: get(f'http://{{place}}/', X=os.environ['KEY'])"
            with Sandbox(policy, secrets=[secret]) as sandbox:
                ran = sandbox.run(code)
            assert ran.success, ran.stderr
            assert site.seen[0][2]["x"] == VALUE and VALUE not in other.seen[0][2]["x"]
        assert told(ran) == [(named, "GET", "/", 200, None)] * 2

    @pytest.mark.slow
    def test_of_this_machine_with_tls(self, monkeypatch, tmp_path):
        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / "authority.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
        with served(tls=context) as site:
            secret = Secret("KEY", hosts=["localhost"], value=VALUE)
            hosts = [f"{host}:{site.port}" for host in ("localhost", "127.0.0.1")]
            policy = LOOSE.replace(network=Network(hosts=hosts))
            with Sandbox(policy, secrets=[secret]) as sandbox:
                for host in ("localhost", "127.0.0.1"):
                    url = f"https://{host}:{site.port}/"
                    ran = sandbox.run(f"{GET}\nget({url!r}, X=os.environ['KEY'])")
                    assert ran.success, ran.stderr
            assert [each[2]["x"] for each in site.seen] == [VALUE] * 2

    @pytest.mark.slow
    def test_no_server_that_is_not_verified(self, made, site):
        secret = Secret("KEY", hosts=["wrong.test"], value=VALUE)
        code = f"{GET}\nget('https://wrong.test:{site.port}/', X_Key=os.environ['KEY'])"
        ran = made(site, secret).run(code)
        assert "502" in ran.stderr
        (request,) = ran.requests
        assert "certificate" in request.error and site.seen == []

    def test_a_host_that_no_certificate_can_name(self, made, site):
        secret = Secret("KEY", hosts=["no_name.test"], value=VALUE)
        code = f"{GET}\nget('https://no_name.test:{site.port}/')"
        ran = made(site, secret, names=["no_name.test"]).run(code)
        assert [each.error for each in ran.requests] == [
            "no certificate can be made for this name, such as one with an underscore"
        ]

    @pytest.mark.slow
    def test_of_a_manager(self, site):
        network = Network(hosts=["good.test"])
        code = f"{GET}\nget('https://good.test:{site.port}/m', X_Key=os.environ['KEY']).read()"
        with SandboxManager(LOOSE.replace(network=network, read=[]), secrets=[SECRET]) as manager:
            for name in ("one", "two"):
                manager.create(name)
                # By a run, and by a step.
                run = manager.session(name).run if name == "two" else partial(manager.run, name)
                assert run(code).success
            assert [each.result.requests[0].path for each in manager.history("one")] == ["/m"]
        assert [each[2]["x-key"] for each in site.seen] == [VALUE, VALUE]

    def test_taken_out_of_pieces(self, made, site):
        """A value that comes in pieces is seen, and bodies of any length are whole."""
        page = (VALUE[:9] + VALUE + "." * 70_000 + VALUE + VALUE[:-1]).encode()
        site.pages["/large"] = page
        url = f"https://good.test:{site.port}/large"
        code = f"{GET}\n[get({url!r}).read().decode(), os.environ['KEY']]"
        ran = made(site, SECRET).run(code, value=True)
        body, placeholder = ran.value
        assert body == page.decode().replace(VALUE, placeholder)


@pytest.mark.slow
@pytest.mark.holds("host", promises.HOST_ENV)
def test_the_value_is_nowhere_in_the_sandbox(made, site, monkeypatch):
    """Not in its variables, its memory and what it may read of /proc, though it has used it."""
    monkeypatch.setenv("KEY", VALUE)
    sandbox = made(site, Secret("KEY", hosts=["good.test"]))
    site.answer = lambda path, headers: ({"X-Echo": VALUE}, VALUE.encode())
    code = f"""{GET}
import ctypes, glob
get("https://good.test:{site.port}/a", X_Key=os.environ["KEY"]).read()
# Its own copy of what is searched for is never whole.
wanted = bytearray({bytes(byte ^ 1 for byte in VALUE.encode())!r})
def has(data):
    turned = data.translate(bytes(byte ^ 1 for byte in range(256)))
    return bytes(wanted) in turned
found, read = [], 0
def note(path, data):
    global read
    read += len(data)
    if has(data):
        found.append(path)
for path in [*glob.glob("/proc/[0-9]*/environ"), *glob.glob("/proc/[0-9]*/cmdline")]:
    try:
        note(path, open(path, "rb").read())
    except OSError:
        pass
note("environ", repr(os.environ).encode())
with open("/proc/self/mem", "rb", 0) as memory:
    for line in open("/proc/self/maps"):
        start, end = (int(each, 16) for each in line.split()[0].split("-"))
        try:
            memory.seek(start)
            note(line, memory.read(end - start))
        except (OSError, OverflowError):
            pass
for at, _, names in os.walk("."):
    for name in names:
        note(name, open(os.path.join(at, name), "rb").read())
[found, read > 1_000_000, has({VALUE[:9]!r}.encode() + {VALUE[9:]!r}.encode())]
"""
    ran = sandbox.run(code, value=True)
    assert site.seen[0][2]["x-key"] == VALUE, ran.stderr
    assert ran.value == [[], True, True], ran.stderr


class TestRules:
    """Rules for requests by method and path."""

    def test_are_held_over_tls(self, made, site):
        network = Network(
            hosts=[f"{name}:{site.port}" for name in ("good.test", "other.test")],
            http=["GET good.test/v1/*"],
        )
        code = f"""{GET}
found = []
for url in ("https://good.test:{site.port}/v1/a", "https://good.test:{site.port}/v2"):
    try:
        found.append(get(url).status)
    except urllib.error.HTTPError as error:
        found.append(error.read().decode())
[*found, get("https://other.test:{site.port}/v2", {ANY}).status]
"""
        with Sandbox(LOOSE.replace(network=network)) as sandbox:
            ran = sandbox.run(code, value=True)
        assert ran.value is not None, ran.stderr
        assert ran.value[0] == ran.value[2] == 200 and "denied by network.http" in ran.value[1]
        assert told(ran) == [
            ("good.test", "GET", "/v1/a", 200, None),
            ("good.test", "GET", "/v2", None, "network.http"),
            ("other.test", None, None, None, None),
        ]

    def test_without_somebody_who_reads_requests(self, site):
        """Nothing is sent where there is no proxy."""
        rules = Network(hosts=["localhost"], http=["GET localhost/*"])
        policy = LOOSE.replace(network=rules)
        code = f"import urllib.request as u; u.urlopen('http://localhost:{site.port}/')"
        with Sandbox(policy, confine="audit") as sandbox:
            ran = sandbox.run(code)
        assert {denied.rule for denied in ran.violations} == {"network.http"}
        assert "a sandbox alone reads" in ran.violations[0].hint and site.seen == []

    @pytest.mark.parametrize("network", [True, Network(hosts=["*"])], ids=["all", "hosts"])
    def test_hold_whatever_answers_may_open(self, network, monkeypatch):
        monkeypatch.setattr(socket, "getaddrinfo", resolver({"good.test": "127.0.0.1"}))
        with served() as site:
            rules = Network(hosts=["good.test"], http=["GET good.test/v1"])
            more = LOOSE.replace(network=network)
            code = f"import urllib.request as u; u.urlopen('http://good.test:{site.port}/v2')"
            policy = LOOSE.replace(network=rules)
            with Sandbox(policy, on_ask=lambda denied: "guard", approvable=more) as sandbox:
                assert "403" in sandbox.run(code).stderr
            assert site.seen == []

    def test_need_a_package(self, monkeypatch):
        for name in [name for name in sys.modules if name.startswith(EGRESS)]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "trustme", None)
        rules = Network(hosts=["good.test"], http=["GET good.test/*"])
        with pytest.raises(SandboxError, match="network.http needs trustme"):
            Sandbox(LOOSE.replace(network=rules))


class TestSecret:
    def test_shows_no_value(self):
        secret = Secret("KEY", hosts=["good.test"], value=VALUE, header="X-Key")
        assert repr(secret) == "Secret('KEY', hosts=['good.test'], header='X-Key')"
        with pytest.raises(TypeError, match="not pickled"):
            __import__("pickle").dumps(secret)

    def test_of_a_variable(self, monkeypatch):
        monkeypatch.setenv("KEY", VALUE)
        assert Secret("KEY", hosts=["good.test"])._value == VALUE
        monkeypatch.delenv("KEY")
        with pytest.raises(ValueError, match="value must be given: the host has no variable KEY"):
            Secret("KEY", hosts=["good.test"])

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"name": 1}, "name must be a str, not int"),
            ({"name": "A B"}, "name must be the name of a variable"),
            ({"hosts": "good.test"}, r"hosts must be a list, not str: write \['good.test'\]"),
            ({"hosts": []}, "hosts must name the hosts"),
            ({"hosts": ["https://good.test"]}, r"^hosts\[0\] must be a host name"),
            ({"value": "short"}, "value must be 8 to 4096 visible characters"),
            ({"value": "with a line\nbreak"}, "value must be 8 to 4096 visible characters"),
            ({"header": "X Key"}, "header must be the name of a header"),
        ],
    )
    def test_bad_ones(self, arguments, error):
        given = {"name": "KEY", "hosts": ["good.test"], "value": VALUE, **arguments}
        with pytest.raises((TypeError, ValueError), match=error):
            Secret(**given)

    def test_need_a_package_that_names_do_not(self, monkeypatch, site):
        for name in [name for name in sys.modules if name.startswith(EGRESS)]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "trustme", None)
        named = LOOSE.replace(network=Network(hosts=["good.test"]))
        with Sandbox(named) as sandbox:
            assert sandbox.run("1").success
        with pytest.raises(SandboxError, match="secrets need trustme: pip install"):
            Sandbox(named, secrets=[SECRET])

    def test_where_they_cannot_be_held(self):
        named = LOOSE.replace(network=Network(hosts=["good.test"]))
        for hosts, ports in ((["good.test:8080"], None), (["*.test"], [8443])):
            reached = LOOSE.replace(network=Network(hosts=hosts, ports=ports))
            with Sandbox(reached, secrets=[Secret("K", ["good.test"], VALUE)]):
                pass
            with pytest.raises(
                ValueError, match="the policy reaches no host of K: name 'typo.com'"
            ):
                Sandbox(reached, secrets=[Secret("K", ["typo.com"], VALUE)])
        with pytest.raises(ValueError, match="secrets need a policy that names hosts"):
            Sandbox(LOOSE, secrets=[SECRET])
        with pytest.raises(SandboxError, match="secrets need the kernel part"):
            Sandbox(named, confine="audit", secrets=[SECRET])
        with pytest.raises(ValueError, match="differ by their names"):
            Sandbox(named, secrets=[SECRET, SECRET])
        with pytest.raises(TypeError, match=r"secrets must be a list, not Secret: write \["):
            Sandbox(named, secrets=SECRET)
