"""Servers of this machine that sandboxes reach by names, which a host's resolver knows."""

import contextlib
import http.server
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

TYPE = {"Content-Type": "text/html"}


class Site(http.server.ThreadingHTTPServer):
    """An HTTP server that notes its requests, and answers with their paths or with its pages."""

    def __init__(self, address: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.pages: dict[str, bytes] = {}
        #: Makes headers and a body of a request's headers and path.
        self.answer: Callable[[str, dict[str, str]], tuple[dict[str, str], bytes]] | None = None
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, 0), Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.port = self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients leave in any way."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append((self.command, self.path, headers, self.rfile.read(size)))
        more: dict[str, str] = {}
        page = self.server.pages.get(self.path, self.path.encode())
        if self.server.answer is not None:
            more, page = self.server.answer(self.path, headers)
        self.send_response(200)
        for name, value in {**TYPE, "Content-Length": str(len(page)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page)

    do_POST = do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def served(address: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Iterator[Site]:
    """A site that is served in a thread."""
    with Site(address, tls) as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield site
        finally:
            site.shutdown()
            thread.join()


def resolver(names: dict[str, str]) -> Callable[..., Any]:
    """A `socket.getaddrinfo` that knows these names, and no others but addresses."""
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host in names:
            return real(names[host], port, *args, **options)
        try:
            socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
        except OSError:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
        return real(host, port, *args, **options)

    return getaddrinfo


def all_of(made):
    """All that comes until the end."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while data := made.recv(1 << 16):
            found += data
    return found


def said(made, *pieces):
    """All that comes after these bytes."""
    with contextlib.suppress(ConnectionError):
        for piece in pieces:
            made.sendall(piece)
    return all_of(made)


def answering(data):
    """An act of a server, which hears a request and says this."""

    def act(one):
        one.recv(1000)
        one.sendall(data)

    return act


def head(method, port, *lines):
    return "\r\n".join((f"{method} HTTP/1.1", f"Host: good.test:{port}", *lines, "", "")).encode()


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
