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


#: Connects to a port, while another process writes over the family of the address, and a thread,
#: where it is asked for, puts the socket in the place of a Unix one: whoever looks twice sees two
#: things. Each needs a core to be seen.
CHANGING = """
import ctypes, mmap, os, signal, socket, struct, sys, threading
port, kind, is_swapped = map(int, sys.argv[1:])
libc = ctypes.CDLL(None)
place = struct.pack("!2xH4B8x", port, 127, 0, 0, 1)
shared = mmap.mmap(-1, 16)
shared[:] = place
address = ctypes.addressof(ctypes.c_char.from_buffer(shared))
# A Unix socket's without a path or none, and one of the internet.
families = [struct.pack("=HH", socket.AF_UNIX, 0) if is_swapped else bytes(4)]
families.append(struct.pack("=H", socket.AF_INET) + place[2:4])
parent, child = os.getpid(), os.fork()
if not child:
    while os.getppid() == parent:
        for family in families * 1000:
            shared[:4] = family
    os._exit(0)
to, current, (unix, _) = os.dup(0), socket.socket(type=kind), socket.socketpair()
going = True
def swap():
    while going:
        for one in (unix, current):
            try:
                os.dup2(one.fileno(), to)
            except OSError:
                pass
threads = [threading.Thread(target=swap)] * is_swapped
for thread in threads:
    thread.start()
for _ in range(1000):
    current = socket.socket(type=kind)
    if not is_swapped:
        os.dup2(current.fileno(), to)
    libc.connect(to, ctypes.c_void_p(address), 16)
    try:
        current.send(b"GET / HTTP/1.0\\r\\n\\r\\n")
        break
    except OSError:
        pass
going = False
for thread in threads:
    thread.join()
os.kill(child, signal.SIGKILL)
"""
