"""The first bytes of a connection: the protocol that is spoken, and the name that TLS asks for."""

import asyncio
import contextlib
import enum
import re
import ssl
from collections.abc import Iterator
from typing import TypeVar

from .stream import MALFORMED, PIECE, ByteStream, Failed

Said = TypeVar("Said")


class Protocol(enum.Enum):
    HTTP = "HTTP"
    #: A lenient server could take it for a request of HTTP, and a strict one does not.
    MALFORMED = "malformed HTTP"
    TLS = "TLS"
    OTHER = "other"


#: The types of records of TLS, and the first byte of their versions: RFC 8446, 5.1.
RECORDS, VERSION, HANDSHAKE = range(0x14, 0x18), 3, 0x16

#: Empty lines before a request mean nothing: RFC 9112, 2.2.
EMPTY = b"\r\n"

#: The bytes that servers skip before a request, and take for blanks in it: RFC 9112, 3, and those
#: that Python's `str.split` knows in Latin-1.
BLANKS = b"\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0"

#: The bytes that are looked at for the first line of a request.
LINE = 8192

#: A fatal alert: unrecognized_name (RFC 6066).
UNKNOWN_NAME = b"\x15\x03\x01\x00\x02\x02\x70"

#: The first line of a request: RFC 9112, 3.
REQUEST = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ [!-~]+ HTTP/[0-9]\.[0-9]\r?\Z")

#: The version of HTTP, as lenient servers take it.
HTTP = re.compile(rb"(?i)HTTP/")

#: The words that begin a request, whatever follows, or the line of a proxy before one.
METHODS = {
    *(b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH"),
    b"PROXY",
}

#: The second version of that line: https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt.
PROXIED = b"\r\n\r\n\0\r\nQUIT\n"

#: A first word, and the bytes that no text has.
WORD = re.compile(rb"[^%s]*" % re.escape(BLANKS))
CONTROL = re.compile(rb"[\0-\x08\x0e-\x1b\x7f]")

#: The beginnings of messages that may have no line: JSON, XML, and what is no ASCII.
NO_LINE = re.compile(rb"[{\[<\x80-\xff]")


async def protocol(guest: ByteStream) -> Protocol:
    """Return the protocol that the sandbox speaks, once it has said enough."""
    said = b""
    try:
        while (found := _protocol(said)) is None:
            more = await guest.read()
            if not more:
                found = _protocol(said, is_all=True) or Protocol.OTHER
                break
            said += more
        if found is Protocol.HTTP:
            said = said.lstrip(EMPTY)
        return found
    finally:
        guest.put_back(said)


def _protocol(said: bytes, *, is_all: bool = False) -> Protocol | None:
    """The protocol of a beginning; `None` if more of it is needed."""
    if said and said[0] in RECORDS and said[1:2] in (b"", bytes([VERSION])):
        return Protocol.TLS if said[1:] or is_all else None
    # A byte more than the empty lines, at which no request begins.
    if said.startswith(PROXIED[:5]):
        return Protocol.MALFORMED
    line, end, _ = said.lstrip(BLANKS).partition(b"\n")
    is_whole = bool(end) or is_all
    if HTTP.search(line):
        # The parser says so where a line is too long for a request.
        if is_whole and not REQUEST.match(said.lstrip(EMPTY).partition(b"\n")[0]):
            return Protocol.MALFORMED
        return Protocol.HTTP if is_whole or len(said) >= LINE else None
    matched = WORD.match(line)
    word = matched[0] if matched else b""
    if CONTROL.search(word) or NO_LINE.match(word):
        return Protocol.OTHER
    if not is_whole:
        return Protocol.HTTP if len(said) >= LINE else None
    rest = line[len(word) :]
    is_request = rest.strip(BLANKS) and (word in METHODS or b"/" in rest)
    return Protocol.MALFORMED if is_request else Protocol.OTHER


class FirstLine:
    """The first line of another protocol, in which no request of HTTP may come later."""

    def __init__(self) -> None:
        self._said: bytes | None = b""

    def look(self, data: bytes) -> None:
        """Look at the next bytes of the sandbox; raise `Failed` if they are a request."""
        if self._said is None:
            return
        self._said = (self._said + data).lstrip(BLANKS)
        line, end, _ = self._said.partition(b"\n")
        if HTTP.search(line):
            raise Failed(MALFORMED)
        if end or len(line) >= LINE:
            self._said = None


class _Hello:
    """The first message of TLS. `ssl` writes to standard error where a name in it is malformed."""

    def __init__(self) -> None:
        self._at, self._message = 0, bytearray()

    def has_a_fit_name(self, said: bytes) -> bool:
        """Return whether `ssl` can read the name, if the message has come as a whole."""
        while len(said) >= self._at + 5:
            end = self._at + 5 + _number(said[self._at + 3 : self._at + 5])
            if len(said) < end:
                break
            self._message += said[self._at + 5 : end]
            self._at = end
        message = self._message
        if len(message) < 4 + _number(message[1:4]):
            return True
        return all(map(_is_fit, _names(bytes(message))))


def _number(data: bytes | bytearray) -> int:
    return int.from_bytes(data, "big")


def _names(message: bytes) -> Iterator[bytes]:
    """The names of servers in a first message of TLS (RFC 8446, 4.1.2; RFC 6066, 3)."""
    at = 4 + 2 + 32
    for size in (1, 2, 1):
        # The session, the ciphers and the methods of compression.
        at += size + _number(message[at : at + size])
    at += 2
    while at + 4 <= len(message):
        kind, size = _number(message[at : at + 2]), _number(message[at + 2 : at + 4])
        if kind == 0:
            # The length of the list, the kind of its first entry, and the length of that.
            yield message[at + 9 : at + 4 + size]
        at += 4 + size


def _is_fit(name: bytes) -> bool:
    try:
        name.decode("ascii").encode("idna")
    except UnicodeError:
        return False
    return True


async def server_name(guest: ByteStream) -> str | None:
    """Return the name that a client of TLS asks for, in small letters; `None` if it names none."""
    said = b""
    hello = _Hello()
    names: list[str | None] = []

    def named(_: object, name: str | None, __: object) -> int:
        names.append(name)
        # Nobody goes on with this handshake.
        return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = named
    incoming = ssl.MemoryBIO()
    reading = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    try:
        while not names and len(said) < PIECE:
            more = await guest.read()
            if not more:
                break
            said += more
            # Some servers go on after a warning, and read a name that is not seen here.
            if said[0] != HANDSHAKE or not hello.has_a_fit_name(said):
                break
            incoming.write(more)
            with contextlib.suppress(ssl.SSLWantReadError):
                reading.do_handshake()
    except ssl.SSLError:
        pass
    finally:
        guest.put_back(said)
    if not names:
        raise Failed("the beginning of TLS is not understood")
    return None if names[0] is None else names[0].lower()


async def protocol_of(guest: ByteStream, silence: float) -> Protocol | None:
    """Return the protocol that a client speaks, or `None` if it says nothing for some time."""
    reading = asyncio.ensure_future(protocol(guest))
    await asyncio.wait({reading}, timeout=silence)
    return await _ended(reading)


async def first_of(guest: ByteStream, server: ByteStream, patience: float) -> Protocol | None:
    """Return the protocol of a client, or `None` if the server speaks first.

    It fails where neither says enough: the server knows nothing of a request that has begun.
    """
    client = asyncio.ensure_future(protocol(guest))
    other = asyncio.ensure_future(server.read())
    try:
        await asyncio.wait({client, other}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if not (client.done() or other.done()):
            raise Failed("neither side says anything")
    finally:
        speaks = await _ended(client)
        server.put_back(await _ended(other) or b"")
    return speaks


async def _ended(reading: "asyncio.Task[Said]") -> "Said | None":
    """Return the result of a task, if it has one by now; it goes on no more."""
    reading.cancel()
    await asyncio.wait({reading})
    return None if reading.cancelled() else reading.result()
