"""The display of a sandbox's result: in one line, and in a notebook.

The code in the sandbox wrote most of it: it becomes neither markup nor control characters.
"""

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .results import Result

#: The number of characters that are shown of each text.
SHOWN = 10_000

#: Control characters as their pictures (U+2400), and those that turn the direction of writing.
_HARMLESS = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: 0x2421,
    **dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD),
}


def harmless(text: str) -> str:
    r"""Return the text without characters that act on the display.

    >>> harmless("\x1b[2J")
    '␛[2J'
    """
    return text.translate(_HARMLESS)


def one_line(result: "Result") -> str:
    """A result in one line."""
    parts = [f"exit status {result.returncode}"]
    if result.killed_by is not None:
        parts = [f"killed by {result.killed_by}"]
    if result.violations:
        parts.append(f"{len(result.violations)} denied")
    if result.changed:
        parts.append(f"{len(result.changed)} {'file' if len(result.changed) == 1 else 'files'}")
    parts.append(f"{result.duration:.2f} s")
    if not result.confined:
        parts.append("not held by the kernel")
    return f"<Result: {', '.join(parts)}>"


def page(result: "Result") -> str:
    """A result as HTML."""
    parts = [f"<p>{_text(one_line(result)[len('<Result: ') : -1])}</p>"]
    for name in ("stdout", "stderr"):
        if text := getattr(result, name):
            parts.append(_block(name, [text]))
    if result.value is not None:
        parts.append(_block("value", [repr(result.value)]))
    if result.violations:
        parts.append(_block("denied", (denied.message for denied in result.violations)))
    if result.changed:
        parts.append(_block("files", result.changed))
    return f"<div>{''.join(parts)}</div>"


def _block(head: str, texts: "Iterable[str]") -> str:
    text = "\n".join(texts)
    rest = f"\n… {len(text) - SHOWN} characters more" if len(text) > SHOWN else ""
    return f"<b>{head}</b><pre>{_text(text[:SHOWN])}{rest}</pre>"


def _text(text: str) -> str:
    return html.escape(harmless(text))
