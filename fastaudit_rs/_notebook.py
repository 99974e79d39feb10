"""What a notebook shows of a result, and of a denial.

The code that ran wrote most of a result: it becomes neither markup of the host's page nor control
characters. HTML of its own is shown in a frame without scripts that loads nothing.
"""

import base64
import html
import linecache
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from ._text import harmless, red

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

#: The number of characters that are shown of each text.
SHOWN = 10_000

#: The characters that things which a step displayed may have on a page, together.
DISPLAYED = 5_000_000

#: The beginning of the document in a frame. Its policy comes first: no later one makes it wider.
_FRAMED = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
)


def displayed(display: list[dict[str, str | bytes]]) -> list[str]:
    """The things that code displayed, as HTML, as far as a page should hold them."""
    parts: list[str] = []
    left = DISPLAYED
    for thing in display:
        part = framed(thing)
        if len(part) > left:
            part = block("display", ["too large to be shown: result.display has it"])
        left -= len(part)
        if left < 0:
            parts.append(block("display", ["more is in result.display"]))
            break
        parts.append(part)
    return parts


def framed(thing: dict[str, str | bytes]) -> str:
    """A thing that code displayed, as HTML: its own in a frame without scripts."""
    image, markup = image_of(thing), thing.get("text/html")
    if image is not None:
        data = base64.b64encode(image).decode()
        return f'<img style="max-width: 100%" src="data:image/png;base64,{data}">'
    if isinstance(markup, str):
        # Without `allow-scripts` and `allow-same-origin` it is a page that can do nothing.
        return (
            '<iframe sandbox="" referrerpolicy="no-referrer" style="width: 100%; height: 20em; '
            'border: 0; background: white; resize: vertical" '
            f'srcdoc="{html.escape(_FRAMED + markup)}"></iframe>'
        )
    for text in (thing.get("text/plain"), *thing.values()):
        if isinstance(text, str):
            return block("display", [text])
    return block("display", [f"{mime}: {len(data)} bytes" for mime, data in thing.items()])


def image_of(thing: dict[str, str | bytes]) -> bytes | None:
    """The image of a thing that code displayed, as PNG; ``None`` if it has none."""
    image = thing.get("image/png")
    if isinstance(image, bytes) and image.startswith(b"\x89PNG\r\n\x1a\n"):
        return image
    return None


def block(head: str, texts: Iterable[str]) -> str:
    """A part with a heading; the end of a long one is left out."""
    text = "\n".join(texts)
    rest = f"\n… {len(text) - SHOWN} characters more" if len(text) > SHOWN else ""
    return f"<b>{head}</b><pre>{escaped(text[:SHOWN])}{rest}</pre>"


def escaped(text: str) -> str:
    return html.escape(harmless(text))


# The display of a denial in IPython and Jupyter: short, with its place in the cell.

#: The beginning of a cell's line that IPython made of a magic or of ``!command``.
MADE = "get_ipython()."


class Hinted(Protocol):
    """A denial: the first line of its text, and the setting that would allow it."""

    @property
    def message(self) -> str: ...
    @property
    def hint(self) -> str | None: ...
    @property
    def place(self) -> str | None: ...
    @property
    def answer(self) -> str | None: ...


def render(denied: Hinted, error: BaseException) -> list[str]:
    """The lines that IPython shows of a denial; all frames with ``%xmode Verbose``."""
    from IPython.core.interactiveshell import InteractiveShell

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
        above += _place(shell, error.__traceback__) or _place_of(denied)
    return in_lines(denied, above)


def _place_of(denied: Hinted) -> list[str]:
    """The line of a file, such as one of ``%run``, that led to a denial."""
    file, _, number = (denied.place or "").rpartition(":")
    if not (file and number.isdigit()):
        return []
    line = linecache.getline(file, int(number)).strip()
    return [f"  {file}, line {number}", *([f"    {line}"] if line else [])]


def in_lines(denied: Hinted, above: list[str]) -> list[str]:
    """The lines that stand in place of a traceback: what is above, and the words that allow it."""
    hint = [f"To allow it: {denied.hint}"] if denied.hint is not None else []
    # Whoever asked to be asked sees why they were not.
    has_failed = denied.answer is not None and denied.answer.startswith("on_ask raised")
    asked = [f"Asked for approval: {denied.answer}"] if has_failed else []
    return [*above, *hint, *asked, str(denied).splitlines()[-1]]


def cell_of(shell: "InteractiveShell", file: str) -> str | None:
    name_of: Callable[[str], tuple[str, str] | None]
    name_of = getattr(shell.compile, "format_code_name", lambda name: None)
    name = name_of(file)
    return None if name is None else " ".join(name)


def _place(shell: "InteractiveShell", traceback: TracebackType | None) -> list[str]:
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


def _written(shell: "InteractiveShell", cell: str, number: int) -> str | None:
    """Return a line of a cell as the user wrote it."""
    count = cell.partition("[")[2].partition("]")[0]
    try:
        lines = shell.history_manager.input_hist_raw[int(count)].splitlines()  # type: ignore[union-attr]
        return str(lines[number - 1]).strip()
    except (AttributeError, IndexError, ValueError):
        return None
