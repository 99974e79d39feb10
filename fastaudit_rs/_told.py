"""A result in words for a model: the answer of a tool that runs code."""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .results import Result

#: A line of a traceback that marks a part of the line above it.
_MARKS = re.compile(r"^ +[~^]+\n", re.MULTILINE)


def for_model(result: "Result", most: int) -> str:
    """The parts of a result, each under its name."""
    parts = {
        "stdout": result.stdout,
        "stderr": result.stderr,
        "value": "" if result.value is None else written(result.value),
        "no value": result.value_error or "",
        "displayed": ", ".join(sorted({mime for shown in result.display for mime in shown})),
        "error": _error(result),
        "ended": _ended(result),
        "denied": denied(result),
        "failed requests": _requests(result),
    }
    told = [f"{name}:\n{shortened(text, most)}" for name, text in parts.items() if text]
    return valid("\n\n".join(told)) or "It ran, and printed nothing."


def denied(result: "Result") -> str:
    """The denials of a result that its error does not tell: code, or a library, swallowed them."""
    error = _error(result)
    texts = (str(one).strip() for one in result.violations if one.message not in error)
    return "\n".join(dict.fromkeys(texts))


def valid(text: str) -> str:
    """The text in valid Unicode, as clients of models need it: code may have half a character."""
    return text.encode("utf-8", "replace").decode()


def written(value: object) -> str:
    """The `repr()` of a value; the reason if there is none, as for a number of 5,000 digits."""
    try:
        return repr(value)
    except (ValueError, RecursionError) as error:
        return f"<{type(value).__name__}: {error}>"


def shortened(text: str, most: int) -> str:
    """Return the text without its ends' white space, and without its middle if it is long."""
    text = text.strip("\n")
    left_out = len(text) - most
    if left_out <= 0:
        return text
    half = most // 2
    return f"{text[:half]}\n… {left_out} characters left out …\n{text[len(text) - most + half :]}"


def checked(most: Any) -> int:
    """Check a number of characters.

    Raises:
        TypeError: It is no number.
        ValueError: It is not positive.
    """
    if isinstance(most, bool) or not isinstance(most, int):
        raise TypeError(f"most must be a number of characters, not {type(most).__name__}")
    if most < 1:
        raise ValueError(f"most must be positive, not {most}")
    return most


def _requests(result: "Result") -> str:
    """The requests that a rule or a failure ended: programs, and native clients, say little."""
    ended = (
        f"{one.host}: {one.error or f'denied by {one.rule}'}"
        for one in result.requests
        if one.rule is not None or one.error is not None
    )
    left_out = result.requests_left_out
    more = [f"{left_out} more requests are not listed"] if left_out else []
    return "\n".join([*dict.fromkeys(ended), *more])


def _error(result: "Result") -> str:
    if result.error is None:
        return ""
    text = result.error.traceback or str(result.error)
    # The marks below lines: each version of Python has others, and an error of syntax needs them.
    return text if "SyntaxError" in result.error.kind else _MARKS.sub("", text)


def _ended(result: "Result") -> str:
    if result.killed_by is None:
        is_told = result.error is not None or result.returncode == 0
        return "" if is_told else f"exit status {result.returncode}"
    if result.killed_by == "interrupt":
        return "it was interrupted"
    return f"it was ended by the limit {result.killed_by}"
