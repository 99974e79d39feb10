"""Connections whose content the host carries without reading it."""

import asyncio
import time
from collections.abc import Callable

from .failures import Failed
from .log import Entry
from .stream import ByteStream

#: The time after which a connection is closed on which neither side says anything, in seconds.
IDLE = 300.0


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
