"""Answers of a host to the question whether an operation may be done."""

import os
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias

from ._answers import Answer as Answer
from ._native import Policy, _merged_approvals
from .denied import AuditDenied

_Ask: TypeAlias = Callable[[AuditDenied], object] | Callable[[AuditDenied], Awaitable[object]]


class Approvals:
    """An ``on_ask`` that keeps the answers of another one in a file.

    A guard reads the file when it is made. It is a policy in TOML, as `Policy.from_toml` reads it,
    whose fields add to the guard's own policy. What its table ``[never]`` names is denied without
    asking. The guard replaces the file to add the answers ``"guard"``, ``"pattern"`` and
    ``"never"``.

    Your own code can call it with a denial: it asks, keeps the answer and returns it. Pass it no
    denial that other code worded, such as that of a sandbox.

    Examples:
        >>> policy = Policy(write=["."])
        >>> audit_perms = policy.guard(on_ask=Approvals("approvals.toml", lambda denied: "once"))
    """

    __slots__ = ("ask", "path")

    #: The absolute path of the file.
    path: str
    #: The function that is asked; ``None`` asks nobody.
    ask: _Ask | None

    def __init__(self, path: str | os.PathLike[str], ask: _Ask | None = None) -> None:
        """Name the file.

        Args:
            path: The file; it need not exist yet.
            ask: ``ask(denied)``, as an ``on_ask``; ``None`` asks nobody, and the answers in the
                file hold.

        Raises:
            TypeError: ``path`` is not a path, or ``ask`` is not a function.
        """
        if not isinstance(path, (str, os.PathLike)):
            kind = type(path).__name__
            raise TypeError(f"path must be a str or os.PathLike, not {kind}")
        if ask is not None and not callable(ask):
            raise TypeError(f"ask must be None or a function ask(denied), not {ask!r}")
        self.path = os.path.abspath(path)
        self.ask = ask

    def __repr__(self) -> str:
        return f"Approvals({self.path!r}, ask={self.ask!r})"

    def __call__(self, denied: AuditDenied) -> object:
        """Ask, and keep the answer."""
        answer = None if self.ask is None else self.ask(denied)
        if isinstance(answer, str):
            self._keep(denied, answer)
        return answer

    def _keep(self, denied: AuditDenied, answer: Any) -> None:
        """Add what an answer allows, or denies for good, to the file."""
        if answer not in ("guard", "pattern", "never"):
            return
        more = denied.approval(answer)
        if more is None:
            return
        try:
            with open(self.path, encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError:
            text = ""
        text = _merged_approvals(text, more, answer == "never")
        new = f"{self.path}.{os.getpid()}.new"
        with open(new, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(new, self.path)


class _UpTo(NamedTuple):
    """An ``on_ask`` in a sandbox, whose answers open no more than its kernel lets pass."""

    ask: _Ask
    held: Policy


def _nobody(denied: AuditDenied) -> None:
    """Answer nothing."""
