"""The proxy of a sandbox: a thread of the host that connects in the place of the sandbox."""

import asyncio
import contextlib
import functools
import socket
import ssl
import threading
from typing import Any

from .... import Network
from .. import copies
from ..network import DOMAIN
from . import beginnings
from .asking import Approvable
from .beginnings import FirstLine, Protocol
from .http import HttpExchange
from .log import Log, WaitingConnections, Wanted
from .rules import (
    BLOCK,
    FIRST,
    HTTP,
    LOOPBACK,
    MALFORMED,
    NO_ERROR,
    NO_SUCH_NAME,
    REFUSED,
    Address,
    Names,
    Question,
    Rules,
)
from .secrets import Secrets, Swap
from .stream import IDLE, PIECE, ByteStream, Denied, OpenedStream, connected, tunnel, why

#: The time that a client has to speak first, in seconds: in some protocols the server does.
SILENCE = 0.5

#: The questions that a connection to the name server may ask.
QUESTIONS = 100

#: The time for the thread to end, in seconds.
PATIENCE = 5.0


class Proxy:
    def __init__(
        self,
        network: Network,
        secrets: Secrets | None = None,
        approvable: Approvable | None = None,
    ) -> None:
        self.network = network
        #: The part of the network that the host is asked about.
        self.approvable = approvable
        self._secrets = secrets
        self.rules = Rules(network)
        self.names = Names(self._range())
        self.waiting = WaitingConnections()
        self.places: dict[int, tuple[str, int]] = {}
        listeners: list[socket.socket] = []
        for family, address in zip((socket.AF_INET, socket.AF_INET6), LOOPBACK, strict=True):
            # Without IPv6 there is none.
            with contextlib.suppress(OSError):
                listener = socket.create_server((str(address), 0), family=family, backlog=1024)
                listeners.append(listener)
                self.places[family] = listener.getsockname()[:2]
        self._tasks: dict[Log, set[asyncio.Task[Any]]] = {}
        # Another kind of loop may be the host's usual one.
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(
            target=self._serve, args=(listeners,), name="fastaudit_rs proxy", daemon=True
        )
        self._thread.start()
        self._listeners = listeners
        copies.note(self)

    def begin_anew(self) -> None:
        """Listen no more: `Setup` makes another. The loop shares its state with the original."""
        for listener in self._listeners:
            listener.close()

    def _range(self) -> Address:
        """Return the first of the addresses for names: the guard in the sandbox may block some."""
        usable = (each for each in FIRST if self.rules.of_address(each, 443) != BLOCK)
        return next(usable, FIRST[0])

    def end(self, log: Log) -> None:
        def cancel() -> None:
            for task in self._tasks.pop(log, ()):
                task.cancel()

        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(cancel)

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)

    def _serve(self, listeners: list[socket.socket]) -> None:
        loop = self._loop
        servers = []

        async def start() -> None:
            for listener in listeners:
                opening = asyncio.start_server(self._accepted, sock=listener, limit=PIECE)
                servers.append(await opening)

        async def end() -> None:
            for server in servers:
                server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        loop.run_until_complete(start())
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(end())
            loop.close()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        guest = ByteStream(reader, writer)
        peer = writer.get_extra_info("peername")
        family = socket.AF_INET if peer and len(peer) == 2 else socket.AF_INET6
        wanted = self.waiting.take((family, peer[1])) if peer else None
        if wanted is None:
            # Another process of this machine.
            guest.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        tasks = self._tasks.setdefault(wanted.log, set())
        tasks.add(task)
        try:
            await self._carried(guest, wanted)
        except (Exception, asyncio.CancelledError) as error:
            # Whatever fails is a failure of this connection alone.
            if wanted.entry is not None and wanted.entry.error is None:
                wanted.entry.error = why(error)
            guest.abort()
        finally:
            wanted.end()
            guest.close()
            tasks.discard(task)

    async def _carried(self, guest: ByteStream, wanted: Wanted) -> None:
        if wanted.port == DOMAIN:
            await self._answer(guest, wanted.log)
            return
        entry = wanted.entry
        assert entry is not None

        connect = functools.partial(self._connected, wanted)
        server = speaks = None
        try:
            is_held = self.rules.holds_requests(wanted.names, wanted.port)
            speaks = await beginnings.protocol_of(guest, IDLE if is_held else SILENCE)
            if speaks is None and not is_held:
                server = await connect()
                speaks = await beginnings.first_of(guest, server, IDLE)
            if speaks is Protocol.MALFORMED:
                await HttpExchange(guest, wanted, connect, server).refuse()
                return
            if speaks is Protocol.HTTP:
                swap = self._swap(wanted, tls=False)
                await HttpExchange(guest, wanted, connect, server, swap, self.rules).run()
                return
            if speaks is Protocol.TLS and wanted.address is None:
                name = await beginnings.server_name(guest)
                if name not in (None, wanted.host):
                    # Another site may be at the same address.
                    entry.host = str(name)
                    raise Denied("network.hosts")
            if speaks is Protocol.TLS:
                swap = self._swap(wanted, tls=True)
                if is_held or not swap.is_empty:
                    await self._open(guest, wanted, swap)
                    return
            if is_held:
                entry.error = "the host reads no requests in it: it is neither HTTP nor TLS"
                raise Denied(HTTP)
            server = server or await connect()
            look = FirstLine().look if speaks is Protocol.OTHER else None
            await tunnel(guest, server, entry, look)
        except Denied as denied:
            entry.rule = str(denied)
            if speaks is Protocol.TLS:
                await guest.write(beginnings.UNKNOWN_NAME)
            else:
                guest.abort()
        finally:
            if server is not None:
                server.close()

    async def _connected(self, wanted: Wanted, tls: ssl.SSLContext | None = None) -> ByteStream:
        """Connect to a server, once the host has said that it may be reached."""
        rules = self.rules
        if wanted.asks is not None:
            assert self.approvable is not None
            questions = wanted.log.questions
            if questions is None:
                raise Denied(wanted.asks)
            asked = asyncio.wrap_future(questions.put(wanted.host, wanted.port, wanted.asks))
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(asked, IDLE)
            if not (asked.done() and not asked.cancelled() and asked.result()):
                raise Denied(wanted.asks)
            rules = self.approvable.most
        return await connected(wanted, rules, tls)

    def _swap(self, wanted: Wanted, *, tls: bool) -> Swap:
        secrets = self._secrets
        if secrets is None:
            return Swap(())
        pairs = secrets.of(wanted.names, wanted.port, tls=tls)
        over_tls = [] if tls else secrets.of(wanted.names, wanted.port, tls=True)
        return Swap(pairs, secrets.pairs, [pair for pair in over_tls if pair not in pairs])

    async def _open(self, guest: ByteStream, wanted: Wanted, swap: Swap) -> None:
        """Carry the requests in a connection of TLS, which ends here and begins anew."""
        secrets = self._secrets
        assert secrets is not None

        connect = functools.partial(self._connected, wanted, secrets.client)
        opened = OpenedStream(guest, secrets.context(tuple(wanted.names)))
        try:
            await HttpExchange(opened, wanted, connect, None, swap, self.rules).run()
        finally:
            opened.close()

    async def _answer(self, guest: ByteStream, log: Log) -> None:
        """Answer questions about names: DNS over TCP, RFC 7766."""
        said = b""
        for _ in range(QUESTIONS):
            while len(said) < (end := 2 + int.from_bytes(said[:2], "big")):
                more = await asyncio.wait_for(guest.read(), IDLE)
                if not more:
                    return
                said += more
            message, said = said[2:end], said[end:]
            answer = self._answered(message, log)
            if answer is None:
                return
            await guest.write(len(answer).to_bytes(2, "big") + answer)

    def _answered(self, message: bytes, log: Log) -> bytes | None:
        try:
            question = Question(message)
        except ValueError:
            return None
        if question.name is None:
            return question.answer(NO_SUCH_NAME if question.is_about_addresses else MALFORMED)
        rule = self.rules.of_lookup(question.name)
        if rule is not None:
            # A client asks for both kinds of addresses.
            if question.wants_ipv4:
                log.deny(question.name, None, rule)
            return question.answer(NO_SUCH_NAME)
        if not question.wants_ipv4:
            return question.answer(NO_ERROR)
        address = self.names.address(question.name)
        return question.answer(REFUSED if address is None else NO_ERROR, address)
