"""TLS that the host opens, for requests that it puts secrets into."""

import contextlib
import ssl

from .stream import PIECE, ByteStream


class OpenedStream(ByteStream):
    """A connection of TLS with a client, which has said its first bytes already."""

    def __init__(self, plain: ByteStream, context: ssl.SSLContext) -> None:
        self._plain = plain
        self._first = b""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def read(self) -> bytes:
        if self._first:
            data, self._first = self._first, b""
            return data
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

    def at_end(self) -> bool:
        return self._plain.at_end()

    def end(self) -> None:
        """Write no more: in TLS both sides end at once."""

    def abort(self) -> None:
        self._plain.abort()

    def close(self) -> None:
        """Close it, once all is written, and tell the other side: RFC 8446, 6.1."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._plain.put(self._outgoing.read())
        self._plain.close()
