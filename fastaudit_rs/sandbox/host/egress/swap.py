"""Requests with secrets in the place of placeholders, and responses without them."""

import base64
import binascii
import re
from collections.abc import Sequence
from typing import NamedTuple

#: A header with a name and a password: RFC 7617.
BASIC = re.compile(rb"(?i:basic) +([A-Za-z0-9+/=]+)\Z")

Headers = list[tuple[bytes, bytes]]


class Pair(NamedTuple):
    """A secret in bytes. Both texts have one length, so that no length of a message changes."""

    placeholder: bytes
    value: bytes
    header: bytes | None


class Swap:
    """Puts secrets into the requests of one connection, and takes them out of the responses.

    A response may also say those that other requests had: `known`.
    """

    def __init__(self, pairs: Sequence[Pair], known: Sequence[Pair] | None = None) -> None:
        self._pairs = pairs
        # One value may begin with another one, which is put there before.
        self._known = sorted(pairs if known is None else known, key=lambda pair: len(pair.value))
        #: The end of a body, as it came and without the values.
        self._kept = self._clean = b""

    @property
    def is_empty(self) -> bool:
        return not self._pairs

    def into(self, headers: Headers) -> Headers:
        """Return the headers of a request with the values."""
        if not self._known:
            return headers
        # A response that is packed could hold a value that nobody sees.
        kept = [(name, value) for name, value in headers if name.lower() != b"accept-encoding"]
        kept.append((b"Accept-Encoding", b"identity"))
        return [(name, self._put(name.lower(), value)) for name, value in kept]

    def _put(self, name: bytes, text: bytes) -> bytes:
        pairs = [pair for pair in self._pairs if pair.header in (None, name)]
        basic = BASIC.match(text)
        if basic:
            try:
                plain = base64.b64decode(basic[1], validate=True)
            except binascii.Error:
                return text
            for pair in pairs:
                plain = plain.replace(pair.placeholder, pair.value)
            return text[: basic.start(1)] + base64.b64encode(plain)
        for pair in pairs:
            text = text.replace(pair.placeholder, pair.value)
        return text

    def out_of(self, text: bytes) -> bytes:
        """Return a text of a response without the values."""
        return bytes(self._cleaned(text, bytearray(text)))

    def _cleaned(self, text: bytes, clean: bytearray) -> bytearray:
        """Put placeholders over each value of a text, where values overlap too."""
        for pair in self._known:
            at = text.find(pair.value)
            while at >= 0:
                clean[at : at + len(pair.value)] = pair.placeholder
                at = text.find(pair.value, at + 1)
        return clean

    def piece(self, data: bytes) -> bytes:
        """Return the next piece of a body without the values; the end of it may be kept back."""
        text = self._kept + data
        clean = self._cleaned(text, bytearray(self._clean + data))
        cut = len(text) - max((_begun(text, pair.value) for pair in self._known), default=0)
        self._kept, self._clean = text[cut:], bytes(clean[cut:])
        return bytes(clean[:cut])

    def rest(self) -> bytes:
        clean, self._kept, self._clean = self._clean, b"", b""
        return clean


def _begun(text: bytes, value: bytes) -> int:
    """The length of the longest beginning of a value that is the end of a text."""
    lengths = range(min(len(text), len(value) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(value[:length])), 0)
