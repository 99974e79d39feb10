"""The result of running code: in a sandbox, or in a step of a session."""

from dataclasses import dataclass, field
from typing import Any

from . import AuditDenied
from ._display import one_line, page
from ._told import checked, for_model
from .requests import Request
from .timeline import Act, timeline_of


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
        """Show it as the last line of a traceback."""
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
            ``repr()``. Of a step: data, an array or a frame by value, else its ``repr()``.
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
        """Describe it in one line, without the code's output."""
        return one_line(self)

    def _repr_html_(self) -> str:
        return page(self)

    def for_model(self, most: int = 20_000) -> str:
        r"""Describe it to a model: the answer of a tool that runs code.

        Args:
            most: The number of characters that each part may have; the middle of a longer one is
                left out.

        Returns:
            The parts that there are, each under its name: ``stdout``, ``stderr``, ``value``,
            ``displayed`` (MIME types), ``error`` (the traceback), ``ended`` (by a limit, or an exit
            status) and ``denied``: denials with their hints, those that code swallowed.

        Raises:
            TypeError: ``most`` is no number.
            ValueError: ``most`` is not positive.

        Example:
            >>> from fastaudit_rs import Policy
            >>> print(Policy().session().run("print('hi')\n6 * 7").for_model())
            stdout:
            hi
            <BLANKLINE>
            value:
            42
        """
        return for_model(self, checked(most))

    @property
    def timeline(self) -> list[Act]:
        """Files, programs and requests in the order of time.

        A sandbox with a log has all decisions; another one the denials and changed files, without a
        time, after the requests.

        Example:
            >>> for act in sandbox.run(code).timeline:
            ...     print(act.verdict, act.kind, act.target)
        """
        return timeline_of(self)

    @property
    def success(self) -> bool:
        """True if it ended by itself, with the status 0."""
        return self.returncode == 0 and self.killed_by is None

    @property
    def timed_out(self) -> bool:
        """True if it took longer than it may."""
        return self.killed_by == "wall_seconds"
