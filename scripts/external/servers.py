"""The servers that programs find in the network of a place, which write down what they heard.

All names lead to ADDRESS. What they heard is a list of lines: `http GET /path`, `ftp STOR name`.
"""

import contextlib
import fcntl
import http.server
import socket
import socketserver
import ssl
import struct
import threading
from typing import NamedTuple

import trustme

#: Of TEST-NET-3, which nobody has.
ADDRESS = "203.0.113.10"
AUTHORITY = "/etc/ssl/lab-authority.pem"
DATAGRAMS = 5388
SIOCSIFFLAGS, SIOCSIFADDR, IFF_UP = 0x8914, 0x8916, 1


class Site(NamedTuple):
    """What the web servers show: one page, and who they are by an authority made for it."""

    page: bytes
    context: ssl.SSLContext
    authority: bytes


def make_site(page: bytes) -> Site:
    """A site of a page for the names that programs ask for."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("1mocat.github.io", "example.com", "*.example.com").configure_cert(context)
    return Site(page, context, authority.cert_pem.bytes())


def files(site: Site) -> dict[str, tuple[bytes, int, int]]:
    """The files with which programs find the servers, and trust them."""
    texts = {
        AUTHORITY: site.authority,
        "/etc/resolv.conf": f"nameserver {ADDRESS}\n".encode(),
        "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files dns\n",
        "/etc/hosts": b"127.0.0.1 localhost\n",
    }
    return {name: (content, 0o644, 0) for name, content in texts.items()}


class Network:
    """The network of this namespace, with all servers."""

    def __init__(self, site: Site) -> None:
        """Begin, with nothing heard."""
        self.heard: list[str] = []
        configure()
        self.datagrams = bound(DATAGRAMS)
        names = bound(53)
        threading.Thread(target=self._names, args=(names,), daemon=True).start()
        handlers = {80: Web, 443: Web, 5758: Web, 21: Ftp, 22: Ssh, 25: Smtp, 5389: Shell}
        self.servers = [Server(port, kind, self.heard, site) for port, kind in handlers.items()]

    def _names(self, names: socket.socket) -> None:
        while True:
            query, client = names.recvfrom(4096)
            name, end = question(query)
            self.heard.append(f"dns {name}")
            is_ip4 = query[end : end + 2] == b"\0\1"
            answer = query[:2] + struct.pack("!5H", 0x8180, 1, is_ip4, 0, 0) + query[12 : end + 4]
            if is_ip4:
                answer += struct.pack("!HHHIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton(ADDRESS)
            names.sendto(answer, client)

    def heard_all(self) -> list[str]:
        """What was heard until now; nothing that was sent before is missing."""
        for server in self.servers:
            # It serves one after the other, and this comes last.
            with (
                contextlib.suppress(OSError),
                socket.create_connection(server.server_address, 10) as last,
            ):
                last.shutdown(socket.SHUT_WR)
                while last.recv(4096):
                    pass
        heard = list(self.heard)
        self.datagrams.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                heard.append(f"udp {len(self.datagrams.recv(65536))}")
        return heard


def configure() -> None:
    """Give the loopback interface ADDRESS too, and begin it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        fcntl.ioctl(one, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
        address = struct.pack("16sHH4s8x", b"lo:0", socket.AF_INET, 0, socket.inet_aton(ADDRESS))
        fcntl.ioctl(one, SIOCSIFADDR, address)


def bound(port: int) -> socket.socket:
    """A socket that gets datagrams."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("", port))
    return made


def question(query: bytes) -> tuple[str, int]:
    """The name that a query asks for, and where it ends."""
    at, labels = 12, []
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels), at + 1


class Server(socketserver.TCPServer):
    """A server that serves one connection after the other."""

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, port: int, handler: type, heard: list[str], site: Site) -> None:
        """Serve in a thread."""
        super().__init__(("", port), handler)
        self.heard, self.page = heard, site.page
        if port == 443:
            self.socket = site.context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that goes away is no error."""


class Web(http.server.BaseHTTPRequestHandler):
    """Web pages, the server of uploads, a service of messages, and a store in a cloud."""

    def do_GET(self) -> None:
        """Answer with the one page."""
        self.server.heard.append(f"http GET {self.path}")
        self.answer(200, self.server.page)

    def do_POST(self) -> None:
        """Take what is sent."""
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        self.server.heard.append(f"http {self.command} {self.path} {length}")
        self.answer(200 if length else 400, f"Received data of length {length}".encode())

    do_PUT = do_POST

    def answer(self, status: int, content: bytes) -> None:
        """Answer."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


class Lines(socketserver.StreamRequestHandler):
    """A protocol of lines."""

    def say(self, line: str) -> None:
        """Send a line."""
        self.wfile.write(f"{line}\r\n".encode())

    def next(self) -> tuple[str, str]:
        """The next command and the rest of its line; empty at the end."""
        command, _, rest = self.rfile.readline().decode(errors="replace").strip().partition(" ")
        return command.upper(), rest


class Ftp(Lines):
    """A server of FTP that takes files."""

    def handle(self) -> None:
        """Answer commands until one ends the session."""
        data = None
        self.say("220 ready")
        while (said := self.next())[0]:
            command, rest = said
            if command == "PASV":
                data = socket.create_server((ADDRESS, 0))
                port = data.getsockname()[1]
                self.say(f"227 ({ADDRESS.replace('.', ',')},{port >> 8},{port & 255})")
            elif command == "STOR" and data:
                self.say("150 send it")
                with data, data.accept()[0] as sender:
                    while sender.recv(65536):
                        pass
                self.server.heard.append(f"ftp STOR {rest}")
                self.say("226 done")
            elif command == "QUIT":
                self.say("221 bye")
                return
            else:
                self.say({"USER": "331 password", "PASS": "230 in"}.get(command, "200 ok"))


class Ssh(Lines):
    """The beginning of SSH: versions and the client's offer of algorithms."""

    def handle(self) -> None:
        """Tell the version, and read the client's."""
        self.say("SSH-2.0-lab")
        version = self.rfile.readline().decode(errors="replace").strip()
        if version.startswith("SSH-2.0-"):
            self.server.heard.append(f"ssh {version}")


class Smtp(Lines):
    """A server that takes mail."""

    def handle(self) -> None:
        """Answer commands until one ends the session."""
        self.say("220 ready")
        while (command := self.next()[0]) not in ("", "QUIT"):
            if command == "DATA":
                self.say("354 send it")
                while (line := self.rfile.readline()) and line.strip() != b".":
                    pass
                self.server.heard.append("smtp DATA")
            self.say("250 ok")
        self.say("221 bye")


class Shell(socketserver.BaseRequestHandler):
    """The other end of a reverse shell: asks for one command, then for the end."""

    def handle(self) -> None:
        """Ask, once the client has said something."""
        if not self.request.recv(1024):
            return
        self.server.heard.append("shell")
        self.request.sendall(b"pwd")
        self.request.recv(1024)
        self.request.sendall(b"exit")
