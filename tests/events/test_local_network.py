"""The network of this machine under the preset `workspace`; the rest stays closed."""

import os
import sys
import textwrap

import programs
import pytest

HEAD = """
import asyncio, http.server, socket, threading, urllib.request
from fastaudit_rs import Policy

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


@pytest.fixture(params=["workspace", "notebook"])
def run(request, tmp_path):
    """`run(code)`: what it prints under a preset, in a process and a directory of its own."""

    def run_code(code):
        body = textwrap.indent(textwrap.dedent(code), "    ")
        program = f"{HEAD}\nwith Policy.preset({request.param!r}).guard()() as guard:\n{body}\n"
        environment = {**os.environ, "no_proxy": "*", "PYTHONPATH": os.pathsep.join(sys.path)}
        program += "print(guard.violation_count)"
        done = programs.ran(program, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return run_code


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
