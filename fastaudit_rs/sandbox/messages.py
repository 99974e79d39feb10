"""The messages of a session in a sandbox: a head in one line of JSON, and bytes behind it.

The host trusts nothing that it gets: code that has got around its guard can write there too.
"""

import json
from typing import Any

from .._native import _json_extent

#: The bytes that a message of the sandbox may have: a value, and what a step shows.
MESSAGE = 96 << 20

#: The bytes of its head, the number of values in it, and how deep one may be in others.
HEAD, VALUES, DEPTH = 2 << 20, 20_000, 50


class Malformed(ValueError):
    """A message that none of ours would be."""


def encode(kind: str, body: bytes = b"", **head: object) -> bytes:
    """Return a message as bytes."""
    return json.dumps({"kind": kind, **head}).encode() + b"\n" + body


def decode(message: bytes | bytearray) -> tuple[dict[str, Any], memoryview]:
    """Return the head and the body of a message.

    Raises:
        Malformed: It has none, or one that is too large.
    """
    end = message.find(b"\n", 0, HEAD)
    if end < 0:
        raise Malformed("a message without a head")
    text = bytes(message[:end])
    values, depth = _json_extent(text)
    if values > VALUES or depth > DEPTH:
        raise Malformed("a message with too large a head")
    try:
        head = json.loads(text)
    except (ValueError, RecursionError):
        raise Malformed("a message whose head is no JSON") from None
    if type(head) is not dict or type(head.get("kind")) is not str:
        raise Malformed("a message without a kind")
    return head, memoryview(message)[end + 1 :]
