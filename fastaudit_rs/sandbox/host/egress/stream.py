"""Streams of bytes between a sandbox and servers, and the words for what fails there.

These hold nothing that a server said, which may be a secret.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import time
from collections.abc import Callable

from .log import Entry, Wanted
from .rules import LOOPBACK, Address, Rules, address_of

PIECE = 1 << 16

#: The time after which a connection is closed on which neither side says anything, in seconds.
IDLE = 300.0

#: A request of the code that is none, or none that all servers understand alike.
MALFORMED = "the request is malformed"

#: The time to look a name up, and to connect to one address, in seconds.
LOOKUP, CONNECT = 15.0, 10.0

#: The addresses of a name that are tried.
TRIED = 4


class Failed(Exception):
    """A failure, in words of this package."""


def why(error: BaseException) -> str:
    """Return the reason of a failure, in words that no server chooses."""
    if isinstance(error, Failed):
        return str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS fails: {error.reason}"
    # Before 3.11 these are two classes.
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return "it took too long"
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return type(error).__name__


class ByteStream:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._first = b""

    def put_back(self, data: bytes) -> None:
        """Have these bytes read once more."""
        self._first = data + self._first

    async def read(self) -> bytes:
        """Return the next bytes, or none at the end."""
        data, self._first = self._first, b""
        return data or await self._more()

    async def _more(self) -> bytes:
        try:
            return await self._reader.read(PIECE)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        """Write, and wait while the other side takes nothing."""
        self._writer.write(data)
        await self._writer.drain()

    def at_end(self) -> bool:
        """True if the other side has ended the connection."""
        return self._reader.at_eof()

    def end(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            if self._writer.can_write_eof():
                self._writer.write_eof()

    def abort(self) -> None:
        """Close it at once; the other side sees a failure."""
        self._writer.transport.abort()

    def close(self) -> None:
        """Close it, once all is written."""
        self._writer.close()


class OpenedStream(ByteStream):
    """TLS with a client that has begun to speak: the host opens it to put secrets into requests."""

    def __init__(self, plain: ByteStream, context: ssl.SSLContext) -> None:
        super().__init__(plain._reader, plain._writer)
        self._plain = plain
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def _more(self) -> bytes:
        while True:
            try:
                return self._tls.read(PIECE)
            except ssl.SSLWantReadError:
                await self._flush()
            except ssl.SSLError:
                await self._flush()
                return b""
            data = await self._plain.read()
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    async def write(self, data: bytes) -> None:
        self._tls.write(data)
        await self._flush()

    async def _flush(self) -> None:
        data = self._outgoing.read()
        if data:
            await self._plain.write(data)

    def end(self) -> None:
        """Write no more: in TLS both sides end at once."""

    def close(self) -> None:
        """Close it, once all is written, and tell the other side: RFC 8446, 6.1."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._writer.write(self._outgoing.read())
        self._plain.close()


async def tunnel(
    guest: ByteStream, server: ByteStream, entry: Entry, look: Callable[[bytes], None] | None = None
) -> None:
    """Carry all that either side says, until both have ended; `look` sees what the sandbox says."""
    last = time.monotonic()

    async def carry(source: ByteStream, target: ByteStream, field: str) -> None:
        nonlocal last
        while data := await source.read():
            last = time.monotonic()
            if look is not None and source is guest:
                look(data)
            setattr(entry, field, getattr(entry, field) + len(data))
            await target.write(data)
        target.end()

    ways = [
        asyncio.ensure_future(carry(guest, server, "sent")),
        asyncio.ensure_future(carry(server, guest, "received")),
    ]
    try:
        running = {*ways}
        while running:
            done, running = await asyncio.wait(
                running, timeout=IDLE, return_when=asyncio.FIRST_EXCEPTION
            )
            failed = [error for error in (way.exception() for way in done) if error]
            for error in failed:
                if isinstance(error, Failed):
                    raise error
            if failed or time.monotonic() - last >= IDLE:
                break
    finally:
        for way in ways:
            way.cancel()
        # Each failure is looked at: asyncio reports those that nobody sees.
        await asyncio.gather(*ways, return_exceptions=True)
        server.close()


class Denied(Exception):
    """A connection that a rule denies: its field of the policy."""


async def connected(wanted: Wanted, rules: Rules, tls: ssl.SSLContext | None = None) -> ByteStream:
    """Connect to a server; raise `Denied` if a rule denies each address of the name."""
    failed: Exception = Failed("it has no address")
    for address in await _addresses(wanted, rules):
        opening = asyncio.open_connection(
            str(address),
            wanted.port,
            limit=PIECE,
            ssl=tls,
            server_hostname=None if tls is None else wanted.host,
        )
        try:
            return ByteStream(*await asyncio.wait_for(opening, CONNECT))
        except (OSError, asyncio.TimeoutError) as error:
            failed = error
    raise Failed(f"{wanted.host} cannot be reached: {why(failed)}") from failed


async def _addresses(wanted: Wanted, rules: Rules) -> list[Address]:
    if wanted.address is not None:
        # A server of this machine may listen at one of its addresses alone; a client that the host
        # has answered does not try the other one.
        here = LOOPBACK if wanted.address in LOOPBACK else []
        tried = dict.fromkeys([wanted.address, *here])
        return [each for each in tried if rules.of_address(each, wanted.port) is None]
    loop = asyncio.get_running_loop()
    try:
        looking = loop.getaddrinfo(wanted.host, wanted.port, type=socket.SOCK_STREAM)
        found = [address_of(str(each[4][0])) for each in await asyncio.wait_for(looking, LOOKUP)]
    except (OSError, ValueError, asyncio.TimeoutError) as error:
        raise Failed(f"{wanted.host} cannot be looked up: {why(error)}") from error
    denied = None
    allowed = []
    for address in dict.fromkeys(found):
        # An answer was about the name: it opens nothing of this network.
        by_name = wanted.asks is not None
        rule = rules.of_resolved(wanted.host, address, wanted.port, by_name=by_name)
        if rule is None:
            allowed.append(address)
        denied = denied or rule
    if denied is not None and not allowed:
        raise Denied(denied)
    return allowed[:TRIED]
