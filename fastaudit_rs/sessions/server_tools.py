"""The tools of MCP servers as functions that code may call, and the questions about them."""

import base64
import contextlib
import json
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from datetime import date, time
from decimal import Decimal
from hashlib import sha256
from pathlib import PurePath
from typing import Any, Protocol
from uuid import UUID

from .. import AuditDenied
from .._text import printable
from ..denied import TOOL_CALL
from .annotations import Json
from .foreign import Call
from .forms import class_name, message
from .typed import Typed

#: The characters of arguments that a question shows, and the others are told by their digest.
SHOWN = 2000

#: The denials of a step that are told.
TOLD = 1000

#: The answers that allow a call.
_ALLOWING = ("once", "step", "guard", "pattern")

#: A function that is asked before a call.
Ask = Callable[[AuditDenied], object]

#: What decides about a call: it raises `AuditDenied`, or returns.
Gate = Callable[["ServerTool", AuditDenied], None]


class Server(Hashable, Protocol):
    """What a tool needs of its server."""

    #: The server as messages name it.
    told: str

    def hold(self) -> None:
        """Note one that uses it."""

    def release(self) -> None:
        """Let go of it."""

    def call(self, tool: str, given: Json) -> Any:
        """Call a tool, and wait for its result."""

    async def acall(self, tool: str, given: Json) -> Any:
        """Do the same without stopping the event loop."""


class ServerTool(Typed):
    """A tool of a server, which is asked about unless it only reads."""

    def __init__(
        self,
        server: Server,
        tool: Any,
        name: str,
        *,
        asks: bool,
        gate: Gate | None = None,
    ) -> None:
        """Make a function of what the server says of a tool, which was checked."""
        self.server = server
        #: The name of the tool at its server.
        self.original: str = tool.name
        self.asks = asks
        self._tool, self._gate = tool, gate
        self._call = Call(name, tool.input_schema, returned=_returned(tool.output_schema))
        text = tool.description or ""
        schema = {"name": name, "description": text, "parameters": self._call.schema}
        super().__init__(
            self._run,
            name,
            doc=text,
            signature=self._call.signature,
            schema=schema,
            is_async=False,
            reads=False,
        )

    def gated(self, gate: Gate) -> "ServerTool":
        """The same, with what decides about calls that are to be asked about."""
        return ServerTool(self.server, self._tool, self.__name__, asks=self.asks, gate=gate)

    def _run(self, /, *args: Any, **kwargs: Any) -> Any:
        given = self.given(args, kwargs)
        if self.asks:
            if self._gate is None:
                raise self.question(given)
            self._gate(self, self.question(given))
        return self.server.call(self.original, given)

    async def acall(self, given: Json) -> Any:
        """Call it, without asking."""
        return await self.server.acall(self.original, given)

    def given(self, args: tuple[Any, ...] | list[Any], kwargs: dict[str, Any]) -> Json:
        """The arguments of a call, as data that JSON has.

        Raises:
            TypeError: They are too many, or none that JSON can have.
            ValueError: JSON cannot have a number or a text.
        """
        name = self.__name__
        named = self._call.arguments(tuple(args), kwargs)
        return {key: _as_json(name, key, value) for key, value in named.items()}

    def question(self, given: Json) -> AuditDenied:
        """The denial of a call that the host is asked about."""
        server, text = self.server.told, json.dumps(given, ensure_ascii=False)
        shown = printable(text[:SHOWN])
        if len(text) > SHOWN:
            digest = sha256(text.encode()).hexdigest()
            shown += f"… ({len(text)} characters, SHA-256 {digest})"
        call = f"call the tool {self.original!r} of MCP server {server!r} with {shown}"
        return AuditDenied.from_dict(
            AuditDenied(f"Denied: {call}").to_dict()
            | {
                "event": TOOL_CALL,
                "args": [server, self.original, text],
                "tool": self.__name__,
                "hint": "on_ask=…, which is asked; or MCP(…, ask=False), which asks nobody",
                "approvals": {"guard": {}, "pattern": {}},
            }
        )


class ToolAnswers:
    """The answers of a host about tools of servers, and what was denied in a step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Those that hold while the session lasts, and in a step: for a tool, or all of a server.
        self._kept: dict[Hashable, bool] = {}
        self._of_step: dict[Hashable, bool] = {}
        self._denied: list[AuditDenied] = []

    def begin(self) -> None:
        """Begin a step."""
        with self._lock:
            self._of_step = {}
            self._denied = []

    @property
    def denied(self) -> list[AuditDenied]:
        """What was denied in the step."""
        with self._lock:
            return self._denied[:]

    def known(self, tool: ServerTool) -> bool | None:
        """What earlier answers say about a call of it; ``None`` if it is to be asked about."""
        one = (tool.server, tool.original)
        with self._lock:
            for answers, subject in (
                (self._kept, one),
                (self._of_step, one),
                (self._kept, tool.server),
            ):
                if subject in answers:
                    return answers[subject]
        return None

    def decide(self, tool: ServerTool, asked: AuditDenied, ask: Ask | None) -> None:
        """Ask about a call, unless an earlier answer says.

        Raises:
            AuditDenied: It is not allowed.
        """
        known = self.known(tool)
        if known:
            return
        if known is False or ask is None:
            raise self.noted(asked, "the answer was never" if known is False else None)
        try:
            answer = ask(asked)
        except Exception as error:
            answer = f"on_ask raised {class_name(type(error))}: {message(error, SHOWN)}"
        self.settle(tool, asked, answer)

    def gate(self, ask: Ask | None, note: Callable[[AuditDenied], object]) -> Gate:
        """What decides about calls, and notes those that it denies; it leads to no session."""

        def gate(tool: ServerTool, asked: AuditDenied) -> None:
            try:
                self.decide(tool, asked, ask)
            except AuditDenied as denied:
                note(denied)
                raise

        return gate

    def settle(self, tool: ServerTool, asked: AuditDenied, answer: object) -> None:
        """Take an answer about a call.

        Raises:
            AuditDenied: It does not allow the call.
        """
        text = (
            "once" if answer is True else str.__str__(answer) if isinstance(answer, str) else None
        )
        is_allowed = text in _ALLOWING
        with self._lock:
            if text in ("guard", "never"):
                self._kept[tool.server, tool.original] = is_allowed
            elif text == "pattern":
                self._kept[tool.server] = True
            elif text == "step":
                self._of_step[tool.server, tool.original] = True
        if not is_allowed:
            raise self.noted(asked, _why_not(answer, text))

    def noted(self, asked: AuditDenied, why: str | None) -> AuditDenied:
        """The denial of a call, with the end of the question; it is among those of the step."""
        denied = AuditDenied.from_dict(asked.to_dict() | {"answer": why})
        with self._lock:
            if len(self._denied) < TOLD:
                self._denied.append(denied)
        return denied


def servers_of(tools: Mapping[str, Callable[..., Any]]) -> list[Server]:
    """The servers that some of the tools have."""
    found: list[Server] = []
    for tool in tools.values():
        if isinstance(tool, ServerTool) and tool.server not in found:
            found.append(tool.server)
    return found


@contextlib.contextmanager
def held(tools: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Use the servers that some of the tools have."""
    servers = servers_of(tools)
    for server in servers:
        server.hold()
    try:
        yield
    finally:
        for server in servers:
            server.release()


def _why_not(answer: object, text: str | None) -> str:
    if answer is None:
        return "there was no answer"
    if answer is False or text == "deny":
        return "the answer was no"
    if text == "never":
        return "the answer was never"
    if text is not None and text.startswith("on_ask "):
        # It failed, or nobody could be asked.
        return text
    names = "'once', 'step', 'guard', 'pattern', 'deny' or 'never'"
    return f"on_ask must return {names}, not {text or type(answer).__name__!r}"


def _as_json(tool: str, parameter: str, value: Any) -> Any:
    """An argument as data that JSON has: dates and the like as their text."""
    place = f"tool {tool!r}: {parameter}"

    def other(one: object) -> object:
        if isinstance(one, (date, time)):
            return one.isoformat()
        if isinstance(one, (Decimal, PurePath, UUID)):
            return str(one)
        if isinstance(one, (set, frozenset)):
            return list(one)
        raise TypeError(
            f"{place} has a {type(one).__name__}, which JSON has not: pass data or text"
        )

    try:
        text = json.dumps(value, default=other, allow_nan=False, ensure_ascii=False)
        # Half a character would end the connection.
        return json.loads(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{place} has text that is no valid Unicode") from None
    except RecursionError:
        raise ValueError(f"{place} is nested too deep") from None
    except ValueError as error:
        raise ValueError(f"{place} cannot be JSON: {error}") from None
    except TypeError as error:
        text = str(error)
        raise TypeError(text if text.startswith(place) else f"{place}: {text}") from None


def _returned(schema: Any) -> Json | None:
    """The schema of what a call returns; see `result_of`."""
    if not isinstance(schema, dict):
        return None
    properties = schema.get("properties")
    if isinstance(properties, dict) and [*properties] == ["result"]:
        schema = properties["result"]
    return schema if isinstance(schema, dict) else None


def result_of(result: Any) -> Any:
    """The result of a call as data: the structured one, or the texts and data of its blocks."""
    found = result.structured_content
    if found is not None:
        # The result of a function that gives no object stands in one.
        is_wrapped = isinstance(found, dict) and [*found] == ["result"]
        return found["result"] if is_wrapped else found
    blocks = [_block(one) for one in result.content]
    return None if not blocks else blocks[0] if len(blocks) == 1 else blocks


def text_of(result: Any) -> str:
    """The text of a result that is an error."""
    return "\n".join(one.text for one in result.content if one.type == "text")


def _block(block: Any) -> Any:
    if block.type == "text":
        return block.text
    told: Json = block.model_dump(mode="json", exclude_none=True)
    if isinstance(told.get("data"), str):
        told["data"] = base64.b64decode(told["data"])
    return told
