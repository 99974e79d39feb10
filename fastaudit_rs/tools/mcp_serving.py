"""The ways to serve: standard input and output for one client, HTTP for several."""

import asyncio
import os
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

from .mcp_server import close_all

#: The names of the loopback in a URL.
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

#: The signals that end a server, and its sessions before.
ENDING = (signal.SIGINT, signal.SIGTERM)

#: The threads for other work, besides those for the steps of sessions.
MORE = 4


def serve_stdio(server: MCPServer[Any]) -> None:
    """Serve one client, until it closes standard input.

    Descriptor 1 is that of standard error meanwhile, and 0 is empty: nothing that code prints or
    starts gets into the protocol.
    """
    anyio.run(_stdio, server)


async def _stdio(server: MCPServer[Any]) -> None:
    loop = asyncio.get_running_loop()
    ends: list[asyncio.Task[None]] = []

    def end(number: int) -> None:
        ends.append(loop.create_task(_end(number)))

    for number in ENDING:
        loop.add_signal_handler(number, end, number)
    await server.run_stdio_async()


async def _end(number: int) -> None:
    """End the process: the thread that waits for standard input cannot be asked to."""
    await close_all()
    os._exit(128 + number)


def _security(port: int) -> TransportSecuritySettings:
    """The hosts that requests may be for, and the pages that they may come from, each in full.

    A pattern of the package, as `localhost:*`, takes whatever follows the colon.
    """
    hosts = [f"{name}:{port}" for name in LOOPBACK]
    # Clients leave out the usual port.
    hosts += LOOPBACK if port == 80 else ()
    return TransportSecuritySettings(
        allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts]
    )


def serve_http(server: MCPServer[Any], host: str, port: int, most: int) -> None:
    """Serve clients at an address, until Ctrl-C.

    Requests for another host, or from pages of another one, are refused: a page that a browser
    shows could reach the port by a name of its own (DNS rebinding).

    Args:
        server: The server.
        host: An address of the loopback.
        port: The port, or 0 for any that is free.
        most: The sessions that there may be at a time.

    Raises:
        OSError: Nothing can be served there.
    """
    import uvicorn

    class Server(uvicorn.Server):
        async def serve(self, sockets: list[socket.socket] | None = None) -> None:
            # Each step in a sandbox is waited for in a thread of the loop's.
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(most + MORE))
            await super().serve(sockets)

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
        shown = f"[{host}]" if ":" in host else host
        found = listening.getsockname()[1]
        address = f"http://{shown}:{found}/mcp"
        app = server.streamable_http_app(
            host=host, max_sessions=most, transport_security=_security(found)
        )
        config = uvicorn.Config(
            app, loop="asyncio", log_level="warning", timeout_graceful_shutdown=1
        )
        print(f"fastaudit-rs: serving at {address}", file=sys.stderr, flush=True)
        Server(config).run(sockets=[listening])
