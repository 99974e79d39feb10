"""The result of running code: in a sandbox, or in a step of a session."""

import re
from dataclasses import dataclass, field
from typing import Any

from . import AuditDenied
from ._notebook import block, displayed, escaped
from ._text import checked, shortened, valid, written
from .timeline import Act, Request, of_decision, of_request, shown

#: A line of a traceback that marks a part of the line above it.
_MARKS = re.compile(r"^ +[~^]+\n", re.MULTILINE)


@dataclass(frozen=True)
class Error:
    """An exception that ended code, as data.

    Attributes:
        kind: The name of its class, with its module unless that is `builtins`.
        message: Its text.
        traceback: The traceback, as Python prints it, with the code's own frames alone.
        line: The line of the code that it passed through last, from 1; ``None`` if there is none.
    """

    kind: str
    message: str
    traceback: str = ""
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run, or of a step of a session.

    Its ``repr()`` is one line, and a notebook shows its output too.

    Attributes:
        returncode: The exit status; minus the number of the signal that ended it. Of a step that
            ended by itself it is that of a program that ends so: 0, 1 for an exception, 77 for a
            denial.
        stdout: Its standard output, up to the limit.
        stderr: The same of standard error.
        duration: The time that it took, in seconds.
        killed_by: The limit that ended it, a name of `Limits`; ``"interrupt"`` for a step that was
            interrupted; ``None`` if nothing did. If memory has
            a limit, a process that kills itself by SIGKILL looks like one that hit the limit, and
            it is ``"memory"`` too if the kernel killed a process that the code started.
        violations: The operations that its policy denied, as the run reported them.
        value: The value of the last expression, if it was asked for: what JSON can hold, else its
            ``repr()``. Of a step: by value, as variables are passed, else its ``repr()``.
        value_error: The reason that there is no value, though it was asked for and the code ran to
            its end: it is too large, or its ``repr()`` fails.
        confined: True if the kernel held the policy.
        changed: The names of files in the directory of the sandbox that were made, changed or
            removed meanwhile, in order. Runs side by side share the directory.
        error: The exception that ended it, if one did.
        display: The figures, frames and other things that it showed, in order. Each is a
            dictionary from MIME types to data: text, and bytes for ``"image/png"``.
        requests: The requests over the network, in order: the first 1000 that are allowed, and the
            first 1000 that are denied. A sandbox whose policy names hosts has them, if the kernel
            holds it.
        requests_left_out: The number of the others.
        decisions: The decisions of its guards, in order, as the guest reports them: the first 1000
            of a run whose sandbox has a log. Each is a line of the log, as ``docs/recording.md``
            describes it.
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
        r"""Describe it to a model: the answer of a tool that runs code.

        Args:
            max_chars: The number of characters that each part may have; the middle of a longer one
                is left out.

        Returns:
            The parts that there are, each under its name: ``stdout``, ``stderr``, ``value``,
            ``displayed`` (MIME types), ``error`` (the traceback), ``ended`` (by a limit, or an exit
            status) and ``denied``: denials with their hints, those that code swallowed.

        Raises:
            TypeError: ``max_chars`` is no number.
            ValueError: ``max_chars`` is not positive.

        Example:
            >>> from fastaudit_rs import Policy
            >>> print(Policy().session().run("print('hi')\n6 * 7").for_model())
            stdout:
            hi
            <BLANKLINE>
            value:
            42
        """
        max_chars = checked(max_chars)
        parts = {
            "stdout": self.stdout,
            "stderr": self.stderr,
            "value": "" if self.value is None else written(self.value),
            "no value": self.value_error or "",
            "displayed": ", ".join(sorted({mime for thing in self.display for mime in thing})),
            "error": _error(self),
            "ended": _ended(self),
            "denied": swallowed(self),
            "failed requests": _failed_requests(self),
        }
        told = [f"{name}:\n{shortened(text, max_chars)}" for name, text in parts.items() if text]
        return valid("\n\n".join(told)) or "It ran, and printed nothing."

    @property
    def timeline(self) -> list[Act]:
        """Files, programs and requests in the order of time.

        A sandbox with a log has all decisions; another one the denials and changed files, without a
        time, after the requests.

        Example:
            >>> for act in sandbox.run(code).timeline:
            ...     print(act.verdict, act.kind, act.target)
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
        """True if it ended by itself, with the status 0."""
        return self.returncode == 0 and self.killed_by is None

    @property
    def timed_out(self) -> bool:
        """True if it took longer than it may."""
        return self.killed_by == "wall_seconds"


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
    return "\n".join(dict.fromkeys(str(one).strip() for one in untold(result)))


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
    text = result.error.traceback or str(result.error)
    # The marks below lines: each version of Python has others, and an error of syntax needs them.
    return text if "SyntaxError" in result.error.kind else _MARKS.sub("", text)


def _ended(result: Result) -> str:
    if result.killed_by is None:
        is_told = result.error is not None or result.returncode == 0
        return "" if is_told else f"exit status {result.returncode}"
    if result.killed_by == "interrupt":
        return "it was interrupted"
    return f"it was ended by the limit {result.killed_by}"
