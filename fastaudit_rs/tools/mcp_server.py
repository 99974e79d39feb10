"""An MCP server with a tool that runs Python: a session for each client, in which names last.

It is served on standard input and output for one client, over HTTP for several.

Model Context Protocol: https://modelcontextprotocol.io/specification
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
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
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolResult,
    ContentBlock,
    ImageContent,
    TextContent,
    ToolAnnotations,
)
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field

from .. import __version__
from .._notebook import image_of
from .._text import shortened, valid, valid_data, written
from ..results import Result
from ..sessions.base import Session
from ..sessions.manager import SessionManager
from ..sessions.queued import Opens, for_models
from ..sessions.turns import in_thread

#: Tells a client of progress: the characters so far, of how many, and the text since then.
Report = Callable[[float, float | None, str | None], Awaitable[None]]

SESSION = "mcp-session-id"

#: The time between two notifications of progress, in seconds, and the characters of each.
EVERY, PIECE = 0.1, 4_000

#: The characters of each text of a result.
MOST = 20_000

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

ENDING = (signal.SIGINT, signal.SIGTERM)

#: The threads for other work, besides those for the steps of sessions.
MORE = 4


TOOL = """\
Run Python code, as a cell of a notebook.

Names, imports and the working directory last from call to call. You get what the code prints, the
value of its last expression, its figures as images, and its exception. `await` may stand at the
top level. Operations that the policy denies raise PermissionError and are in `denials`: the same
operation will be denied again, so do it another way or tell the user the hint.
"""

CODE = "Python code. It is run with reset=true too; then it may be empty."

RESET = "Begin anew before: without names, imports and modules of earlier calls."


def server(
    opens: Opens, *, name: str = "python", max_chars: int = MOST, instructions: str | None = None
) -> MCPServer[Any]:
    """An MCP server whose tool ``run_python`` runs code in a session.

    The server is the class of the package `mcp`: a host adds its own tools, and runs it.

    Args:
        opens: Opens the session of a client: a session itself, or a context manager that gives one.
        name: The name of the server.
        max_chars: The characters of each text that a client gets.
        instructions: A text for clients about the server.

    Example:
        >>> from fastaudit_rs import Policy
        >>> from fastaudit_rs.tools.mcp_server import server
        >>> made = server(lambda: Policy(write=["out"]).session(timeout=60))
        >>> made.name
        'python'
    """
    made: MCPServer[Any] = MCPServer(
        name,
        version=__version__,
        instructions=instructions,
        lifespan=lambda _: _clients(opens),
        middleware=[_with_sessions],
        log_level="WARNING",
    )

    async def run_python(
        ctx: Context[Any, Any],
        code: Annotated[str, Field(description=CODE)],
        reset: Annotated[bool, Field(description=RESET)] = False,
    ) -> RanResult:
        clients: _Clients = ctx.request_context.lifespan_context
        try:
            ran = await clients.run(ctx, code, reset)
        except (OSError, RuntimeError) as error:
            raise ToolError(str(error)) from error
        return tool_result(ran, max_chars)

    hints = ToolAnnotations(title="Run Python", read_only_hint=False, open_world_hint=True)
    made.add_tool(run_python, description=TOOL, annotations=hints)
    return made


async def _ran(session: Session, code: str, report: Report) -> Result:
    """Run a step, and tell of its output meanwhile. Cancelling it interrupts the step."""
    stream = session.stream(code)
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
                await report(told, None, valid(cut(text, PIECE)))
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

    def __init__(self, opens: Opens) -> None:
        self._sessions = SessionManager(lambda _: opens())
        self._known: set[str] = set()

    async def run(self, ctx: Context[Any, Any], code: str, reset: bool) -> Result:
        """Run a step in the session of a client, which its first call opens."""
        async with self._sessions.asession(self._key(ctx)) as session:
            if reset:
                await in_thread(session.reset)
            return await _ran(session, code, ctx.report_progress)

    def _key(self, ctx: Context[Any, Any]) -> str:
        request = ctx.request_context.request
        if request is None:
            return "the client"
        key: str | None = request.headers.get(SESSION)
        if key is None:
            raise ToolError("run_python needs a server that keeps sessions: stateless_http=False")
        if key not in self._known:
            self._known.add(key)
            # The client's connection, which the SDK hands to no tool otherwise.
            connection: Any = getattr(ctx.session, "_connection")  # noqa: B009
            connection.exit_stack.push_async_callback(self._end, key)
        return key

    async def _end(self, key: str) -> None:
        """End the session of a client, with the step that runs."""
        self._known.discard(key)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._sessions.remove, key)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._sessions.close)


#: The clients of the servers of this process.
_serving: WeakSet[_Clients] = WeakSet()


@contextlib.asynccontextmanager
async def _clients(opens: Opens) -> AsyncIterator[_Clients]:
    clients = _Clients(opens)
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
        app = server.streamable_http_app(
            host=host, max_sessions=most, transport_security=_security(found)
        )
        config = uvicorn.Config(
            app, loop="asyncio", log_level="warning", timeout_graceful_shutdown=1
        )
        print(f"fastaudit-rs: serving at {address}", file=sys.stderr, flush=True)
        Server(config).run(sockets=[listening])


# The result of a step for a client of an MCP server: text, images, and the same as data.


class Denial(BaseModel):
    """An operation that was denied: the fields of `AuditDenied` of these names."""

    rule: str | None = None
    event: str
    effect: str | None = None
    path: str | None = None
    host: str | None = None
    command: str | None = None
    message: str
    hint: str | None = None


class Asked(BaseModel):
    """A request over the network: the fields of `fastaudit_rs.timeline.Request` of these names."""

    host: str
    port: int | None = None
    method: str | None = None
    path: str | None = None
    status: int | None = None
    verdict: str
    rule: str | None = None
    error: str | None = None


class Failure(BaseModel):
    """The exception that ended a step: the fields of `fastaudit_rs.results.Error`."""

    kind: str
    message: str
    line: int | None = None


class Ran(BaseModel):
    """The structured content of a result."""

    success: bool
    stdout: str
    stderr: str
    value: Any = None
    error: Failure | None = None
    ended_by: str | None = None
    denials: list[Denial]
    requests: list[Asked]
    changed: list[str]
    restarted: bool
    seconds: float


#: The type of a tool's result: its schema is that of the structured content.
RanResult = Annotated[CallToolResult, Ran]


def tool_result(ran: Result, max_chars: int) -> CallToolResult:
    """A step's result, for a client."""
    ran = for_models(ran)
    told: dict[str, Any] = {
        "success": ran.success,
        "stdout": cut(ran.stdout, max_chars),
        "stderr": cut(ran.stderr, max_chars),
        "value": _value(ran.value, max_chars),
        "error": None if ran.error is None else asdict(ran.error),
        "ended_by": ran.killed_by,
        "denials": [denied.to_dict() for denied in ran.violations],
        "requests": list(map(asdict, ran.requests)),
        "changed": ran.changed,
        "restarted": ran.restarted is not None,
        "seconds": round(ran.duration, 3),
    }
    if ran.error is not None:
        told["error"]["message"] = cut(ran.error.message, max_chars)
    text = ran.for_model(max_chars)
    content = [_text(text)]
    for shown in ran.display:
        image, plain = image_of(shown), shown.get("text/plain")
        if image is not None:
            content.append(ImageContent(type="image", data=image, mime_type="image/png"))
        elif isinstance(plain, str) and plain not in text:
            content.append(_text(cut(plain, max_chars)))
    # The fields that the classes name are those that a client gets.
    structured = Ran.model_validate(valid_data(told)).model_dump()
    return CallToolResult(content=content, structured_content=structured, is_error=not ran.success)


def cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else shortened(text, max_chars)


def _text(text: str) -> ContentBlock:
    return TextContent(type="text", text=valid_data(text))


def _value(value: object, max_chars: int) -> Any:
    """The value, if JSON can hold it and it is not too long; else its `repr()`."""
    try:
        if len(json.dumps(value, allow_nan=False)) <= max_chars:
            return value
    except (TypeError, ValueError, RecursionError):
        pass
    return cut(written(value), max_chars)
