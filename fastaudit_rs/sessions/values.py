"""Values as bytes and back, by value: data, arrays and frames. Nothing of them is code.

A head in JSON, with its length before it, and the bytes of arrays behind it. The side that reads
trusts nothing of it: a value is as large as its bytes, and sizes, depths and types are looked at
before anything is made of them.
"""

import json
from typing import Any

from .._native import _json_extent
from .arrays import form_of, value_of
from .forms import DEPTH, LENGTH, VALUES, Packer, Unpacker


def pack(value: object, *, arrays: bool = True, place: str = "value") -> bytes:
    """Return a value as bytes; `NotData` names what cannot be passed by its place.

    A value is ``None``, numbers, text, bytes, or lists, tuples, sets and dictionaries of values,
    nested at most 100 deep. Subclasses become their base.
    """
    packer = Packer(form_of if arrays else None)
    head = {"value": packer.form(value, place, 0)}
    lengths = [len(blob) for blob in packer.blobs]
    text = json.dumps({**head, "lengths": lengths}).encode()
    return b"".join((LENGTH.pack(len(text)), text, *packer.blobs))


def unpack(data: bytes | memoryview, *, arrays: bool = True, own: bool = False) -> Any:
    """The value of bytes of `pack`, or of any other; keys may be any in the host's own."""
    view = memoryview(data)
    if len(view) < LENGTH.size:
        raise ValueError("a message without a head")
    end = LENGTH.size + LENGTH.unpack(view[: LENGTH.size])[0]
    text = bytes(view[LENGTH.size : end])
    values, depth = _json_extent(text)
    if values > 4 * VALUES or depth > 3 * DEPTH:
        raise ValueError(f"more than {VALUES} values, or nested more than {DEPTH} deep")
    try:
        head = json.loads(text)
        blobs = []
        for length in head["lengths"]:
            if type(length) is not int or not 0 <= length <= len(view) - end:
                raise ValueError("a message whose lengths are not those of its bytes")
            blobs.append(view[end : end + length])
            end += length
        return Unpacker(blobs, value_of if arrays else None, own).value(head["value"])
    except ValueError:
        raise
    except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError) as bad:
        raise ValueError(f"a malformed message: {type(bad).__name__}") from None
