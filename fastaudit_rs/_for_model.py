"""Texts of a result for a model: what a terminal would show, in a few lines."""

import re

from ._notebook import image_of
from ._text import shortened, valid

#: What a terminal takes as a command: control sequences, strings (a title, a link), other escapes.
_COMMANDS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?"
)

#: The escapes of other characters of control, but for tabs and line ends.
_CONTROL = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (*range(0x20), *range(0x7F, 0xA0))
    if chr(code) not in "\t\n"
}

#: A line of a traceback that marks a part of the line above it.
_MARKS = re.compile(r"^ +[~^]+\n", re.MULTILINE)

#: A frame of an installed package or of the standard library.
_OF_LIBRARY = re.compile(
    r'  File "(?:[^"]*/(?:site-packages|dist-packages|lib/python3[^/"]*)/|<fro)'
)

#: The frames of libraries in a row that are told, and the names of a chain of calls.
FRAMES, CHAIN = 3, 4

#: The images of a result, the bytes of each and of all, and the pixels of a side: services of
#: models refuse a conversation with a larger one.
IMAGES, EACH, ALL, PIXELS = 10, 3_500_000, 10_000_000, 8_000

#: The characters that are looked at for each one that is told.
ROOM = 50

#: The line between two tracebacks, and the head of each.
_AND, _HEAD = "\n\nDuring handling of the above exception", "Traceback (most recent call last):"

#: The limits in words.
_LIMITS = {
    "wall_seconds": "the time limit",
    "cpu_seconds": "the limit of processor time",
    "memory": "the memory limit",
    "output": "the limit of output",
    "disk": "the limit of its directory's size",
}


def readable(text: str) -> str:
    r"""The text as a terminal shows it at the end, without colours; control characters escaped.

    >>> readable("\x1b[31mred\x1b[0m 10%\r 100%\n")
    ' 100%\n'
    """
    if text.isprintable():
        return text
    text = _COMMANDS.sub("", text).replace("\r\n", "\n")
    if "\r" in text or "\b" in text:
        text = "\n".join(map(_overwritten, text.split("\n")))
    return text.translate(_CONTROL)


def _overwritten(line: str) -> str:
    """A line that begins anew, or goes back a character, as progress bars do."""
    line = line.rstrip("\r").rpartition("\r")[2]
    if "\b" not in line:
        return line
    kept: list[str] = []
    for character in line:
        if character != "\b":
            kept.append(character)
        elif kept:
            kept.pop()
    return "".join(kept)


def traceback_told(text: str, denials: list[str]) -> str:
    """A traceback without what a model has no use for.

    Args:
        text: The traceback.
        denials: The first lines of the step's denials.
    """
    first, _, last = text.rpartition(_AND)
    told_first = [denied for denied in denials if denied in first]
    if told_first and all(denied in last for denied in told_first):
        # The package raised an error of its own, which has the denial's text.
        text = _HEAD + last.partition(_HEAD)[2]
    told: list[str] = []
    frames: list[list[str]] = []
    for line in text.split("\n"):
        if _OF_LIBRARY.match(line):
            frames.append([line])
        elif frames and line.startswith("    "):
            frames[-1].append(line)
        else:
            told += _folded(frames)
            frames = []
            if not (denials and line.startswith("Call chain: ")):
                told.append(line)
    return "\n".join(told + _folded(frames))


def _folded(frames: list[list[str]]) -> list[str]:
    """The lines of frames of libraries: the last one, if there are many."""
    if len(frames) <= FRAMES:
        return [line for frame in frames for line in frame]
    return [f"  … {len(frames) - 1} frames of libraries …", *frames[-1]]


def without_marks(text: str) -> str:
    """The traceback without marks below its lines: each version of Python has others."""
    return _MARKS.sub("", text)


def without_traceback(stderr: str, traceback: str) -> str:
    """The standard error of a program without the traceback at its end, told as its error."""
    traceback = without_marks(traceback).strip("\n")
    first = traceback.partition("\n")[0]
    start = len(stderr)
    for _ in range(traceback.count(first) if first else 0):
        start = max(stderr.rfind(first, 0, start), 0)
    is_told = bool(first) and without_marks(stderr[start:]).strip("\n") == traceback
    return stderr[:start] if is_told else stderr


def denial_told(text: str) -> str:
    """The text of a denial, with the ends of a long chain of calls."""
    lines = text.strip().split("\n")
    for number, line in enumerate(lines):
        calls = line.split(" -> ")
        if line.startswith("Call chain: ") and len(calls) > CHAIN:
            lines[number] = " -> ".join([calls[0], "…", *calls[-2:]])
    return "\n".join(lines)


def end_told(killed_by: str, seconds: float) -> str:
    """The limit that ended a step, in words."""
    if killed_by == "interrupt":
        return "it was interrupted"
    limit = _LIMITS.get(killed_by)
    named = f"{limit} ({killed_by})" if limit else f"the limit {killed_by}"
    return f"it was stopped after {seconds:.3g} s by {named}"


def displays_told(display: list[dict[str, str | bytes]], value: str) -> str:
    """What a step displayed: texts, and images by their numbers; the value has its own part."""
    told: list[str] = []
    images = 0
    for thing in display:
        plain = thing.get("text/plain")
        text = plain.strip("\n") if isinstance(plain, str) else ""
        if text == value.strip("\n"):
            text = ""
        if image_of(thing) is not None:
            images += 1
            told.append(f"image {images}{': ' if text else ''}{text}")
        elif text:
            told.append(text)
        elif not isinstance(plain, str):
            told.append(", ".join(sorted(thing)))
    return "\n".join(told)


def images_of(display: list[dict[str, str | bytes]]) -> tuple[list[bytes], str]:
    """The images that a model gets, and those that it does not, in words."""
    found = [image for image in map(image_of, display) if image is not None]
    images: list[bytes] = []
    left_out: list[str] = []
    left = ALL
    for number, image in enumerate(found, 1):
        size = len(image)
        width, height = (int.from_bytes(image[at : at + 4], "big") for at in (16, 20))
        if max(width, height) > PIXELS:
            left_out.append(f"image {number}: {width} x {height} pixels, at most {PIXELS} a side")
        elif size > min(EACH, left) or len(images) == IMAGES:
            limit = f"{IMAGES} of {EACH / 1e6:g} MB, {ALL / 1e6:g} MB together"
            left_out.append(f"image {number}: {size / 1e6:.1f} MB, at most {limit}")
        else:
            left -= size
            images.append(image)
    return images, "\n".join(left_out)


def part(name: str, text: str, max_chars: int) -> str:
    return f"{name}:\n{clean(text, max_chars).strip(chr(10))}"


def clean(text: str, max_chars: int) -> str:
    """A text of the code's, fit for a model: readable, in valid Unicode, and not too long."""
    # Work for a text of the code's is bounded first: escapes may be most of it.
    return cut(valid(readable(cut(text, ROOM * max_chars))), max_chars)


def cut(text: str, max_chars: int) -> str:
    """The text without its middle, if it is too long."""
    return text if len(text) <= max_chars else shortened(text, max_chars)
