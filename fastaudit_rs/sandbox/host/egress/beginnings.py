"""The first bytes of a connection: the protocol that is spoken, and the name that TLS asks for."""

import asyncio
import contextlib
import enum
import re
import ssl
from typing import TypeVar

from .stream import PIECE, Stream

Said = TypeVar("Said")


class Protocol(enum.Enum):
    """A protocol that is spoken in a connection."""

    HTTP = "HTTP"
    TLS = "TLS"
    OTHER = "other"


#: The beginning of a record of TLS: RFC 8446, 5.1.
RECORD = b"\x16\x03"

#: Empty lines before a request mean nothing: RFC 9112, 2.2.
EMPTY = b"\r\n"

#: The bytes that are looked at for the first line of a request.
LINE = 8192

#: A fatal alert: unrecognized_name (RFC 6066).
UNKNOWN_NAME = b"\x15\x03\x01\x00\x02\x02\x70"

#: A line that may be the first of a request: RFC 9112, 3.
WORDS = re.compile(rb"[A-Za-z!#$%&'*+.^_`|~0-9-]+[ \t]")
METHOD = re.compile(rb"[A-Za-z!#$%&'*+.^_`|~0-9-]*\Z")


async def protocol(guest: Stream) -> Protocol:
    """Return the protocol that the sandbox speaks, once it has said enough."""
    said = b""
    try:
        while (found := _protocol(said)) is None:
            more = await guest.read()
            if not more:
                return Protocol.OTHER
            said += more
        if found is Protocol.HTTP:
            said = said.lstrip(EMPTY)
        return found
    finally:
        guest.put_back(said)


def _protocol(said: bytes) -> Protocol | None:
    if said[:2] == RECORD[: len(said)]:
        return Protocol.TLS if len(said) >= len(RECORD) else None
    # The parser says so where a line is too long for a request.
    undecided = None if len(said) < LINE else Protocol.HTTP
    said = said.lstrip(EMPTY)
    if METHOD.match(said):
        return undecided
    if not WORDS.match(said):
        return Protocol.OTHER
    line, end, _ = said.partition(b"\n")
    if end:
        return Protocol.HTTP if b"HTTP/" in line.upper() else Protocol.OTHER
    return undecided


async def server_name(guest: Stream) -> str | None:
    """Return the name that a client of TLS asks for, in small letters; `None` if it names none.

    Raises:
        OSError: It is no beginning of TLS that is understood.
    """
    said = b""
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
            incoming.write(more)
            with contextlib.suppress(ssl.SSLWantReadError):
                reading.do_handshake()
    except ssl.SSLError:
        pass
    finally:
        guest.put_back(said)
    if not names:
        raise ConnectionError("the beginning of TLS is not understood")
    return None if names[0] is None else names[0].lower()


async def protocol_of(guest: Stream, silence: float) -> Protocol | None:
    """Return the protocol that a client speaks, or `None` if it says nothing for some time."""
    reading = asyncio.ensure_future(protocol(guest))
    await asyncio.wait({reading}, timeout=silence)
    return await _ended(reading)


async def first_of(guest: Stream, server: Stream, patience: float) -> Protocol:
    """Return the protocol of a client, unless the server speaks first, or nobody does."""
    client = asyncio.ensure_future(protocol(guest))
    other = asyncio.ensure_future(server.read())
    try:
        await asyncio.wait({client, other}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    finally:
        speaks = await _ended(client)
        server.put_back(await _ended(other) or b"")
    return speaks or Protocol.OTHER


async def _ended(reading: "asyncio.Task[Said]") -> "Said | None":
    """Return the result of a task, if it has one by now; it goes on no more."""
    reading.cancel()
    await asyncio.wait({reading})
    return None if reading.cancelled() else reading.result()
