"""Text for a terminal, a page or a model, and what other code wrote made fit for it."""

# Importing `typing` takes longer than all of this package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: The characters beside those of control that turn the direction of writing, or end a line.
_ACTING = frozenset(
    "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


class _Escapes(dict[int, str]):
    """The escapes of characters that act on a display, or cannot be shown."""

    def __missing__(self, code: int) -> "int | str":
        character = chr(code)
        is_control = code < 0x20 or 0x7F <= code < 0xA0
        if is_control or 0xD800 <= code < 0xE000 or character in _ACTING:
            return character.encode("unicode_escape").decode()
        return code


_IN_LINES = _Escapes({ord("\n"): "\n", ord("\t"): "\t"})
_IN_ONE_LINE = _Escapes()


def harmless(text: str) -> str:
    r"""Return the text with characters that act on a display escaped, all but tabs and line ends.

    >>> harmless("\x1b[2J")
    '\\x1b[2J'
    """
    return text if text.isprintable() else text.translate(_IN_LINES)


def printable(text: str) -> str:
    r"""Return the text as `harmless` does, in one line: a name must not move the cursor."""
    return text if text.isprintable() else text.translate(_IN_ONE_LINE)


def red(text: str) -> str:
    return f"\x1b[31m{text}\x1b[39m"


# Texts for a model: in valid Unicode, and no longer than it takes.


def valid(text: str) -> str:
    """The text in valid Unicode, as clients of models need it: code may have half a character."""
    return text.encode("utf-8", "replace").decode()


def valid_data(told: "Any") -> "Any":
    """The same, as data of JSON in valid Unicode: code makes names and texts that are neither."""
    import json

    return json.loads(valid(json.dumps(told, ensure_ascii=False)))


def written(value: object) -> str:
    """The `repr()` of a value; the reason if there is none, as for a number of 5,000 digits.

    Packages of arrays and frames raise errors of many classes for bytes that code chose.
    """
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__}: {error}>"


def shortened(text: str, most: int) -> str:
    """Return the text without its ends' white space, and without its middle if it is long."""
    text = text.strip("\n")
    left_out = len(text) - most
    if left_out <= 0:
        return text
    half = most // 2
    return f"{text[:half]}\n… {left_out} characters left out …\n{text[len(text) - most + half :]}"


def checked(max_chars: "Any") -> int:
    if isinstance(max_chars, bool) or not isinstance(max_chars, int):
        raise TypeError(f"max_chars must be a number of characters, not {type(max_chars).__name__}")
    if max_chars < 1:
        raise ValueError(f"max_chars must be positive, not {max_chars}")
    return max_chars


class AsText:
    """Stands for an object in a signature, by its text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text
