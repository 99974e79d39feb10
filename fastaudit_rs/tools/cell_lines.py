"""The line ``%%audit`` of a cell, which is taken off so that the rest is a cell like any other."""

import linecache
import re

from IPython.core.inputtransformer2 import cell_magic

from .options import AUDIT, SANDBOX, asks_for_help

#: The code that stands for the line `%%audit` in a cell: it fails without the guard.
MARK = "get_ipython().run_line_magic('audit', {!r})\n"


def own_line(lines: list[str]) -> str | None:
    """Return the text after ``%%audit`` in the first line of a cell, if that is there."""
    found = re.match(rf"{AUDIT}(?=\s|$)(.*)", "".join(lines[:1]))
    return None if found is None else found[1].strip()


def take_off(lines: list[str]) -> list[str]:
    """Put the mark in place of the line ``%%audit``, and of the cell if it asks for help."""
    own = own_line(lines)
    if own is None:
        return lines
    body = [] if asks_for_help(own) else cell_magic(lines[1:])
    return [MARK.format(f"cell {own}"), *body]


# When IPython checks whether a cell is complete, it is one of a magic.
take_off.has_side_effects = True  # type: ignore[attr-defined]


def is_control(raw: str, own: str | None) -> bool:
    """Return whether a cell tells the guard what to do, or runs in another process."""
    if own is not None:
        return asks_for_help(own)
    words = raw.split()
    if words[:1] == [SANDBOX]:
        # Its code runs in another process, which has a policy of its own.
        return True
    return len(raw.strip().splitlines()) == 1 and (
        words[0] in ("%audit", "%sandbox")
        or (words[0] in ("%unload_ext", "%reload_ext") and words[1:] == ["fastaudit_rs"])
    )


def show_own_line(file: str, own: str) -> None:
    """Have tracebacks show the line ``%%audit`` as it was written."""
    entry = linecache.cache.get(file, ())
    lines = entry[2] if len(entry) == 4 else []
    if lines and lines[0] == MARK.format(f"cell {own}"):
        lines[0] = f"{AUDIT} {own}\n"
