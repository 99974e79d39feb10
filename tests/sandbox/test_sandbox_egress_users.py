"""The network of a sandbox through the host, as root and as an ordinary user."""

import json

import pytest
from repository import ROOT
from users import USERS, run_as

pytest.importorskip("h11")
trustme = pytest.importorskip("trustme")

#: A host with two sites, one of them with TLS, and a secret.
HOST = """
import json, os, socket, ssl, sys, tempfile
sys.path.insert(0, {support!r})
import trustme
from egress_servers import resolver, served
from sandboxes import LOOSE
from fastaudit_rs import Network, Sandbox, Secret
authority = trustme.CA()
os.environ["SSL_CERT_FILE"] = os.path.join(tempfile.mkdtemp(), "authority.pem")
authority.cert_pem.write_to_path(os.environ["SSL_CERT_FILE"])
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
authority.issue_cert("good.test").configure_cert(context)
socket.getaddrinfo = resolver({{"good.test": "127.0.0.1"}})
program = '''
import os, socket, sys, urllib.request
plain, tls, other = sys.argv[1:]
def got(url):
    request = urllib.request.Request(url, headers={{"X-Key": os.environ["KEY"]}})
    try:
        return urllib.request.urlopen(request).read().decode()
    except OSError as error:
        return type(error).__name__
print(got(f"http://good.test:{{plain}}/plain"))
print(got(f"https://good.test:{{tls}}/tls"))
print(got(f"http://127.0.0.1:{{other}}/other"))
print(got(f"http://other.test:{{other}}/other"))
'''
with served() as plain, served(tls=context) as tls, served() as other:
    ports = [str(each.port) for each in (plain, tls, other)]
    network = Network(hosts=["good.test"])
    secret = Secret("KEY", hosts=["good.test"], value="the value of it")
    with Sandbox(LOOSE.replace(network=network), secrets=[secret]) as sandbox:
        sandbox.write_file("program.py", program)
        ran = sandbox.run(
            "import subprocess, sys\\n"
            "subprocess.run([sys.executable, '-I', 'program.py', *sys.argv[1:]], check=True)",
            ports,
        )
    seen = [site.seen[0][2].get("x-key") if site.seen else None for site in (plain, tls, other)]
told = [(each.host, each.path, each.status, each.rule) for each in ran.requests]
print(json.dumps([ran.stdout.split(), seen[1:], told, ran.stderr]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("user", USERS)
def test_names_and_secrets(user):
    program = HOST.format(support=str(ROOT / "tests/support"))
    said, seen, told, stderr = json.loads(run_as(user, program))
    assert said == ["/plain", "/tls", "URLError", "URLError"], stderr
    assert seen == ["the value of it", None]
    assert told == [
        ["good.test", "/plain", 200, None],
        ["good.test", "/tls", 200, None],
        ["127.0.0.1", None, None, "network.hosts"],
        ["other.test", None, None, "network.hosts"],
    ]
