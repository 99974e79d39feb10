"""The display of a denial in IPython and Jupyter: short, with its place in the cell."""

import linecache
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from IPython.core.interactiveshell import InteractiveShell

from ._harmless import red

#: The beginning of a cell's line that IPython made of a magic or of ``!command``.
MADE = "get_ipython()."


class Hinted(Protocol):
    """A denial: what was denied, and what would allow it."""

    @property
    def message(self) -> str:
        """The first line of its text."""
        ...

    @property
    def hint(self) -> str | None:
        """The setting that would allow it."""
        ...


def render(denied: Hinted, error: BaseException) -> list[str]:
    """The lines that IPython shows of a denial; all frames with ``%xmode Verbose``."""
    shell = InteractiveShell.instance() if InteractiveShell.initialized() else None
    if shell is not None and shell.InteractiveTB.mode == "Verbose":
        frames: list[str] = shell.InteractiveTB.structured_traceback(
            type(error), error, error.__traceback__, tb_offset=1
        )
        return frames
    is_plain = shell is None or shell.colors.lower() == "nocolor"
    name, outer = (
        type(each).__name__ if is_plain else red(type(each).__name__) for each in (denied, error)
    )
    if isinstance(error, type(denied)):
        above = [f"{name}: {denied.message}"]
    elif denied.message in str(error):
        above = [f"{outer} from {name}: {denied.message}"]
    else:
        above = [f"{outer}: {error}", f"from {name}: {denied.message}"]
    if shell is not None:
        above += _place(shell, error.__traceback__)
    return in_lines(denied, above)


def in_lines(denied: Hinted, above: list[str]) -> list[str]:
    """The lines that stand in place of a traceback: what is above, and the words that allow it."""
    hint = [f"To allow it: {denied.hint}"] if denied.hint is not None else []
    return [*above, *hint, str(denied).splitlines()[-1]]


def cell_of(shell: InteractiveShell, file: str) -> str | None:
    name_of: Callable[[str], tuple[str, str] | None]
    name_of = getattr(shell.compile, "format_code_name", lambda name: None)
    name = name_of(file)
    return None if name is None else " ".join(name)


def _place(shell: InteractiveShell, traceback: TracebackType | None) -> list[str]:
    """Return the last line of a cell that led to it."""
    found: list[str] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        cell = cell_of(shell, code.co_filename)
        if cell is not None:
            number = traceback.tb_lineno
            line = linecache.getline(code.co_filename, number).strip()
            if line.startswith(MADE) or f" = {MADE}" in line:
                line = _written(shell, cell, number) or line
            inside = "" if code.co_name == "<module>" else f", in {code.co_name}"
            found = [f"  {cell}, line {number}{inside}", *([f"    {line}"] if line else [])]
        traceback = traceback.tb_next
    return found


def _written(shell: InteractiveShell, cell: str, number: int) -> str | None:
    """Return a line of a cell as the user wrote it."""
    count = cell.partition("[")[2].partition("]")[0]
    try:
        lines = shell.history_manager.input_hist_raw[int(count)].splitlines()  # type: ignore[union-attr]
        return str(lines[number - 1]).strip()
    except (AttributeError, IndexError, ValueError):
        return None
