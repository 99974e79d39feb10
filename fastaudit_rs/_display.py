"""The display of a result: in one line, and in a notebook.

The code that ran wrote most of it: it becomes neither markup of the host's page nor control
characters. HTML of its own is shown in a frame without scripts that loads nothing.
"""

import base64
import html
from typing import TYPE_CHECKING

from ._harmless import harmless
from ._told import written
from .timeline import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .results import Result

#: The number of characters that are shown of each text.
SHOWN = 10_000

#: The characters that things which a step displayed may have on a page, together.
DISPLAYED = 5_000_000

#: The beginning of the document in a frame. Its policy comes first: no later one makes it wider.
_FRAMED = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
)

#: The beginning of an image.
PNG = b"\x89PNG\r\n\x1a\n"


def one_line(result: "Result") -> str:
    """A result in one line."""
    parts = [f"exit status {result.returncode}"]
    if result.killed_by is not None:
        parts = [f"killed by {result.killed_by}"]
    if result.violations:
        parts.append(f"{len(result.violations)} denied")
    if result.changed:
        parts.append(f"{len(result.changed)} {'file' if len(result.changed) == 1 else 'files'}")
    if count := len(result.requests) + result.requests_left_out:
        parts.append(f"{count} {'request' if count == 1 else 'requests'}")
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
    parts += _displayed(result.display)
    if result.value is not None and not is_displayed(result):
        parts.append(_block("value", [written(result.value)]))
    if result.value_error is not None:
        parts.append(_block("no value", [result.value_error]))
    if result.error is not None:
        parts.append(_block("error", [result.error.traceback or str(result.error)]))
    if result.violations:
        parts.append(_block("denied", (denied.message for denied in result.violations)))
    if result.changed:
        parts.append(_block("files", result.changed))
    if result.requests or result.decisions:
        parts.append(_block("timeline", shown(result.timeline)))
    return f"<div>{''.join(parts)}</div>"


def is_displayed(result: "Result") -> bool:
    """Return whether the value is a frame or the like, which is shown as one."""
    texts = (written(result.value), result.value if isinstance(result.value, str) else None)
    return any(thing.get("text/plain", "") in texts for thing in result.display)


def _displayed(display: "list[dict[str, str | bytes]]") -> "list[str]":
    parts: list[str] = []
    left = DISPLAYED
    for thing in display:
        part = framed(thing)
        if len(part) > left:
            part = _block("display", ["too large to be shown: result.display has it"])
        left -= len(part)
        if left < 0:
            parts.append(_block("display", ["more is in result.display"]))
            break
        parts.append(part)
    return parts


def framed(thing: "dict[str, str | bytes]") -> str:
    """A thing that code displayed, as HTML: its own in a frame without scripts."""
    image, markup = thing.get("image/png"), thing.get("text/html")
    if isinstance(image, bytes) and image.startswith(PNG):
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
            return _block("display", [text])
    return _block("display", [f"{mime}: {len(data)} bytes" for mime, data in thing.items()])


def _block(head: str, texts: "Iterable[str]") -> str:
    text = "\n".join(texts)
    rest = f"\n… {len(text) - SHOWN} characters more" if len(text) > SHOWN else ""
    return f"<b>{head}</b><pre>{_text(text[:SHOWN])}{rest}</pre>"


def _text(text: str) -> str:
    return html.escape(harmless(text))
