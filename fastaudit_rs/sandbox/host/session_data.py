"""The data of a session: arguments that its host gives, outcomes that its process tells."""

import contextlib
from collections.abc import Mapping
from typing import Any

from ...sessions.arguments import inputs_of
from ...sessions.values import unpack
from ..wire import MESSAGE
from .process import SandboxError
from .run import error_told

#: The bytes that the inputs of a step may have.
INPUTS = 64 << 20


def outcome(head: dict[str, Any], body: memoryview) -> dict[str, Any]:
    """The fields of a result that the process told."""
    status, shown, value_error = head.get("status"), head.get("shown"), head.get("value_error")
    found: dict[str, Any] = {"returncode": status if type(status) is int else 1}
    found["error"] = error_told(head.get("error"))
    if type(value_error) is str:
        found["value_error"] = value_error
    if type(shown) is not int or not 0 <= shown <= len(body):
        return found
    # The packages that make arrays and frames of them raise errors of many classes.
    with contextlib.suppress(Exception):
        found["display"] = displays(unpack(body[:shown], arrays=False))
    if len(body) > shown:
        try:
            found["value"] = unpack(body[shown:])
        except Exception as bad:
            found["value_error"] = f"it cannot be read: {bad}"
    return found


def displays(given: Any) -> list[dict[str, str | bytes]]:
    """The things that a step showed, as far as they are such."""
    shown = [] if type(given) is not list else given
    return [
        {mime: data for mime, data in thing.items() if type(data) in (str, bytes)}
        for thing in shown
        if type(thing) is dict and all(type(mime) is str for mime in thing)
    ]


def unpacked(body: memoryview) -> Any:
    """Return the value of an answer.

    Raises:
        SandboxError: It is malformed.
    """
    try:
        return unpack(body)
    except Exception as error:
        raise SandboxError(f"the session's process gave a malformed answer: {error}") from None


def packed_inputs(inputs: Mapping[str, object] | None) -> bytes:
    """Return the inputs of a step as bytes; none if there are none.

    Raises:
        TypeError: They are no mapping from names, or one of them is no data.
        ValueError: Code cannot use a name, or they are too large.
    """
    data = inputs_of(inputs)
    if len(data) > min(INPUTS, MESSAGE):
        raise ValueError(f"inputs must have at most {INPUTS >> 20} MB, not {len(data) >> 20} MB")
    return data
