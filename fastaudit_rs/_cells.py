"""The display of a denial in IPython and Jupyter: short, with its place in the cell."""

import linecache
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from IPython.core.interactiveshell import InteractiveShell

#: Sequences that turn a terminal's text red, and back.
RED = ("\x1b[31m", "\x1b[39m")

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
    """Return the lines that IPython shows of a denial: the operation, its place, and a hint.

    With ``%xmode Verbose`` it is all frames, as for any exception.

    Args:
        denied: The denial.
        error: The denial, or the error that a library raised for it.
    """
    shell = InteractiveShell.instance() if InteractiveShell.initialized() else None
    if shell is not None and shell.InteractiveTB.mode == "Verbose":
        frames: list[str] = shell.InteractiveTB.structured_traceback(
            type(error), error, error.__traceback__, tb_offset=1
        )
        return frames
    red, plain = ("", "") if shell is None or shell.colors.lower() == "nocolor" else RED
    name = f"{red}{type(denied).__name__}{plain}: {denied.message}"
    outer = f"{red}{type(error).__name__}{plain}"
    if isinstance(error, type(denied)):
        lines = [name]
    elif denied.message in str(error):
        lines = [f"{outer} from {name}"]
    else:
        lines = [f"{outer}: {error}", f"from {name}"]
    if shell is not None:
        lines += _place(shell, error.__traceback__)
    if denied.hint is not None:
        lines.append(f"To allow it: {denied.hint}")
    lines.append(str(denied).splitlines()[-1])
    return lines


def cell_of(shell: InteractiveShell, file: str) -> str | None:
    """Return the name of the cell that this file's code is from; ``None`` if it is from no cell."""
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
