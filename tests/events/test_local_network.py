"""The network of this machine under the preset `workspace`; the rest stays closed."""

import os
import sys
import textwrap

import programs
import pytest

HEAD = """
import asyncio, http.server, os, socket, sys, threading, urllib.request
from fastaudit_rs import AuditDenied, Policy

def denied(function, *args):
    try:
        function(*args)
    except AuditDenied as error:
        return error.rule
    return None

def bind(address, kind=socket.SOCK_STREAM, family=socket.AF_INET):
    with socket.socket(family, kind) as server:
        server.bind(address)

def connect(address, family=socket.AF_INET):
    with socket.socket(family) as client:
        client.settimeout(1)
        client.connect(address)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"served")

    def log_message(self, *args):
        pass

def serve(host):
    server = http.server.ThreadingHTTPServer((host, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
"""


def running(preset, directory):
    def run_code(code):
        body = textwrap.indent(textwrap.dedent(code), "    ")
        program = f"{HEAD}\nwith Policy.preset({preset!r}).guard()() as guard:\n{body}\n"
        environment = {**os.environ, "no_proxy": "*", "PYTHONPATH": os.pathsep.join(sys.path)}
        program += "print(guard.violation_count)"
        done = programs.ran(program, cwd=directory, env=environment, timeout=90)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return run_code


@pytest.fixture(params=["workspace", "notebook"])
def run(request, tmp_path):
    """`run(code)`: what it prints under a preset, in a process and a directory of its own."""
    return running(request.param, tmp_path)


@pytest.fixture
def run_in_workspace(tmp_path):
    return running("workspace", tmp_path)


class TestServers:
    @pytest.mark.slow
    def test_of_http(self, run):
        code = """
        for host in ("127.0.0.1", "localhost"):
            server = serve(host)
            for name in ("127.0.0.1", "localhost"):
                url = f"http://{name}:{server.server_port}/"
                print(urllib.request.urlopen(url).read().decode())
            server.shutdown()
            server.server_close()
        """
        assert run(code) == ["served"] * 4 + ["0"]

    def test_of_asyncio(self, run):
        code = """
        async def answer(reader, writer):
            writer.write(await reader.readline())
            await writer.drain()
            writer.close()
        async def main():
            for host in ("127.0.0.1", "localhost"):
                async with await asyncio.start_server(answer, host, 0) as server:
                    port = server.sockets[0].getsockname()[1]
                    reader, writer = await asyncio.open_connection(host, port)
                    writer.write(b"echo\\n")
                    print((await reader.readline()).decode())
                    writer.close()
            async with await asyncio.start_unix_server(answer, "socket"):
                reader, writer = await asyncio.open_unix_connection("socket")
                writer.write(b"unix\\n")
                print((await reader.readline()).decode())
                writer.close()
        asyncio.run(main())
        """
        assert run(code) == ["echo", "echo", "unix", "0"]

    def test_of_datagrams(self, run):
        code = """
        kind = socket.SOCK_DGRAM
        with socket.socket(type=kind) as one, socket.socket(type=kind) as two:
            one.bind(("127.0.0.1", 0))
            two.sendto(b"sent", one.getsockname())
            print(one.recv(10).decode())
        """
        assert run(code) == ["sent", "0"]


class TestOutside:
    def test_is_not_listened_to(self, run_in_workspace):
        code = """
        for host in ("0.0.0.0", "", "<broadcast>"):
            print(denied(bind, (host, 0)))
            print(denied(bind, (host, 0), socket.SOCK_DGRAM))
        for host in ("::", "::ffff:0.0.0.0", ""):
            print(denied(bind, (host, 0), socket.SOCK_STREAM, socket.AF_INET6))
        """
        *rules, count = run_in_workspace(code)
        assert set(rules) == {"network.listen"}
        assert (len(rules), count) == (9, "9")

    def test_is_not_reached(self, run_in_workspace):
        code = """
        for host in ("192.0.2.1", "10.0.0.1", "169.254.169.254", "126.255.255.255", "128.0.0.0"):
            print(denied(connect, (host, 80)))
        print(denied(connect, ("2001:db8::1", 80), socket.AF_INET6))
        print(denied(connect, ("::ffff:192.0.2.1", 80), socket.AF_INET6))
        with socket.socket(type=socket.SOCK_DGRAM) as one:
            print(denied(one.sendto, b"x", ("192.0.2.1", 53)))
        """
        assert run_in_workspace(code) == ["network.hosts"] * 8 + ["8"]

    def test_no_names_are_looked_up(self, run_in_workspace):
        """A look-up goes out as well, that of an address too."""
        code = """
        for look_up in (
            lambda: socket.getaddrinfo("example.com", 80),
            lambda: socket.gethostbyname("example.com"),
            lambda: socket.gethostbyname_ex("secret.example.com"),
            lambda: socket.gethostbyaddr("192.0.2.1"),
            lambda: socket.getnameinfo(("192.0.2.1", 80), 0),
            lambda: socket.gethostbyaddr("2001:db8::1"),
        ):
            print(denied(look_up))
        socket.getaddrinfo(None, 80), socket.getaddrinfo("127.0.0.1", 80)
        socket.getaddrinfo("localhost", 80), socket.getfqdn("127.0.0.1")
        """
        *rules, count = run_in_workspace(code)
        assert count == "6"
        assert set(rules) <= {"network.hosts", "network.lookup"}
        assert len(rules) == 6

    def test_sockets_elsewhere(self, run_in_workspace, tmp_path_factory):
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        code = f"""
        print(denied(bind, "{elsewhere}/s", socket.SOCK_STREAM, socket.AF_UNIX))
        print(denied(connect, "{elsewhere}/s", socket.AF_UNIX))
        print(denied(connect, "/run/docker.sock", socket.AF_UNIX))
        print(denied(connect, "\\0abstract", socket.AF_UNIX))
        bind("s", socket.SOCK_STREAM, socket.AF_UNIX)
        """
        *rules, _ = run_in_workspace(code)
        assert rules[:4] == ["network.unix"] * 4
