"""Streams of bytes between a sandbox and a server, and their first bytes."""

import asyncio
import contextlib

#: The bytes that are read at once.
PIECE = 1 << 16


class ByteStream:
    """A connection of asyncio."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._first = b""

    def put_back(self, data: bytes) -> None:
        """Have these bytes read once more."""
        self._first = data + self._first

    async def read(self) -> bytes:
        """Return the next bytes, or none at the end."""
        if self._first:
            data, self._first = self._first, b""
            return data
        try:
            return await self._reader.read(PIECE)
        except OSError:
            return b""

    def put(self, data: bytes) -> None:
        """Write what nobody waits for."""
        self._writer.write(data)

    async def write(self, data: bytes) -> None:
        """Write, and wait while the other side takes nothing."""
        self._writer.write(data)
        await self._writer.drain()

    def at_end(self) -> bool:
        """True if the other side has ended the connection."""
        return self._reader.at_eof()

    def end(self) -> None:
        """Write no more."""
        with contextlib.suppress(OSError, RuntimeError):
            if self._writer.can_write_eof():
                self._writer.write_eof()

    def abort(self) -> None:
        """Close it at once; the other side sees a failure."""
        self._writer.transport.abort()

    def close(self) -> None:
        """Close it, once all is written."""
        self._writer.close()
