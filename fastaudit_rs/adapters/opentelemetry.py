"""Decisions as events of OpenTelemetry, for an `AuditLog`, and calls of tools as its spans.

An event is a log record with a name (<https://opentelemetry.io/docs/specs/otel/logs/data-model/>).
The spans are those of the conventions for tools of models
(<https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/#execute-tool-span>).
"""

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar, cast

from opentelemetry._logs import LoggerProvider, LogRecord, SeverityNumber, get_logger
from opentelemetry.context import get_current
from opentelemetry.trace import Span, Status, StatusCode, TracerProvider, get_tracer

from .. import __version__
from .._text import printable, valid_data
from ..results import Result
from ..sessions.arguments import is_async
from ..sessions.typed import summary
from ..timeline import target_of

#: The names that the semantic conventions have for keys of a line
#: (<https://opentelemetry.io/docs/specs/semconv/registry/attributes/>).
NAMES = {
    "pid": "process.pid",
    "thread": "thread.id",
    "path": "file.path",
    "host": "server.address",
    "port": "server.port",
    "command": "process.command_args",
    "error": "error.type",
}

#: Keys of a line that are no attributes under their own names. Hashes are of the line's bytes.
OTHERS = ("version", "time", "place", "args", "prev_hash", "hash")


class Events:
    """Emits an event for each decision: `AuditLog(Events())`.

    An event has the name ``fastaudit.decision``, the time of the decision, the severity ``INFO`` if
    it was allowed and ``WARN`` otherwise, and the keys of the line as attributes, by the semantic
    conventions where they have a name and as ``fastaudit.…`` elsewhere. It belongs to the span that
    is current where this object is made.

    Args:
        provider: The provider of the logger; the global one by default.

    Examples:
        >>> log = AuditLog(Events(), name="agent 7")
        >>> with Policy(write=["/srv/out"]).guard(log=log)():
        ...     run(code)
    """

    def __init__(self, provider: LoggerProvider | None = None) -> None:
        self._logger = get_logger("fastaudit_rs", __version__, provider)
        self._context = get_current()

    def __call__(self, lines: bytes) -> None:
        """Emit the events of some lines of a log; one that fails keeps back no other."""
        failed: Exception | None = None
        for line in lines.splitlines():
            try:
                # What is no text for an exporter may have it drop all that it has.
                self._logger.emit(self._record(valid_data(json.loads(line))))
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _record(self, told: dict[str, Any]) -> LogRecord:
        verdict = told.get("verdict")
        severity = SeverityNumber.INFO if verdict == "allowed" else SeverityNumber.WARN
        is_decision = verdict is not None
        # Its nanoseconds are a number of 64 bits.
        is_time = 0 <= told["time"] < 1 << 33
        return LogRecord(
            timestamp=round(told["time"] * 1_000_000) * 1000 if is_time else None,
            context=self._context,
            severity_number=severity,
            severity_text=severity.name,
            body=_words(told),
            attributes=attributes(told),
            event_name="fastaudit.decision" if is_decision else told["event"],
        )


def attributes(told: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a line of a log."""
    found = {
        NAMES.get(key, f"fastaudit.{key}"): value
        for key, value in told.items()
        if value is not None and key not in OTHERS
    }
    command = found.get("process.command_args")
    if isinstance(command, str):
        # A command line for a shell.
        found["process.command_line"] = found.pop("process.command_args")
    elif isinstance(command, list):
        found["process.command_args"] = list(map(str, command))
    if "args" in told:
        found["fastaudit.args"] = json.dumps(told["args"], ensure_ascii=False)
    file, _, line = told.get("place", "").rpartition(":")
    if line.isdigit():
        found |= {"code.file.path": file, "code.line.number": int(line)}
    return found


def _words(told: Mapping[str, Any]) -> str:
    if "lost" in told:
        return f"{told['lost']} decisions were lost"
    by = f" by {told['rule']}" if told.get("rule") else ""
    words = f"{told['verdict']}{by}: {told['event']}"
    target = target_of(told)
    return words if target is None else f"{words} {target}"


# Calls of tools as spans.

_P = ParamSpec("_P")
_R = TypeVar("_R")

#: The characters of a class's name, which code in a step may have made up.
KIND = 200


@contextlib.contextmanager
def execute_tool(
    name: str,
    *,
    call_id: str | None = None,
    description: str | None = None,
    provider: TracerProvider | None = None,
) -> Iterator[Span]:
    """A span for the call of a tool, current within a ``with`` statement: ``execute_tool NAME``.

    An exception becomes its ``error.type`` and its status. `told` adds what a `Result` says.

    Args:
        name: The name of the tool, ``gen_ai.tool.name``.
        call_id: The id that the model gave the call, ``gen_ai.tool.call.id``.
        description: What the tool does, ``gen_ai.tool.description``.
        provider: The provider of the tracer; the global one by default.

    Examples:
        >>> with execute_tool("run_python", call_id=call.id) as span:
        ...     ran = told(span, session.run(call.arguments["code"]))
    """
    own = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.description": description,
    }
    given = {key: value for key, value in own.items() if value is not None}
    tracer = get_tracer("fastaudit_rs", __version__, provider)
    named = f"execute_tool {name}"
    with tracer.start_as_current_span(
        named, attributes=given, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except Exception as error:
            kind = type(error)
            module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
            _failed(span, f"{module}{kind.__qualname__}", str(error))
            raise


def told(span: Span, ran: Result) -> Result:
    """Note on a span how code ended: its error or the limit, and the number of denials."""
    if ran.violations:
        span.set_attribute("fastaudit.denials", len(ran.violations))
    if ran.error is not None:
        _failed(span, ran.error.kind, ran.error.message)
    elif not ran.success:
        _failed(span, ran.killed_by or "exit_status", f"exit status {ran.returncode}")
    return ran


def traced(
    function: Callable[_P, _R], *, name: str | None = None, provider: TracerProvider | None = None
) -> Callable[_P, _R]:
    """The same function, each call of which is a span, for ``tools=`` of a session.

    One that returns a `Result` says how its code ended: ``traced(session.run, name="run_python")``.

    Args:
        function: A plain function, or a coroutine function.
        name: The name of the tool; that of the function by default.
        provider: The provider of the tracer; the global one by default.

    Examples:
        >>> session = policy.session(tools={"price": traced(price)})
    """
    called = name or str(getattr(function, "__name__", type(function).__name__))
    text = summary(function) or None
    begin = functools.partial(execute_tool, called, description=text, provider=provider)

    if is_async(function):
        ask = cast("Callable[..., Any]", function)

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with begin() as span:
                return _noted(span, await ask(*args, **kwargs))

        return cast("Callable[_P, _R]", awaited)

    @functools.wraps(function)
    def plain(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with begin() as span:
            return _noted(span, function(*args, **kwargs))

    return plain


def _noted(span: Span, value: _R) -> _R:
    if isinstance(value, Result):
        told(span, value)
    return value


def _failed(span: Span, kind: str, text: str) -> None:
    span.set_attribute("error.type", printable(kind[:KIND]))
    span.set_status(Status(StatusCode.ERROR, printable(text[:KIND])))
