"""The HTTP servers of the command: where they listen, and whose requests they take."""

import asyncio
import logging
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

#: The threads for other work, besides those for code.
MORE = 4


def listen(host: str, port: int) -> socket.socket:
    """Listen at an address; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening


def own_hosts(listening: socket.socket) -> list[str]:
    """The hosts that requests to the loopback are for.

    A page that a browser shows could reach the port by a name of its own (DNS rebinding).
    """
    port = listening.getsockname()[1]
    # Clients leave out the usual port.
    return [f"{name}:{port}" for name in LOOPBACK] + [*(LOOPBACK if port == 80 else ())]


def serve(app: Any, listening: socket.socket, path: str, threads: int) -> None:
    """Serve an ASGI application until Ctrl-C, SIGTERM or SIGHUP.

    Args:
        app: The application.
        listening: The socket, which is closed at the end.
        path: What clients add to the address.
        threads: The threads of the loop that wait for code.
    """
    import uvicorn

    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    place = f"http://{shown}:{port}{path}"

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(threads + MORE))
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                # uvicorn itself ends at SIGINT and SIGTERM.
                signal.signal(
                    signal.SIGHUP, lambda _, frame: self.handle_exit(signal.SIGTERM, frame)
                )
            await super().startup(sockets)
            print(f"fastaudit-rs: serving at {place}", file=sys.stderr, flush=True)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # Calls that run are cancelled, which these would tell as errors.
            for name in ("uvicorn.error", "mcp"):
                logging.getLogger(name).setLevel(logging.CRITICAL)
            await super().shutdown(sockets)

    with listening:
        config = uvicorn.Config(
            app, loop="asyncio", log_level="warning", timeout_graceful_shutdown=1
        )
        Server(config).run(sockets=[listening])
