"""A server that speaks what the sandbox needs of the Docker Engine API, on a local port.

Its containers are processes here: the command of each runs with this Python, as the user of the
tests, in the working directory and with the environment that were asked for, and sees the mounts at
the places where they are on the host. It isolates nothing. The requests to it can be read, and it
fails as it is told.
"""

import contextlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

VERSION = "1.45"

#: The bytes of its output that are kept until it is killed.
MOST = 4 << 20


class Container:
    """A process that stands for a container."""

    def __init__(self, asked):
        self.asked = asked
        self.process = None
        self.killed = False
        self.output = {"stdout": bytearray(), "stderr": bytearray()}
        self.threads = []
        self.started = threading.Event()

    def start(self):
        """Run its command."""
        mounts = {
            mount["Target"]: mount.get("Source") for mount in self.asked["HostConfig"]["Mounts"]
        }
        job = os.path.dirname(mounts["/fastaudit-rs/job"])
        command = [job if part == "/fastaudit-rs" else part for part in self.asked["Cmd"]]
        command[0] = sys.executable
        self.process = subprocess.Popen(
            command,
            cwd=self.asked["WorkingDir"],
            env=dict(entry.split("=", 1) for entry in self.asked["Env"]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        for name in self.output:
            thread = threading.Thread(target=self._read, args=(name,), daemon=True)
            thread.start()
            self.threads.append(thread)
        self.started.set()

    def _read(self, name):
        with getattr(self.process, name) as stream:
            while data := stream.read1():
                self.output[name] += data
                while len(self.output[name]) > MOST and not self.killed:
                    threading.Event().wait(0.01)

    def kill(self):
        """End it, with all that it started."""
        self.killed = True
        self.started.set()
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def wait(self):
        """Its status, as the daemon tells it: 128 and the signal's number."""
        status = self.process.wait()
        return 128 - status if status < 0 else status


class Daemon(ThreadingHTTPServer):
    """The server. `asked` has what containers were asked for, `containers` those that are there."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []
        self.containers = {}
        self.fails = None
        #: The number of orders to kill that it answers with an error.
        self.deaf = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        """The value for ``DOCKER_HOST``."""
        return f"tcp://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """The requests that a sandbox makes, and no others."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        """Say nothing."""

    def answer(self, body, status=200):
        """Send JSON."""
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def handle_request(self):
        """Find what is asked for."""
        url = urlsplit(self.path)
        path = re.sub(r"^/v[\d.]+", "", url.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"null")
        if path == "/_ping":
            return self.answer("OK")
        if path == "/version":
            return self.answer({"ApiVersion": VERSION, "MinAPIVersion": "1.24"})
        if path == "/containers/create":
            if self.server.fails:
                return self.answer({"message": self.server.fails}, 404)
            name = f"{len(self.server.asked):064x}"
            self.server.asked.append(body)
            self.server.containers[name] = Container(body)
            return self.answer({"Id": name, "Warnings": []}, 201)
        _, _, name, *verb = path.split("/")
        container = self.server.containers.get(name)
        if container is None:
            return self.answer({"message": f"No such container: {name}"}, 404)
        return self.about(container, name, verb)

    def about(self, container, name, verb):
        """A request about one container."""
        if self.command == "DELETE":
            container.kill()
            del self.server.containers[name]
            return self.answer(None, 204)
        if verb == ["start"]:
            container.start()
            return self.answer(None, 204)
        if verb == ["wait"]:
            return self.answer({"StatusCode": container.wait()})
        if verb == ["kill"]:
            if self.server.deaf:
                self.server.deaf -= 1
                return self.answer({"message": "not now"}, 500)
            container.kill()
            return self.answer(None, 204)
        if verb == ["json"]:
            state = {"OOMKilled": False}
            return self.answer({"Id": name, "State": state, "Config": {"Tty": False}})
        if verb == ["attach"]:
            return self.attach(container)
        return self.answer({"message": f"what is {self.path}?"}, 400)

    def attach(self, container):
        """Its output, from its start to its end: in frames, each with its stream and its length."""
        self.send_response(101, "UPGRADED")
        self.send_header("Content-Type", "application/vnd.docker.raw-stream")
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", "tcp")
        self.end_headers()
        self.close_connection = True
        container.started.wait()
        sent = dict.fromkeys(container.output, 0)
        while True:
            ended = not any(thread.is_alive() for thread in container.threads)
            for number, name in enumerate(container.output, start=1):
                data = bytes(container.output[name][sent[name] :])
                sent[name] += len(data)
                if data:
                    self.wfile.write(struct.pack(">BxxxL", number, len(data)) + data)
            if ended:
                return
            threading.Event().wait(0.01)

    def handle(self):
        """Whoever asked may have gone meanwhile."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    do_GET = do_POST = do_DELETE = do_HEAD = handle_request
