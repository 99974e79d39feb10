"""Texts for a model: in valid Unicode, and no longer than it takes."""

import json
from typing import Any


def valid(text: str) -> str:
    """The text in valid Unicode, as clients of models need it: code may have half a character."""
    return text.encode("utf-8", "replace").decode()


def valid_data(told: Any) -> Any:
    """The same, as data of JSON in valid Unicode: code makes names and texts that are neither."""
    return json.loads(valid(json.dumps(told, ensure_ascii=False)))


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
    if isinstance(most, bool) or not isinstance(most, int):
        raise TypeError(f"most must be a number of characters, not {type(most).__name__}")
    if most < 1:
        raise ValueError(f"most must be positive, not {most}")
    return most
