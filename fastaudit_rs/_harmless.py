"""Text for a terminal or a page, and what other code wrote made fit for it."""

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
