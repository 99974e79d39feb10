"""An MCP server with a tool that runs Python: a session for each client, in which names last.

It is served on standard input and output for one client, over HTTP for several.

Model Context Protocol: https://modelcontextprotocol.io/specification
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
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
    Resource,
    ResourceLink,
    ToolAnnotations,
)
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from .. import __version__
from .._for_model import clean
from .._text import printable
from .._threads import in_thread
from ..results import Result
from ..sessions.base import Session
from ..sessions.manager import SessionManager
from ..sessions.queued import Opens
from . import http
from .mcp_files import FILES, ChangedFiles
from .mcp_result import RanResult, refused, tool_result

#: Tells a client of progress: the characters so far, of how many, and the text since then.
Report = Callable[[float, float | None, str | None], Awaitable[None]]

SESSION = "mcp-session-id"

#: The time between two notifications of progress, in seconds, and the characters of each.
EVERY, PIECE = 0.1, 4_000

#: The characters of each text of a result.
MOST = 20_000

ENDING = (signal.SIGINT, signal.SIGTERM)

#: The clients that may be connected besides those whose code runs.
WAITING = 100


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

    Examples:
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
        clients, request = _clients_of(ctx.request_context), ctx.request_context
        try:
            ran, links = await clients.run(request, code, timeout, ctx.report_progress)
        except (OSError, RuntimeError) as error:
            raise ToolError(str(error)) from error
        return tool_result(ran, max_chars, links)

    async def reset_python(ctx: Context[Any, Any]) -> str:
        try:
            await _clients_of(ctx.request_context).reset(ctx.request_context)
        except (OSError, RuntimeError) as error:
            raise ToolError(str(error)) from error
        return "A fresh session has begun."

    hints = ToolAnnotations(title="Run Python", read_only_hint=False, open_world_hint=True)
    described = f"{TOOL}\n{rules}\n" if rules else TOOL
    made.add_tool(run_python, RUN, description=described, annotations=hints)
    hints = ToolAnnotations(title="Forget variables", read_only_hint=False, open_world_hint=False)
    made.add_tool(reset_python, AGAIN, description=RESET, annotations=hints)
    return made


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
        self._sessions = SessionManager(lambda _: opens())
        self._most = most
        #: The files that code of each client changed.
        self._files: dict[str, ChangedFiles] = {}

    async def run(
        self,
        ctx: ServerRequestContext[Any, Any],
        code: str,
        timeout: float | None,
        report: Report,
    ) -> tuple[Result, list[ResourceLink]]:
        """Run a step in the session of a client, which its first call opens."""
        key = self._known(ctx)
        async with self._sessions.asession(key) as session:
            if timeout is not None and session.timeout is not None:
                timeout = min(timeout, session.timeout)
            ran = await _ran(session, code, timeout, report)
            links = await in_thread(self._files[key].note, session, ran)
            return ran, links

    async def reset(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Begin anew, which the next result tells."""
        async with self._sessions.asession(self._known(ctx)) as session:
            await in_thread(session.reset)
            session._restarted = "anew", {}

    def listed(self, ctx: ServerRequestContext[Any, Any]) -> list[Resource]:
        """The files that code of a client changed."""
        files = self._files.get(self._key(ctx))
        return [] if files is None else files.listed()

    async def read(
        self, ctx: ServerRequestContext[Any, Any], uri: str
    ) -> ReadResourceResult | None:
        key = self._key(ctx)
        files, session = self._files.get(key), self._sessions._session_of(key)
        if files is None or session is None:
            return None
        return await in_thread(files.read, session, uri)

    def _key(self, ctx: ServerRequestContext[Any, Any]) -> str:
        """The key of a client; empty if it has no session over HTTP."""
        return "the client" if ctx.request is None else ctx.request.headers.get(SESSION) or ""

    def _known(self, ctx: ServerRequestContext[Any, Any]) -> str:
        key = self._key(ctx)
        if not key:
            raise ToolError("run_python needs a server that keeps sessions: stateless_http=False")
        if key not in self._files:
            if self._most is not None and len(self._files) >= self._most:
                raise ToolError(FULL.format(self._most))
            self._files[key] = ChangedFiles()
            if ctx.request is not None:
                # The client's connection, which the SDK hands to no tool otherwise.
                connection: Any = getattr(ctx.session, "_connection")  # noqa: B009
                connection.exit_stack.push_async_callback(self._end, key)
        return key

    async def _end(self, key: str) -> None:
        """End the session of a client, with the step that runs."""
        with anyio.CancelScope(shield=True):
            await self._sessions.aremove(key)
        self._files.pop(key, None)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await in_thread(self._sessions.close)


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
        own = [
            one.model_dump(by_alias=True, exclude_none=True) for one in _clients_of(ctx).listed(ctx)
        ]
        if own and isinstance(found, dict):
            # It is on its way to the client already.
            found = {**found, "resources": [*found["resources"], *own]}
        return found
    if ctx.method == "resources/read" and uri.startswith(FILES):
        read = await _clients_of(ctx).read(ctx, uri)
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
    try:
        await server.run_stdio_async()
    except Exception as error:
        if not _is_of_pipe(error):
            raise
        await _end(signal.SIGPIPE)


def _is_of_pipe(error: Exception) -> bool:
    """Tell whether the client closed standard output, as an error or a group of them says."""
    errors = getattr(error, "exceptions", None)
    return isinstance(error, BrokenPipeError) if errors is None else all(map(_is_of_pipe, errors))


async def _end(number: int) -> None:
    """End the process: the thread that waits for standard input cannot be asked to."""
    for clients in list(_serving):
        await clients.close()
    os._exit(128 + number)


def serve_http(server: MCPServer[Any], host: str, port: int, most: int) -> None:
    """Serve clients at an address, until Ctrl-C. Port 0 is any that is free.

    Requests for another host, or from pages of another one, are refused.
    """
    listening = http.listen(host, port)
    hosts = http.own_hosts(listening)
    # In full: a pattern of the package, as `localhost:*`, takes whatever follows the colon.
    security = TransportSecuritySettings(
        allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts]
    )
    # A client that finds no room for its code is told so by the tool.
    app = server.streamable_http_app(
        host=host, max_sessions=most + WAITING, transport_security=security
    )
    http.serve(app, listening, "/mcp", most)
