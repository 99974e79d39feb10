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

    Args:
        pairs: The secrets.
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        """Begin."""
        # One value may begin with another one.
        self._pairs = sorted(pairs, key=lambda pair: -len(pair.value))
        self._kept = b""

    @property
    def is_empty(self) -> bool:
        """True if there are no secrets for these requests."""
        return not self._pairs

    def into(self, headers: Headers) -> Headers:
        """Return the headers of a request with the values."""
        if not self._pairs:
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
        for pair in self._pairs:
            text = text.replace(pair.value, pair.placeholder)
        return text

    def piece(self, data: bytes) -> bytes:
        """Return the next piece of a body without the values; the end of it may be kept back."""
        text = self.out_of(self._kept + data)
        begun = max((_begun(text, pair.value) for pair in self._pairs), default=0)
        cut = len(text) - begun
        text, self._kept = text[:cut], text[cut:]
        return text

    def rest(self) -> bytes:
        """Return the end of a body."""
        text, self._kept = self._kept, b""
        return text


def _begun(text: bytes, value: bytes) -> int:
    """The length of the longest beginning of a value that is the end of a text."""
    lengths = range(min(len(text), len(value) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(value[:length])), 0)
