"""The display of the parts of a result in a notebook.

The code that ran wrote most of it: it becomes neither markup of the host's page nor control
characters. HTML of its own is shown in a frame without scripts that loads nothing.
"""

import base64
import html
from collections.abc import Iterable

from ._harmless import harmless

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
        return f'<img style="max-width: 100%" src="data:image/png;base64,{image}">'
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


def image_of(thing: dict[str, str | bytes]) -> str | None:
    """The image of a thing that code displayed, in Base64; ``None`` if it has no such image."""
    image = thing.get("image/png")
    if not isinstance(image, bytes) or not image.startswith(b"\x89PNG\r\n\x1a\n"):
        return None
    return base64.b64encode(image).decode()


def block(head: str, texts: Iterable[str]) -> str:
    """A part with a heading; the end of a long one is left out."""
    text = "\n".join(texts)
    rest = f"\n… {len(text) - SHOWN} characters more" if len(text) > SHOWN else ""
    return f"<b>{head}</b><pre>{escaped(text[:SHOWN])}{rest}</pre>"


def escaped(text: str) -> str:
    return html.escape(harmless(text))
