"""Denials that a cell's code did not show as such: wrapped by a library, or swallowed."""

from collections.abc import Iterable
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from .. import AuditDenied
from .._cells import cell_of, render
from . import denials


def render_wrapped(shell: InteractiveShell, error: BaseException | None) -> list[str] | None:
    """The lines for an error that a library raised for a denial; ``None`` for any other.

    An error that the user's own code raised on a denial shows its frames as usual.
    """
    if isinstance(error, AuditDenied) or not isinstance(error, Exception):
        return None
    denied = denials.denial_in(error)
    if denied is None or shell.InteractiveTB.mode == "Verbose":
        return None
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is None:
        return None
    file = innermost.tb_frame.f_code.co_filename
    own = (denied.place or "").rpartition(":")[0]
    if file == own or cell_of(shell, file) is not None:
        return None
    return render(denied, error)


def untold(
    shell: InteractiveShell,
    violations: Iterable[AuditDenied],
    error: BaseException | None = None,
    **options: Any,
) -> list[str]:
    """Return a line for each place of a denial that the error does not show: `denials.lines`."""

    def place_of(denied: AuditDenied) -> str | None:
        file, _, line = (denied.place or "").rpartition(":")
        cell = cell_of(shell, file)
        return denials.place_of(denied) if cell is None else f"{cell}, line {line}"

    return denials.lines(violations, error, place_of=place_of, **options)
