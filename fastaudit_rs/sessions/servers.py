"""MCP servers, whose tools are functions of the code: `MCP` names one, and connects when used."""

import asyncio
import builtins
import contextlib
import contextvars
import json
import keyword
import os
import re
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from .._text import printable
from .._threads import in_thread, submit
from .._waiting import loop_here
from .annotations import Json
from .arguments import seconds
from .foreign import ToolSource
from .server_connection import NAME, TEXT, Connection, named, shortened
from .server_tools import ServerTool
from .typed import Typed

#: The characters of what a server says of a tool.
SAID = 100_000


class MCP(ToolSource):
    """An MCP server for ``tools=``: code calls its tools as functions.

    Write ``policy.session(tools=MCP(["python", "server.py"]), on_ask=ask)``. Your process reaches
    the server; the code does not. A session starts the server, and ends it when it is closed.
    ``with MCP(…) as tools:`` keeps it for several sessions. In a mapping the key begins the names:
    ``tools={"shop": MCP(…)}`` has ``shop_price``.

    ``on_ask`` is asked about tools that the server does not call read-only. Its answer ``"step"``
    holds for the tool until the step ends; ``"guard"`` and ``"never"`` for the tool, and
    ``"pattern"`` for all tools of the server, while the session lasts.
    """

    def __init__(
        self,
        server: Any,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        ask: bool | Collection[str] | None = None,
        only: Collection[str] | None = None,
        name: str | None = None,
        timeout: float = 60,
    ) -> None:
        """Name a server, without starting it.

        Args:
            server: A command as a list, for a server on standard input and output; a URL, for
                streamable HTTP; or an open `mcp.ClientSession`. Make the `MCP` in the event loop of
                that session, and close the session yourself.
            env: Variables of the command, besides ``PATH``, ``HOME`` and the like.
            cwd: The directory of the command.
            ask: The tools that ``on_ask`` is asked about: their names, ``True`` for all or
                ``False`` for none. By default those that the server does not call read-only.
            only: The names of the tools that code gets; by default all.
            name: The name of the server in messages and questions, which models and people see. By
                default the program and its first argument that is not an option, or the URL without
                its secret parts.
            timeout: The seconds that the server has to start, and to answer a call. If they pass,
                it is ended, and the next call starts it anew.

        Raises:
            TypeError: An argument has another type.
            ValueError: ``timeout`` is not positive, the command is empty, or ``env`` and ``cwd``
                are given without one.
        """
        self.told, self._opens = _server(server, env, cwd)
        if name is not None:
            if not isinstance(name, str):
                raise TypeError(f"name must be a str, not {type(name).__name__}")
            self.told = shortened(printable(name), NAME)
        if ask is not None and not isinstance(ask, bool):
            ask = _names("ask", ask)
        self._ask = ask
        self._only = None if only is None else _names("only", only)
        found = seconds("timeout", timeout)
        if found is None:
            raise TypeError("timeout must be a number of seconds, not None")
        self._timeout = found
        self._loop = asyncio.get_running_loop() if self._opens is None else None
        self._session = server if self._opens is None else None
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._users = 0
        self._connection: Connection | None = None

    def __repr__(self) -> str:
        return f"MCP({self.told!r})"

    def functions(self, prefix: str | None = None) -> dict[str, Typed]:
        """The tools by name; the server is started if it does not run.

        Raises:
            ConnectionError: It cannot be reached.
            ImportError: The package `mcp` is not installed.
            RuntimeError: Its answer is malformed.
            TimeoutError: It does not answer.
            ValueError: What it says of a tool makes no function.
        """
        return self._made(self._reached(), prefix)

    def _reached(self) -> Connection:
        with self._lock:
            if self._connection is None:
                connection = self._new()
                connection.open()
                self._connection = connection
            return self._connection

    def _new(self) -> Connection:
        connection = Connection(
            self.told, self._timeout, self._opens, self._session, self._loop, self._context
        )
        if self._opens is not None:
            package()
            # If no session closes it.
            weakref.finalize(self, connection.close)
        return connection

    def call(self, tool: str, given: Json) -> Any:
        """Call a tool, and wait for its result."""
        with self._noticing(self._usable()) as connection:
            return connection.call(tool, given)

    async def acall(self, tool: str, given: Json) -> Any:
        """Do the same without stopping the event loop."""
        connection = await in_thread(self._usable) if self._connection is None else self._usable()
        with self._noticing(connection):
            return await connection.acall(tool, given)

    def _usable(self) -> Connection:
        """The connection of those that use it; a server that has ended is started anew."""
        if self._users <= 0:
            raise ConnectionError(f"{named(self.told)} is closed")
        return self._reached()

    @contextlib.contextmanager
    def _noticing(self, connection: Connection) -> Iterator[Connection]:
        """Leave a connection that answers no more, for the next call to make another one."""
        try:
            yield connection
        except (ConnectionError, TimeoutError):
            if self._opens is not None:
                with self._lock:
                    if self._connection is connection:
                        self._connection = None
                # It takes seconds where the server does not end by itself.
                self._context.copy().run(submit, connection.close)
            raise

    def _made(self, connection: Connection, prefix: str | None) -> dict[str, Typed]:
        tools = {tool.name: tool for tool in connection.tools}
        for argument, given in (("ask", self._ask), ("only", self._only)):
            for name in given if isinstance(given, frozenset) else ():
                if name not in tools:
                    has = ", ".join(sorted(map(repr, tools))) or "no tools"
                    raise ValueError(
                        f"{argument}: {named(self.told)} has no tool {name!r}; it has "
                        f"{shortened(has, TEXT)}"
                    )
        made: dict[str, Typed] = {}
        for original, tool in tools.items():
            if self._only is not None and original not in self._only:
                continue
            _check(self.told, tool)
            name = _name(self.told, original, prefix)
            if name in made:
                raise ValueError(
                    f"{named(self.told, original)} has the name {name!r}, as another one: leave "
                    "one out, MCP(…, only=[…])"
                )
            asks = self._asks(original, tool)
            made[name] = ServerTool(self, tool, name, asks=asks)
        return made

    def _asks(self, name: str, tool: Any) -> bool:
        if isinstance(self._ask, frozenset):
            return name in self._ask
        if self._ask is not None:
            return self._ask
        return tool.annotations is None or tool.annotations.read_only_hint is not True

    def hold(self) -> None:
        with self._lock:
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> "MCP":
        self.functions()
        self.hold()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    async def __aenter__(self) -> "MCP":
        if self._loop is None:
            await in_thread(self.functions)
        else:
            connection = self._new()
            await connection.list_here()
            self._connection = connection
        self.hold()
        return self

    async def __aexit__(self, *error: object) -> None:
        await in_thread(self.release)


def _server(
    server: Any, env: Mapping[str, str] | None, cwd: str | os.PathLike[str] | None
) -> tuple[str, Callable[[], Any] | None]:
    """The server as messages name it, and what makes a client of it; `None` for an open session."""
    if isinstance(server, (list, tuple)):
        return _command(server, env, cwd)
    if env is not None or cwd is not None:
        raise ValueError("env and cwd are for a command: MCP(['python', 'server.py'], env=…)")
    if isinstance(server, str):
        if re.match(r"https?://", server) is None:
            raise ValueError(
                f"server must be a command as a list, or a URL with http:// or https://, not "
                f"{shortened(server, NAME)!r}: write {shortened(str(server.split()), NAME)}"
            )
        # Secrets stand before an @, and in queries.
        told = re.sub(r"//[^/@]*@|[?#].*", lambda found: "//" if found[0][0] == "/" else "", server)
        return shortened(printable(told), NAME), lambda: package().Client(server)
    if callable(getattr(server, "call_tool", None)) and callable(
        getattr(server, "list_tools", None)
    ):
        if loop_here() is None:
            raise RuntimeError(
                "MCP(session) is made where the session was opened: in its event loop"
            )
        return "session", None
    raise TypeError(
        "server must be a command as a list, a URL, or an open mcp.ClientSession, not "
        f"{type(server).__name__}"
    )


def _command(
    command: Sequence[Any], env: Mapping[str, str] | None, cwd: str | os.PathLike[str] | None
) -> tuple[str, Callable[[], Any]]:
    for word in command:
        if not isinstance(word, (str, os.PathLike)):
            raise TypeError(f"server must be a list of str, not of {type(word).__name__}")
    if not command:
        raise ValueError("server must be a command: it is empty")
    first, *rest = (os.fspath(word) for word in command)
    if env is not None:
        if not isinstance(env, Mapping):
            raise TypeError(f"env must be a mapping of str, not {type(env).__name__}")
        env = dict(env)
        if not all(isinstance(text, str) for pair in env.items() for text in pair):
            raise TypeError("env must be a mapping of str to str")
    directory = None if cwd is None else os.fspath(cwd)

    def client() -> Any:
        mcp = package()
        parameters = mcp.StdioServerParameters(command=first, args=rest, env=env, cwd=directory)
        return mcp.Client(parameters)

    # Others may be secrets, and nobody needs to know where files are.
    told = [first, *[word for word in rest if not word.startswith("-")][:1]]
    told = [os.path.basename(word) if os.path.isabs(word) else word for word in told]
    return shortened(printable(" ".join(told)), NAME), client


def package() -> Any:
    try:
        import mcp
    except ImportError:
        raise ImportError("MCP needs mcp: pip install 'fastaudit-rs[mcp]'") from None
    return mcp


def _check(server: str, tool: Any) -> None:
    """Check what a server says of a tool: it may be anything."""
    schema = tool.input_schema
    properties, required = schema.get("properties", {}), schema.get("required", [])
    try:
        said = len(tool.description or "") + len(json.dumps(schema))
    except (ValueError, RecursionError):
        said = SAID + 1
    if said > SAID:
        raise ValueError(f"{named(server, tool.name)} says more than {SAID} characters of itself")
    are_names = isinstance(required, list) and all(isinstance(name, str) for name in required)
    if not isinstance(properties, dict) or not are_names:
        raise ValueError(f"{named(server, tool.name)} has a malformed schema of its parameters")


def _name(server: str, original: str, prefix: str | None) -> str:
    """The name of a tool in code: of other characters than code's it has underscores."""
    name = re.sub(r"\W", "_", original)
    if prefix is not None:
        name = f"{prefix}_{name}"
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__"):
        why = "has a name that code cannot have"
    elif hasattr(builtins, name):
        why = "has the name of a function of Python"
    else:
        return name
    raise ValueError(
        f"{named(server, original)} {why}: write tools={{'shop': MCP(…)}}, and it is "
        f"{f'shop_{name}'!r}, or leave it out by only="
    )


def _names(argument: str, given: Any) -> frozenset[str]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Collection):
        raise TypeError(f"{argument} must be a list of names, not {type(given).__name__}")
    for name in given:
        if not isinstance(name, str):
            raise TypeError(f"{argument} must be a list of names, not of {type(name).__name__}")
    return frozenset(given)
