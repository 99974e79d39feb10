"""The words for a denial in a line, and denials that nobody was shown.

A guard notes all of its denials. These functions find those that a library wrapped or swallowed, so
that the user was not shown them, and describe each: the operation, the place in the user's files,
and the words that would allow it.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator

from .._text import printable
from ..denied import AuditDenied

LONGEST = 100

MOST = 3

COLOUR = "#d12f2f"

#: The script of the command, and what ``python -m`` runs in its place.
LAUNCHER = "fastaudit-rs"
OWN_MAIN = os.path.join(os.path.dirname(os.path.dirname(__file__)), "__main__.py")


def denials_in(error: BaseException | None) -> Iterator[AuditDenied]:
    """Return the denials that an error is, or that caused it, the nearest first.

    Libraries keep them as the cause or the context, in an exception group, or among the arguments
    (``URLError(reason)``).
    """
    waiting: list[object] = [error]
    seen: set[int] = set()
    while waiting:
        current = waiting.pop(0)
        if not isinstance(current, BaseException) or id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, AuditDenied):
            yield current
        waiting += [current.__cause__, current.__context__, getattr(current, "reason", None)]
        waiting += [*getattr(current, "exceptions", ()), *current.args]


def denial_in(error: BaseException | None) -> AuditDenied | None:
    return next(denials_in(error), None)


def swallowed(
    violations: Iterable[AuditDenied], error: BaseException | None = None
) -> list[AuditDenied]:
    """Return the denials of a guard that are not in the error that came out at the end."""
    shown = [denied._denial for denied in denials_in(error)]
    return [denied for denied in violations if not any(denied._denial is known for known in shown)]


def in_one_line(
    denied: AuditDenied,
    *,
    named: str | None = None,
    place: str | None = None,
    times: int = 1,
    others: int = 0,
    hint: str | None = None,
    has_hint: bool = True,
) -> str:
    """Describe a denial in a line: the operation, the place, and the words that would allow it.

    Examples:
        ``os.mkdir /srv/out, at job.py:7; to allow it: --write /srv/out``
    """
    line = operation(denied, named)
    if others:
        line += f" and {others} other{'s' * (others > 1)}"
    elif times > 1:
        line += f", {times} times"
    if (place := place or place_of(denied)) is not None:
        line += f", at {place}"
    hint = hint or denied.hint
    if has_hint and hint is not None:
        hint = ", ".join(hint.splitlines())
        line += f"; {'to allow it: ' if denied.suggestion is not None else ''}{hint}"
    return printable(line)


def lines(
    violations: Iterable[AuditDenied],
    error: BaseException | None = None,
    *,
    most: int = MOST,
    place_of: Callable[[AuditDenied], str | None] | None = None,
    head: str = "",
    more: str = "",
) -> list[str]:
    """Describe denials that the error does not show: a line for each place, one for the rest."""
    alike: dict[tuple[str, str | None], list[AuditDenied]] = {}
    for denied in swallowed(violations, error):
        alike.setdefault((denied.event, denied.place), []).append(denied)
    told = []
    for group in alike.values():
        last, objects = group[-1], {operation(denied) for denied in group}
        place = place_of(last) if place_of else None
        line = in_one_line(
            last, place=place, times=len(group), others=len(objects) - 1, hint=_hint(group)
        )
        told.append(head + line)
    left_out = len(told) - most
    return told if left_out <= 0 else [*told[:most], f"and {left_out} more{more}"]


def _hint(group: list[AuditDenied]) -> str | None:
    """The options that allow the last of several denials, and those before it, up to `MOST`."""
    hints = [*dict.fromkeys(denied.hint or "" for denied in reversed(group))]
    if not all(hint.startswith("--") for hint in hints):
        return group[-1].hint
    return " ".join(hints[:MOST]) + (" …" if len(hints) > MOST else "")


def operation(denied: AuditDenied, named: str | None = None) -> str:
    """Name an operation and its object: ``os.mkdir /srv/out``, ``socket.connect 10.0.0.1:80``."""
    told = object_of(denied) if named is None else named
    return cut(f"{denied.event} {told}".strip() or denied.message)


def cut(text: str) -> str:
    """The text in one line, without its end if it is long."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def object_of(denied: AuditDenied) -> str:
    """Name the target of an operation; empty if it names nothing."""
    if denied.event == "fastaudit.write":
        # It has the descriptor; the message names the file while it was open.
        found = re.match(r"Denied: write \d+ bytes to ('.*?'|\".*?\"):", denied.message)
        return found[1][1:-1] if found else ""
    told = denied.path or denied.command or denied.callee
    if told is not None:
        return told
    for argument in denied.event_args:
        if isinstance(argument, tuple) and denied.host is not None:
            return ":".join(map(str, argument[:2]))
    for argument in denied.event_args:
        if isinstance(argument, bytes):
            return os.fsdecode(argument)
        # An object is shown by its `repr()`, which names nothing.
        if isinstance(argument, (int, str)) and not str(argument).startswith("<"):
            return str(argument)
    return ""


def place_of(denied: AuditDenied) -> str | None:
    """Return where in the user's files it was denied: ``file:line``, relative if possible."""
    place = denied.place
    file = "" if place is None else place.rpartition(":")[0]
    if os.path.basename(file) == LAUNCHER or file == OWN_MAIN:
        # A module that ``-m`` runs: no file of the user's is between.
        return None
    try:
        here = os.getcwd() + os.sep
    except OSError:
        return place
    return None if place is None else place.removeprefix(here)
