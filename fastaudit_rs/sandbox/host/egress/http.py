"""Requests of HTTP/1.1 between a sandbox and one server, each of them judged and noted."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import h11

from .connects import Wanted
from .log import Entry
from .server import Denied
from .stream import PIECE, Stream
from .swap import Headers, Swap
from .tunnel import IDLE, tunnel

#: Headers that are about one connection: RFC 9110, 7.6.1.
HOP = {b"connection", b"keep-alive", b"proxy-authorization", b"proxy-connection", b"te", b"upgrade"}

#: The characters of a path that are kept.
PATH = 1024

MALFORMED = "the request is malformed"


class Exchange:
    """The requests of one connection.

    Args:
        guest: The side of the sandbox.
        wanted: The place that it leads to.
        connect: Connects to the server there.
        server: A connection to it, if there is one already.
        swap: Puts secrets into the requests.
    """

    def __init__(
        self,
        guest: Stream,
        wanted: Wanted,
        connect: Callable[[], Awaitable[Stream]],
        server: Stream | None = None,
        swap: Swap | None = None,
    ) -> None:
        """Begin with the first request."""
        self._guest = guest
        self._wanted = wanted
        self._connect = connect
        self._server = server
        self._swap = swap or Swap(())
        self._entry = wanted.entry
        self._heard = h11.Connection(h11.SERVER, max_incomplete_event_size=PIECE)
        self._said = h11.Connection(h11.CLIENT, max_incomplete_event_size=PIECE)

    async def run(self) -> None:
        """Carry requests until one side ends."""
        try:
            while await self._one():
                pass
        finally:
            if self._entry is not None:
                self._entry.end()
            if self._server is not None:
                self._server.close()

    async def _one(self) -> bool:
        """Carry one request. False if no other follows."""
        entry = self._entry
        try:
            request = await _next(self._heard, self._guest)
        except h11.RemoteProtocolError as error:
            entry = entry or self._noted()
            entry.error = MALFORMED
            entry.end()
            await self._answer(error.error_status_hint, MALFORMED)
            return False
        if not isinstance(request, h11.Request):
            return False
        if entry is None:
            entry = self._noted()
        self._entry = entry
        if request.http_version not in (b"1.0", b"1.1"):
            entry.error = MALFORMED
            await self._answer(505, MALFORMED)
            return False
        entry.method = request.method.decode("ascii", "replace")
        host, target = _asked(request)
        entry.path = target.partition("?")[0][:PATH]
        if request.method == b"CONNECT" or not self._is_named(host):
            # Another site may be at the same address.
            entry.host = host or entry.host
            entry.rule = "network.hosts"
            await self._answer(403, f"denied by {entry.rule}: it is for {host}")
            return False
        try:
            server = await self._open()
        except Denied as denied:
            entry.rule = str(denied)
            await self._answer(403, f"denied by {denied}")
            return False
        except OSError as error:
            entry.error = str(error)
            await self._answer(502, str(error))
            return False
        goes_on = await self._carry(server, request, target, entry)
        entry.end()
        self._entry = None
        return goes_on

    def _noted(self) -> Entry:
        return self._wanted.log.begin(self._wanted.host, self._wanted.port)

    def _is_named(self, host: str | None) -> bool:
        """True if a request is for the host that was connected to; an address may have any name."""
        if host is None or self._wanted.address is not None:
            return True
        try:
            parts = urlsplit(f"//{host}")
            port = parts.port
        except ValueError:
            return False
        name = (parts.hostname or "").removesuffix(".")
        return name == self._wanted.host and port in (None, self._wanted.port)

    async def _open(self) -> Stream:
        """Return a connection to the server that can take a request."""
        if self._server is not None and (
            self._said.our_state is not h11.IDLE or self._server.at_end()
        ):
            self._server.close()
            self._server = None
        if self._server is None:
            self._server = await self._connect()
            self._said = h11.Connection(h11.CLIENT, max_incomplete_event_size=PIECE)
        return self._server

    async def _carry(self, server: Stream, request: h11.Request, target: str, entry: Entry) -> bool:
        """Send a request and its body, and hand back the response. False if it was the last."""
        headers = self._request_headers(request)
        body = asyncio.ensure_future(self._send(server, request, target, headers, entry))
        try:
            switched = await self._respond(server, entry)
        except (h11.ProtocolError, OSError, asyncio.TimeoutError) as error:
            entry.error = f"no whole answer: {error!r}"
            if entry.status is None:
                await self._answer(502, entry.error)
            else:
                self._guest.abort()
            return False
        finally:
            # Where the server has answered before all was sent, no other request can follow.
            body.cancel()
            await asyncio.gather(body, return_exceptions=True)
        if switched:
            self._guest.put_back(self._heard.trailing_data[0])
            server.put_back(self._said.trailing_data[0])
            await tunnel(self._guest, server, entry)
            return False
        if (self._heard.our_state, self._heard.their_state) != (h11.DONE, h11.DONE):
            return False
        self._heard.start_next_cycle()
        if (self._said.our_state, self._said.their_state) == (h11.DONE, h11.DONE):
            self._said.start_next_cycle()
        return True

    def _request_headers(self, request: h11.Request) -> Headers:
        found = _end_to_end(request.headers)
        upgrade = [value for name, value in request.headers if name == b"upgrade"]
        # Nothing of another protocol would be looked through.
        if upgrade and self._swap.is_empty:
            found += [(b"Connection", b"Upgrade"), (b"Upgrade", upgrade[0])]
        if not any(name.lower() == b"host" for name, _ in found):
            found.insert(0, (b"Host", f"{self._wanted.host}:{self._wanted.port}".encode()))
        return self._swap.into(found)

    async def _send(
        self, server: Stream, request: h11.Request, target: str, headers: Headers, entry: Entry
    ) -> None:
        asked = h11.Request(method=request.method, target=target.encode(), headers=headers)
        await server.write(_bytes(self._said.send(asked)))
        while True:
            event = await _next(self._heard, self._guest)
            if isinstance(event, h11.Data):
                entry.sent += len(event.data)
                await server.write(_bytes(self._said.send(h11.Data(bytes(event.data)))))
            elif isinstance(event, h11.EndOfMessage):
                await server.write(_bytes(self._said.send(h11.EndOfMessage())))
                return
            else:
                raise h11.RemoteProtocolError("the request is not whole")

    async def _respond(self, server: Stream, entry: Entry) -> bool:
        """Hand back a response. True if both sides speak another protocol from then on."""
        while True:
            event = await _next(self._said, server)
            if isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    entry.status = 101
                    headers = [*event.headers]
                else:
                    headers = self._response_headers(event)
                said = h11.InformationalResponse(status_code=event.status_code, headers=headers)
                await self._guest.write(_bytes(self._heard.send(said)))
                if event.status_code == 101:
                    return True
            elif isinstance(event, h11.Response):
                entry.status = event.status_code
                answer = h11.Response(
                    status_code=event.status_code,
                    headers=self._response_headers(event),
                    reason=self._swap.out_of(bytes(event.reason)),
                )
                await self._guest.write(_bytes(self._heard.send(answer)))
            elif isinstance(event, h11.Data):
                entry.received += len(event.data)
                await self._hand_back(self._swap.piece(bytes(event.data)))
            elif isinstance(event, h11.EndOfMessage):
                await self._hand_back(self._swap.rest())
                await self._guest.write(_bytes(self._heard.send(h11.EndOfMessage())))
                return False
            else:
                raise h11.RemoteProtocolError("the server ended the connection")

    def _response_headers(self, event: h11.Response | h11.InformationalResponse) -> Headers:
        headers = _end_to_end(event.headers)
        return [(name, self._swap.out_of(value)) for name, value in headers]

    async def _hand_back(self, data: bytes) -> None:
        if data:
            await self._guest.write(_bytes(self._heard.send(h11.Data(data))))

    async def _answer(self, status: int, why: str) -> None:
        """Answer in the place of the server, and let no other request follow."""
        body = f"fastaudit_rs: {why}\n".encode()
        headers = [
            (b"Content-Type", b"text/plain; charset=utf-8"),
            (b"Content-Length", b"%d" % len(body)),
            (b"Connection", b"close"),
        ]
        with contextlib.suppress(h11.LocalProtocolError, OSError):
            said = _bytes(self._heard.send(h11.Response(status_code=status, headers=headers)))
            said += _bytes(self._heard.send(h11.Data(body)))
            await self._guest.write(said + _bytes(self._heard.send(h11.EndOfMessage())))


def _asked(request: h11.Request) -> tuple[str | None, str]:
    """Return the host that a request names, if it names one, and the target on it."""
    target = request.target.decode("ascii")
    host = next((value for name, value in request.headers if name == b"host"), None)
    named = None if host is None else host.decode("ascii", "replace").lower()
    if request.method == b"CONNECT" or target.startswith("/") or target == "*":
        return (target.lower() if request.method == b"CONNECT" else named), target
    scheme, colon, rest = target.partition("://")
    if not colon or scheme.lower() != "http":
        return target.lower(), target
    authority, slash, path = rest.partition("/")
    # RFC 9112, 3.2.2: the target is stronger than the header, and a server may not know.
    named = authority.lower() if named in (None, authority.lower()) else f"{named}, {authority}"
    return named, f"/{path}" if slash else "/"


def _end_to_end(headers: Any) -> Headers:
    """The headers that are not about one connection alone."""
    listed = {
        name.strip().lower()
        for key, value in headers
        if key == b"connection"
        for name in value.split(b",")
    }
    kept = zip(headers.raw_items(), headers, strict=True)
    return [raw for raw, (name, _) in kept if name not in HOP and name not in listed]


async def _next(connection: h11.Connection, stream: Stream) -> Any:
    """The next event of one side."""
    while True:
        event = connection.next_event()
        if event is not h11.NEED_DATA:
            return event
        connection.receive_data(await asyncio.wait_for(stream.read(), IDLE))


def _bytes(said: bytes | None) -> bytes:
    return said or b""
