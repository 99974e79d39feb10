"""The result of running code: in a sandbox, or in a step of a session."""

import base64
import json
import re
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Literal

from . import AuditDenied
from ._for_model import (
    denial_told,
    displays_told,
    end_told,
    images_of,
    part,
    traceback_told,
    without_marks,
    without_traceback,
)
from ._notebook import block, displayed, escaped
from ._text import checked, valid_data, written
from .pending import Pending
from .timeline import Act, Request, of_decision, of_request, shown

#: The files that a model is told of.
FILES = 100

#: Why a step had not all the names of the one before; see `Result.restarted`.
Restart = Literal["restored", "anew", "undone"]

#: The same in words for a model.
RESTARTED: dict[Restart, str] = {
    "restored": "The session was restored: it has the variables, imports, functions and classes of "
    "earlier calls. Open files, threads and the working directory are gone",
    "anew": "The session began anew: names and imports of earlier calls are gone",
    "undone": "The session's process ended: names are as they were before the last call",
}

#: The names that a model is told of.
TOLD = 20

#: The ways in which a host may go on after a step that ended its process.
WAYS = re.compile(
    r": reset\(\) starts another(, undo\(\) goes back)?(, restore\(\) to a snapshot)?"
)


@dataclass(frozen=True)
class Error:
    """An exception that ended code, as data.

    Attributes:
        kind: The name of its class, with its module unless that is `builtins`.
        message: Its text.
        traceback: The traceback, as Python prints it, with the code's own frames alone.
        line: The last line of the code that it passed through, from 1; ``None`` if there is none.
    """

    kind: str
    message: str
    traceback: str = ""
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


@dataclass(frozen=True)
class Timings:
    """Where the time of a run or a step went, in seconds, to the microsecond.

    The sum without `waited` is its duration. In a sandbox the code's process reports when the code
    ran, within what the host saw.

    Attributes:
        waited: Waiting for its turn in a `SessionManager`, for a process of a pool, or for a start.
        started: Sending its values, and copying the process for `Session.undo`.
        ran: Running the code; if it was killed, `started` too.
        reported: Getting the result.
    """

    waited: float = 0.0
    started: float = 0.0
    ran: float = 0.0
    reported: float = 0.0

    @classmethod
    def between(cls, asked: float, begun: float, ended: float, ran: object = None) -> "Timings":
        """Divide the time by when it was asked for, began and ended, and when its code did.

        All are of `time.monotonic()`; `ran` is a pair, as told by anybody.
        """
        told: Any = ran
        is_pair = isinstance(ran, (list, tuple)) and [type(time) for time in ran] == [float] * 2
        is_told = is_pair and begun <= told[0] <= told[1] <= ended
        first, last = told if is_told else (begun, ended)
        parts = max(0.0, begun - asked), first - begun, last - first, ended - last
        return cls(*(round(part, 6) for part in parts))


@dataclass(frozen=True)
class ModelContent:
    """A result as content for a model: what an adapter gives its package.

    Attributes:
        text: The text of `Result.for_model`, with a note on images that are left out.
        images: Images as PNG: the first 10, of at most 3.5 MB and 8,000 pixels, 10 MB together.
        files: The names of up to 100 files that the code made, changed or removed, without those in
            directories whose name begins with a dot.
        is_error: True after an exception, an uncaught denial or a limit.
    """

    text: str
    images: list[bytes] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    is_error: bool = False


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run, or of a step of a session.

    Its ``repr()`` is one line, and a notebook shows its output too.

    Attributes:
        returncode: The exit status; minus the number of the signal that ended it. A step that ended
            by itself has 0, or 1 for an exception, or 77 for a denial.
        stdout: Its standard output, up to the limit.
        stderr: Its standard error, up to the limit.
        duration: The seconds that it took.
        killed_by: What ended it: the limit, by its name in `Limits`; ``"interrupt"`` or
            ``"pending"`` of a session; ``None`` if it ended by itself. With a limit of memory it is
            ``"memory"`` also if a process kills itself by SIGKILL, or the kernel kills one that the
            code started.
        violations: The operations that were denied, as the run reported them.
        value: The value of the last expression: of a step a copy, of a run (with ``value=True``)
            data that JSON can hold. A ``repr()`` if that cannot be.
        value_error: Why there is no value although the code ran to its end: it is too large, or its
            ``repr()`` fails.
        confined: True if the kernel enforced the policy.
        changed: The names of files in the directory of the sandbox that were made, changed or
            removed during the run, in order. Concurrent runs share the directory.
        error: The exception that ended it, if one did.
        display: The figures, frames and other things that it showed, in order, each a dictionary
            from MIME types to data: text, or bytes for ``"image/png"``.
        requests: The requests over the network, in order, of a sandbox whose policy names hosts:
            the first 1,000 allowed and the first 1,000 denied ones.
        requests_left_out: How many requests are left out.
        decisions: The first 1,000 decisions of its guards, in order, as the code's process reports
            them, if the sandbox has a log. ``docs/recording.md`` describes the keys.
        pending: The question that waits for `Session.answer`, if ``on_ask`` answered
            ``"pending"``.
        restarted: Why the step lacked names of the one before, which `for_model` tells too:
            ``"restored"`` if it had those of a record (`Session.load`), ``"anew"`` if it had none,
            ``"undone"`` if it had those from before the last step. Usually ``None``.
        lost: The names that a record could not keep, each with the reason.
        timings: Where the time went.
    """

    returncode: int
    stdout: str
    stderr: str
    duration: float
    killed_by: str | None
    violations: list[AuditDenied] = field(default_factory=list)
    value: Any = None
    confined: bool = True
    changed: list[str] = field(default_factory=list)
    value_error: str | None = None
    error: Error | None = None
    display: list[dict[str, str | bytes]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    requests_left_out: int = 0
    pending: Pending | None = None
    restarted: Restart | None = None
    lost: dict[str, str] = field(default_factory=dict)
    timings: Timings = field(default_factory=Timings)

    def __repr__(self) -> str:
        parts = [f"exit status {self.returncode}"]
        if self.killed_by is not None:
            parts = [f"killed by {self.killed_by}"]
        if self.violations:
            parts.append(f"{len(self.violations)} denied")
        if self.changed:
            parts.append(f"{len(self.changed)} {'file' if len(self.changed) == 1 else 'files'}")
        if count := len(self.requests) + self.requests_left_out:
            parts.append(f"{count} {'request' if count == 1 else 'requests'}")
        parts.append(f"{self.duration:.2f} s")
        if not self.confined:
            parts.append("not held by the kernel")
        return f"<Result: {', '.join(parts)}>"

    def __str__(self) -> str:
        """What `for_model` tells: a package whose tool is `Session.run` shows it to its model."""
        return self.for_model()

    @property
    def __pydantic_serializer__(self) -> Any:
        """What Pydantic AI makes of it for a model, where `Session.run` is a tool: its text."""
        try:
            from pydantic_core import SchemaSerializer, core_schema
        except ImportError as error:
            raise AttributeError("it needs pydantic") from error
        as_text = core_schema.plain_serializer_function_ser_schema(str)
        return SchemaSerializer(core_schema.any_schema(serialization=as_text))

    def _repr_html_(self) -> str:
        parts = [f"<p>{escaped(repr(self)[len('<Result: ') : -1])}</p>"]
        if note := _restarted(self):
            parts.append(block("session", [note]))
        for name in ("stdout", "stderr"):
            if text := getattr(self, name):
                parts.append(block(name, [text]))
        parts += displayed(self.display)
        if self.value is not None and not is_displayed(self):
            parts.append(block("value", [written(self.value)]))
        if self.value_error is not None:
            parts.append(block("no value", [self.value_error]))
        if self.error is not None:
            parts.append(block("error", [self.error.traceback or str(self.error)]))
        if self.violations:
            parts.append(block("denied", (denied.message for denied in self.violations)))
        if self.changed:
            parts.append(block("files", self.changed))
        if self.requests or self.decisions:
            parts.append(block("timeline", shown(self.timeline)))
        return f"<div>{''.join(parts)}</div>"

    def for_model(self, max_chars: int = 20_000) -> str:
        r"""Describe the result to a model, as the answer of a tool that runs code.

        Args:
            max_chars: The most characters of each part; a longer one loses its middle.

        Returns:
            What a terminal would show, without colours, in parts under their names: ``session``
            (what was lost), ``stdout``, ``stderr``, ``value``, ``displayed`` (texts, and images by
            their numbers), ``error`` (the traceback, without most frames of libraries), ``ended``
            (by a limit, or with an exit status), ``denied`` (denials that code swallowed, with
            their hints) and ``failed requests``.

        Raises:
            TypeError: ``max_chars`` is not a number.
            ValueError: ``max_chars`` is not positive.

        Examples:
            >>> from fastaudit_rs import Policy
            >>> print(Policy().session().run("print('hi')\n6 * 7").for_model())
            stdout:
            hi
            <BLANKLINE>
            value:
            42
        """
        max_chars = checked(max_chars)
        value = "" if self.value is None else written(self.value)
        if isinstance(self.value, str) and is_displayed(self):
            # It is the text of a frame or the like.
            value = self.value
        parts = {
            "session": _restarted(self),
            "stdout": self.stdout,
            "stderr": without_traceback(self.stderr, self.error.traceback if self.error else ""),
            "value": value,
            "no value": self.value_error or "",
            "displayed": displays_told(self.display, value),
            "error": traceback_told(_error(self), [one.message for one in self.violations]),
            "ended": _ended(self),
            "denied": swallowed(self),
            "failed requests": _failed_requests(self),
        }
        told = [part(name, text, max_chars) for name, text in parts.items() if text]
        return "\n\n".join(told) or "It ran, and printed nothing."

    def content_for_model(self, max_chars: int = 20_000) -> ModelContent:
        """The result as content for a model: text, images and the names of files.

        Args:
            max_chars: As for `for_model`.

        Raises:
            TypeError: ``max_chars`` is not a number.
            ValueError: ``max_chars`` is not positive.

        Examples:
            >>> from fastaudit_rs import Policy
            >>> Policy().session().run("1 / 0").content_for_model().is_error
            True
        """
        text = self.for_model(max_chars)
        images, left_out = images_of(self.display)
        if left_out:
            text = f"{text}\n\n{part('images left out', left_out, max_chars)}"
        return ModelContent(text, images, files_of(self), is_error=not self.success)

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as data that JSON can hold.

        A ``value`` that JSON cannot hold becomes its ``repr()``, an image base64, and a denial its
        `AuditDenied.to_dict`.

        Examples:
            >>> from fastaudit_rs import Policy
            >>> told = Policy().session().run("6 * 7").to_dict()
            >>> told["value"], told["error"], told["violations"]
            (42, None, [])
        """
        told = {name: getattr(self, name) for name in self.__dataclass_fields__}
        told |= {
            "violations": [denied.to_dict() for denied in self.violations],
            "value": in_json(self.value),
            "error": None if self.error is None else asdict(self.error),
            "display": [
                {
                    mime: data if isinstance(data, str) else base64.b64encode(data).decode()
                    for mime, data in shown.items()
                }
                for shown in self.display
            ],
            "requests": [asdict(request) for request in self.requests],
            "pending": None if self.pending is None else self.pending.to_dict(),
            "timings": asdict(self.timings),
        }
        found: dict[str, Any] = valid_data(told)
        return found

    def to_json(self) -> str:
        """Return `to_dict` as a text of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @property
    def timeline(self) -> list[Act]:
        """Files, programs and requests in the order of time.

        A sandbox with a log has all decisions. Others have the requests, then denials and changed
        files without times.

        Examples:
            >>> from fastaudit_rs import Policy
            >>> for act in Policy().session().run("open('/srv/b', 'w')").timeline:
            ...     print(act.verdict, act.kind, act.target)
            denied write /srv/b
        """
        timed = [*map(of_decision, self.decisions), *map(of_request, self.requests)]
        timed.sort(key=lambda act: act.time or 0.0)
        if self.decisions:
            return timed
        denied = [
            Act(None, one.effect or "unknown", one.path or one.event, "denied", one.rule)
            for one in self.violations
        ]
        return timed + denied + [Act(None, "changed", name, "allowed") for name in self.changed]

    @property
    def success(self) -> bool:
        """True if it ended by itself, with the status 0 and without an exception."""
        return self.returncode == 0 and self.killed_by is None and self.error is None

    @property
    def timed_out(self) -> bool:
        """True if it took longer than it may."""
        return self.killed_by == "wall_seconds"


def files_of(result: Result) -> list[str]:
    """The changed files that a model is told of: not those of caches."""
    names = (name for name in result.changed if not name.startswith(".") and "/." not in name)
    return [*islice(names, FILES)]


def in_json(value: object) -> Any:
    """The value, if JSON can hold it; else its `repr()`."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return written(value)
    return value


def is_displayed(result: Result) -> bool:
    """Return whether the value is a frame or the like, which is shown as one."""
    texts = (written(result.value), result.value if isinstance(result.value, str) else None)
    return any(thing.get("text/plain", "") in texts for thing in result.display)


def untold(result: Result) -> list[AuditDenied]:
    """The denials that the error does not tell: code, or a library, swallowed them."""
    error = _error(result)
    return [one for one in result.violations if one.message not in error]


def swallowed(result: Result) -> str:
    """The same as text, with their hints."""
    return "\n".join(dict.fromkeys(denial_told(str(one)) for one in untold(result)))


def _failed_requests(result: Result) -> str:
    """The requests that a rule or a failure ended: programs, and native clients, say little."""
    ended = (
        f"{one.host}: {one.error or f'denied by {one.rule}'}"
        for one in result.requests
        if one.rule is not None or one.error is not None
    )
    left_out = result.requests_left_out
    more = [f"{left_out} more requests are not listed"] if left_out else []
    return "\n".join([*dict.fromkeys(ended), *more])


def _error(result: Result) -> str:
    if result.error is None:
        return ""
    # A model calls none of these.
    text = WAYS.sub("", result.error.traceback or str(result.error))
    # An error of syntax needs the marks.
    return text if "SyntaxError" in result.error.kind else without_marks(text)


def _restarted(result: Result) -> str:
    if result.restarted is None:
        return ""
    lost = [f"{name} ({why})" for name, why in list(result.lost.items())[:TOLD]]
    left_out = len(result.lost) - len(lost)
    more = [f"{left_out} more"] if left_out else []
    names = f", and so are: {', '.join([*lost, *more])}" if lost else ""
    return f"{RESTARTED[result.restarted]}{names}."


def _ended(result: Result) -> str:
    if result.killed_by is None:
        is_told = result.error is not None or result.returncode == 0
        return "" if is_told else f"exit status {result.returncode}"
    if result.pending is not None:
        return "it waits for an answer: names are as before the step, and files as it left them"
    ended = end_told(result.killed_by, result.duration)
    # An exception in the code ended it, not the end of its process.
    is_kept = result.error is not None and str(result.error) == "KeyboardInterrupt"
    return f"{ended}; its variables are kept" if is_kept else ended
