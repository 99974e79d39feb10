"""Decisions as events of OpenTelemetry: a function for an `AuditLog`.

An event is a log record with a name (<https://opentelemetry.io/docs/specs/otel/logs/data-model/>).
"""

import json
from collections.abc import Mapping
from typing import Any

from opentelemetry._logs import LoggerProvider, LogRecord, SeverityNumber, get_logger
from opentelemetry.context import get_current

from .. import __version__
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

#: Keys of a line that are no attributes under their own names.
OTHERS = ("version", "time", "place", "args")


class Events:
    """Emits an event for each decision: `AuditLog(Events())`.

    An event has the name ``fastaudit.decision``, the time of the decision, the severity ``INFO`` if
    it was allowed and ``WARN`` otherwise, and the keys of the line as attributes, by the semantic
    conventions where they have a name and as ``fastaudit.…`` elsewhere. It belongs to the span that
    is current where this object is made.

    Args:
        provider: The provider of the logger; the global one by default.

    Example:
        >>> log = AuditLog(Events(), name="agent 7")
        >>> with Policy(write=["/srv/out"]).guard(log=log)():
        ...     run(code)
    """

    def __init__(self, provider: LoggerProvider | None = None) -> None:
        self._logger = get_logger("fastaudit_rs", __version__, provider)
        self._context = get_current()

    def __call__(self, lines: bytes) -> None:
        """Emit the events of some lines of a log."""
        for line in lines.splitlines():
            self._logger.emit(self._record(json.loads(line)))

    def _record(self, told: dict[str, Any]) -> LogRecord:
        verdict = told.get("verdict")
        severity = SeverityNumber.INFO if verdict == "allowed" else SeverityNumber.WARN
        is_decision = verdict is not None
        return LogRecord(
            timestamp=round(told["time"] * 1_000_000) * 1000,
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
