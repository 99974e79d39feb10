"""The connection to an MCP server: in an event loop of its own, or in that of a host's session."""

import asyncio
import concurrent.futures
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .._text import printable
from .annotations import Json
from .coroutines import HostLoop
from .server_tools import result_of, text_of

_T = TypeVar("_T")

#: The tools that a server may have.
TOOLS = 1000

#: The characters of a name, and of a server's text, in messages.
NAME, TEXT = 100, 2000

#: The seconds that a server has to end, of which the package `mcp` uses some before it kills it,
#: and those by which a loop that does not even tell of lateness is late.
PATIENCE, GRACE = 10.0, 5.0

#: The error by which the package `mcp` says that a connection has ended: servers have others of
#: this code. And the code where an answer did not come.
_CLOSED, _LATE = (-32000, "Connection closed"), -32001

_LATENESS = (TimeoutError, asyncio.TimeoutError, concurrent.futures.TimeoutError)


class Connection:
    """A server that is reached, and what it says of its tools."""

    def __init__(
        self,
        told: str,
        timeout: float,
        opens: Callable[[], Any] | None,
        session: Any,
        loop: asyncio.AbstractEventLoop | None,
        context: contextvars.Context,
    ) -> None:
        """Take what makes a client, or a session of the host with its event loop.

        All of it runs in the context, which has no guard of the code that calls.
        """
        self.told = told
        self.tools: list[Any] = []
        self._timeout = timeout
        self._opens = opens
        self._client = session
        self._host_loop = loop
        self._own = HostLoop()
        self._context = context
        self._process = os.getpid()
        self._keeper: concurrent.futures.Future[None] | None = None
        self._ended = threading.Event()

    def open(self) -> None:
        """Reach it, and list its tools.

        Raises:
            ConnectionError, RuntimeError, TimeoutError: That fails.
        """
        opened: concurrent.futures.Future[list[Any]] = concurrent.futures.Future()
        if self._opens is not None:
            self._keeper = self._submit(self._keep(self._opens, opened))
        elif self._is_here():
            raise RuntimeError(
                f"{named(self.told)} is reached by the event loop that waits here: write "
                "async with MCP(session) as tools"
            )
        else:
            opened = self._submit(_listed(self._client))
        try:
            self.tools = opened.result(self._timeout)
        except BaseException as error:
            self.close()
            if isinstance(error, Exception):
                raise self.failure(None, error) from None
            raise

    async def list_here(self) -> None:
        """List the tools, in the event loop of the host's session."""
        try:
            self.tools = await asyncio.wait_for(_listed(self._client), self._timeout)
        except Exception as error:
            raise self.failure(None, error) from None

    async def _keep(
        self, opens: Callable[[], Any], opened: "concurrent.futures.Future[list[Any]]"
    ) -> None:
        """Hold the connection open, in one task from its beginning to its end."""
        try:
            async with opens() as client:
                tools = await _listed(client)
                self._client = client
                opened.set_result(tools)
                await asyncio.get_running_loop().create_future()
        except BaseException as error:
            if not opened.done():
                opened.set_exception(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._client = None
            self._ended.set()

    def call(self, tool: str, given: Json) -> Any:
        """Call a tool, and wait for its result.

        Raises:
            ConnectionError, RuntimeError, TimeoutError: That fails.
        """
        begun = self._begun(tool, given)
        try:
            result = begun.result(self._timeout + GRACE)
        except BaseException as error:
            begun.cancel()
            if isinstance(error, Exception):
                raise self.failure(tool, error) from None
            raise
        return self._value(tool, result)

    async def acall(self, tool: str, given: Json) -> Any:
        """Do the same without stopping the event loop."""
        begun = asyncio.wrap_future(self._begun(tool, given))
        try:
            result = await asyncio.wait_for(begun, self._timeout + GRACE)
        except Exception as error:
            raise self.failure(tool, error) from None
        return self._value(tool, result)

    def _begun(self, tool: str, given: Json) -> "concurrent.futures.Future[Any]":
        client = self._client
        if client is None:
            raise self.failure(tool, EOFError("it is closed"))

        async def called() -> Any:
            return await asyncio.wait_for(client.call_tool(tool, given), self._timeout)

        return self._submit(called())

    def _value(self, tool: str, result: Any) -> Any:
        if result.is_error:
            text = shortened(text_of(result), TEXT)
            raise RuntimeError(f"{named(self.told, tool)}: {text or 'it failed'}")
        return result_of(result)

    def close(self) -> None:
        """End the connection, and the server that was started for it."""
        keeper, self._keeper = self._keeper, None
        # A copy of the host's process has no thread that could.
        if keeper is None or os.getpid() != self._process:
            return
        keeper.cancel()
        if self._is_here():
            threading.Thread(target=self._end, daemon=True).start()
        else:
            self._end()

    def _end(self) -> None:
        self._ended.wait(PATIENCE)
        self._own.close()

    def _loop(self) -> asyncio.AbstractEventLoop:
        return self._own() if self._host_loop is None else self._host_loop

    def _is_here(self) -> bool:
        """True in the thread of the event loop, which cannot run as that waits."""
        try:
            return asyncio.get_running_loop() is self._loop()
        except RuntimeError:
            return False

    def _submit(self, work: Coroutine[Any, Any, _T]) -> "concurrent.futures.Future[_T]":
        def submitted() -> "concurrent.futures.Future[_T]":
            return asyncio.run_coroutine_threadsafe(work, self._loop())

        try:
            return self._context.copy().run(submitted)
        except RuntimeError as error:
            work.close()
            raise self.failure(None, EOFError(f"its event loop has ended ({error})")) from None

    def failure(self, tool: str | None, error: BaseException) -> Exception:
        """What the code, or the host, is told of an error."""
        told = named(self.told, tool)
        while isinstance(parts := getattr(error, "exceptions", None), tuple) and parts:
            # A group of the package's tasks.
            error = parts[0]
        text = shortened(str(error), TEXT) or type(error).__name__
        code = getattr(error, "code", None)
        if isinstance(error, _LATENESS) or code == _LATE:
            way = ", and is started anew" if tool else ": MCP(…, timeout=…) waits longer"
            if self._host_loop is not None:
                way = ": its event loop runs meanwhile with await session.arun(code)"
            return TimeoutError(f"{told} gave no answer in {self._timeout:g} s{way}")
        if isinstance(error, (ValueError, RuntimeError)):
            return RuntimeError(f"{told} gave a malformed answer: {text}")
        if type(code) is int and (code, text) != _CLOSED:
            return RuntimeError(f"{told}: {text}")
        return ConnectionError(f"{told} cannot be reached, or has ended: {text}")


async def _listed(client: Any) -> list[Any]:
    """The tools of a server, of all its pages."""
    found: list[Any] = []
    cursor: str | None = None
    while True:
        if hasattr(client, "session"):
            page = await client.list_tools(cursor=cursor)
        else:
            from mcp.types import PaginatedRequestParams

            page = await client.list_tools(params=PaginatedRequestParams(cursor=cursor))
        found += page.tools
        cursor = page.next_cursor
        if len(found) > TOOLS:
            raise ValueError(f"it has more than {TOOLS} tools")
        if not cursor:
            return found


def named(server: str, tool: str | None = None) -> str:
    """A server, or a tool of it, in messages."""
    if tool is None:
        return f"MCP server {server!r}"
    return f"tool {shortened(printable(tool), NAME)!r} of MCP server {server!r}"


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
