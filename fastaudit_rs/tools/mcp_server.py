"""An MCP server with a tool that runs Python: a session for each client, in which names last.

It is served on standard input and output for one client, over HTTP for several.

Model Context Protocol: https://modelcontextprotocol.io/specification
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Annotated, Any
from weakref import WeakSet

import anyio
from mcp.server import MCPServer
from mcp.server.context import CallNext, ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    UNSUPPORTED_PROTOCOL_VERSION,
    ReadResourceResult,
    ResourceLink,
    ToolAnnotations,
)
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from .. import __version__
from .._for_model import clean
from .._text import printable
from ..results import Result
from ..sessions.base import Session
from .mcp_files import FILES, ChangedFiles
from .mcp_result import RanResult, refused, tool_result

#: Opens the session of a client; it is closed when the client leaves.
Opens = Callable[[], AbstractContextManager[Session]]

#: Tells a client of progress: the characters so far, of how many, and the text since then.
Report = Callable[[float, float | None, str | None], Awaitable[None]]

SESSION = "mcp-session-id"

#: The time between two notifications of progress, in seconds, and the characters of each.
EVERY, PIECE = 0.1, 4_000

#: The characters of each text of a result.
MOST = 20_000

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

ENDING = (signal.SIGINT, signal.SIGTERM)

#: The clients that may be connected besides those whose code runs.
WAITING = 100

#: The threads for other work, besides those for the steps of sessions.
MORE = 4


TOOL = """\
Run Python code, as a cell of a notebook.

Names, imports and the working directory last from call to call. You get what the code prints, the
value of its last expression, its figures as images, its exception, and links to files that it made
or changed. `await` may stand at the top level. Operations that the policy denies raise
PermissionError and are in `denials`.
"""

RESET = """\
Start a fresh session: variables, imports and modules of earlier calls of run_python are forgotten.
Files stay.
"""

#: The tools, and the names of their arguments.
RUN, AGAIN = "run_python", "reset_python"
ARGUMENTS = {RUN: ("code", "timeout"), AGAIN: ()}

#: The answer where as many clients as may be have a session.
FULL = (
    "this server runs code of {} clients at a time, and so many are there: try again when one has "
    "left, or later"
)


def server(
    opens: Opens,
    *,
    name: str = "python",
    max_chars: int = MOST,
    instructions: str | None = None,
    rules: str | None = None,
    max_sessions: int | None = None,
) -> MCPServer[Any]:
    """An MCP server whose tool ``run_python`` runs code in a session; ``reset_python`` begins anew.

    The server is the class of the package `mcp`: a host adds its own tools, and runs it.

    Args:
        opens: Opens the session of a client: a session itself, or a context manager that gives one.
        name: The name of the server.
        max_chars: The characters of each text that a client gets.
        instructions: A text for clients about the server, before the rules.
        rules: What the code may do, as `Session.rules_for_model` tells it: for the tool's
            description, and for clients.
        max_sessions: The number of clients whose code may run at a time.

    Example:
        >>> from fastaudit_rs import Policy
        >>> from fastaudit_rs.tools.mcp_server import server
        >>> made = server(lambda: Policy(write=["out"]).session(timeout=60))
        >>> made.name
        'python'
    """
    about = "\n\n".join(text for text in (instructions, rules) if text) or None
    made: MCPServer[Any] = MCPServer(
        name,
        version=__version__,
        instructions=about,
        lifespan=lambda _: _clients(opens, max_sessions),
        middleware=[_with_sessions, _with_known_arguments, _with_files],
        log_level="WARNING",
    )

    async def run_python(
        ctx: Context[Any, Any],
        code: Annotated[str, Field(description="Python code.")],
        timeout: Annotated[
            float | None, Field(description="Seconds that it may take, up to the limit.", gt=0)
        ] = None,
    ) -> RanResult:
        client = _clients_of(ctx.request_context).of(ctx.request_context)
        try:
            ran, restarted, links = await client.run(code, timeout, ctx.report_progress)
        except (OSError, RuntimeError) as error:
            raise ToolError(str(error)) from error
        return tool_result(ran, restarted, max_chars, links)

    async def reset_python(ctx: Context[Any, Any]) -> str:
        try:
            await _clients_of(ctx.request_context).of(ctx.request_context).reset()
        except (OSError, RuntimeError) as error:
            raise ToolError(str(error)) from error
        return "A fresh session has begun."

    hints = ToolAnnotations(title="Run Python", read_only_hint=False, open_world_hint=True)
    described = f"{TOOL}\n{rules}\n" if rules else TOOL
    made.add_tool(run_python, RUN, description=described, annotations=hints)
    hints = ToolAnnotations(title="Forget variables", read_only_hint=False, open_world_hint=False)
    made.add_tool(reset_python, AGAIN, description=RESET, annotations=hints)
    return made


class _Client:
    """The session of a client, which is opened by its first call."""

    def __init__(self, opens: Opens) -> None:
        self._opens = opens
        self._stack = contextlib.ExitStack()
        self._session: Session | None = None
        self._one_at_a_time = asyncio.Lock()
        #: Held while the session is opened, which its end waits for.
        self._opening = threading.Lock()
        self._is_closed = False
        #: True if no step ran since it was begun anew.
        self._was_reset = False
        self.files = ChangedFiles()

    async def run(
        self, code: str, timeout: float | None, report: Report
    ) -> tuple[Result, bool, list[ResourceLink]]:
        """Run a step.

        Return whether names of earlier ones were lost before, and links to changed files, too.
        """
        async with self._one_at_a_time:
            # Not broken off: a session that is opened is closed later.
            session, restarted = await anyio.to_thread.run_sync(self._ready)
            restarted, self._was_reset = restarted or self._was_reset, False
            if timeout is not None and session.timeout is not None:
                timeout = min(timeout, session.timeout)
            ran = await _ran(session, code, timeout, report)
            links = await anyio.to_thread.run_sync(self.files.note, session, ran)
            return ran, restarted, links

    async def reset(self) -> None:
        """Begin anew; a session that is not opened yet is new."""
        async with self._one_at_a_time:
            if self._session is not None:
                await anyio.to_thread.run_sync(self._session.reset)
                self._was_reset = True

    async def read(self, uri: str) -> ReadResourceResult | None:
        session = self._session
        if session is None:
            return None
        return await anyio.to_thread.run_sync(self.files.read, session, uri)

    def _ready(self) -> tuple[Session, bool]:
        """The session, able to run a step; and whether it had to begin anew for that."""
        session = self._session
        if session is None:
            with self._opening:
                if self._is_closed:
                    raise RuntimeError("the session is closed")
                session = self._session = self._stack.enter_context(self._opens())
            return session, False
        # Its process may have ended, or a step may run that could not be interrupted.
        with contextlib.suppress(RuntimeError):
            session.names  # noqa: B018
            return session, False
        with contextlib.suppress(RuntimeError):
            session.undo()
            return session, False
        session.reset()
        return session, True

    async def close(self) -> None:
        """End the session, with the step that runs."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._close)

    def _close(self) -> None:
        with self._opening:
            self._is_closed = True
            self._stack.close()


async def _ran(session: Session, code: str, timeout: float | None, report: Report) -> Result:
    """Run a step, and tell of its output meanwhile. Cancelling it interrupts the step."""
    stream = session.stream(code, timeout=timeout)
    pieces: list[str] = []
    has_more, ended = asyncio.Event(), asyncio.Event()

    async def tell() -> None:
        """Tell of pieces, not more often than a client can read them."""
        told = 0
        while pieces or not ended.is_set():
            await has_more.wait()
            has_more.clear()
            text = "".join(pieces)
            pieces.clear()
            if text:
                told += len(text)
                await report(told, None, clean(text, PIECE))
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), EVERY)

    telling = asyncio.ensure_future(tell())
    try:
        async for output in stream:
            pieces.append(output.text)
            has_more.set()
        ended.set()
        has_more.set()
        await telling
        return stream.result
    finally:
        telling.cancel()
        # The session can be used by the next call.
        with anyio.CancelScope(shield=True):
            await stream.aclose()


class _Clients:
    """The sessions of the clients: one for a connection, one for each session over HTTP."""

    def __init__(self, opens: Opens, most: int | None) -> None:
        self._opens = opens
        self._most = most
        self._of: dict[str | None, _Client] = {}

    def known(self, ctx: ServerRequestContext[Any, Any]) -> _Client | None:
        """The client of a request, if it has run code."""
        return self._of.get(None if ctx.request is None else ctx.request.headers.get(SESSION))

    def of(self, ctx: ServerRequestContext[Any, Any]) -> _Client:
        request = ctx.request
        key = None if request is None else request.headers.get(SESSION)
        if request is not None and key is None:
            raise ToolError("run_python needs a server that keeps sessions: stateless_http=False")
        client = self._of.get(key)
        if client is None:
            if self._most is not None and len(self._of) >= self._most:
                raise ToolError(FULL.format(self._most))
            client = self._of[key] = _Client(self._opens)
            if key is not None:
                # The client's connection, which the SDK hands to no tool otherwise.
                connection: Any = getattr(ctx.session, "_connection")  # noqa: B009
                connection.exit_stack.push_async_callback(self._end, key)
        return client

    async def _end(self, key: str) -> None:
        client = self._of.pop(key, None)
        if client is not None:
            await client.close()

    async def close(self) -> None:
        for client in list(self._of.values()):
            await client.close()


#: The clients of the servers of this process.
_serving: WeakSet[_Clients] = WeakSet()


@contextlib.asynccontextmanager
async def _clients(opens: Opens, most: int | None) -> AsyncIterator[_Clients]:
    clients = _Clients(opens, most)
    _serving.add(clients)
    try:
        yield clients
    finally:
        await clients.close()


async def _with_sessions(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
    """Send clients over HTTP to a version of the protocol that has sessions.

    From 2026-07-28 on a request over HTTP has no session: names could not last. The error names
    older versions, which clients of the newer ones speak too.
    """
    if ctx.request is not None and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(
            code=UNSUPPORTED_PROTOCOL_VERSION,
            message="this server keeps a session for each client: begin with initialize",
            data={
                "supported": list(HANDSHAKE_PROTOCOL_VERSIONS),
                "requested": ctx.protocol_version,
            },
        )
    return await call_next(ctx)


async def _with_known_arguments(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
    """Refuse arguments that a tool does not have: the SDK leaves them out without a word."""
    params = ctx.params or {}
    known = ARGUMENTS.get(str(params.get("name"))) if ctx.method == "tools/call" else None
    given = params.get("arguments")
    if known is not None and isinstance(given, Mapping):
        unknown = [printable(str(name)[:50]) for name in given if name not in known]
        if unknown:
            takes = ", ".join(known) or "no arguments"
            return refused(f"unknown argument {unknown[0]!r}: {params['name']} takes {takes}")
    return await call_next(ctx)


async def _with_files(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
    """List and read the files that a client's code changed, beside resources of the host."""
    uri = str((ctx.params or {}).get("uri"))
    if ctx.method == "resources/list":
        found = await call_next(ctx)
        client = _clients_of(ctx).known(ctx)
        if client is not None and isinstance(found, dict):
            # It is on its way to the client already.
            own = [
                one.model_dump(by_alias=True, exclude_none=True) for one in client.files.listed()
            ]
            found = {**found, "resources": [*found["resources"], *own]}
        return found
    if ctx.method == "resources/read" and uri.startswith(FILES):
        client = _clients_of(ctx).known(ctx)
        read = None if client is None else await client.read(uri)
        if read is None:
            why = "there is no such file of a call of run_python: it is gone, a link, or too large"
            raise MCPError(code=INVALID_PARAMS, message=why, data={"uri": uri})
        return read
    return await call_next(ctx)


def _clients_of(ctx: ServerRequestContext[Any, Any]) -> _Clients:
    clients: _Clients = ctx.lifespan_context
    return clients


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
    for clients in list(_serving):
        await clients.close()
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
    """Serve clients at an address, until Ctrl-C. Port 0 is any that is free.

    Requests for another host, or from pages of another one, are refused: a page that a browser
    shows could reach the port by a name of its own (DNS rebinding).
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
        # A client that finds no room for its code is told so by the tool.
        app = server.streamable_http_app(
            host=host, max_sessions=most + WAITING, transport_security=_security(found)
        )
        config = uvicorn.Config(
            app, loop="asyncio", log_level="warning", timeout_graceful_shutdown=1
        )
        print(f"fastaudit-rs: serving at {address}", file=sys.stderr, flush=True)
        Server(config).run(sockets=[listening])
