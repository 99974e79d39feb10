"""Requests of HTTP/1.1 between a sandbox and one server, each of them judged and noted.

`h11` reads and writes the messages. sandlock's own rules for HTTP (0.9) keep no requests, know no
secrets and judge no names of hosts.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import h11

from .log import LONGEST, Entry, Wanted
from .rules import HTTP, Rules
from .secrets import Headers, Swap
from .stream import IDLE, MALFORMED, PIECE, ByteStream, Denied, Failed, tunnel, why

#: Headers that are about one connection: RFC 9110, 7.6.1. Trailers go no further.
HOP = {
    *(b"connection", b"keep-alive", b"proxy-authorization", b"proxy-connection", b"te", b"trailer"),
    b"upgrade",
}

#: Headers that say where a message ends.
FRAMING = {b"content-length", b"transfer-encoding"}

#: A `Host`, in small letters: RFC 9110, 7.2.
HOST = re.compile(r"([a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?\Z")

#: The ports that a `Host` may leave out.
DEFAULT = (80, 443)

#: Headers by which some servers take a request for another one.
OTHERS = {
    *(b"x-http-method-override", b"x-http-method", b"x-method-override"),
    *(b"x-original-url", b"x-original-uri", b"x-rewrite-url"),
}

#: The rule that a request breaks whose secret would be sent in the clear.
SECRETS = "secrets"

#: The only protocol that a request may change to: its messages name no other host.
WEBSOCKET = b"websocket"

ENDED = "the server ended the connection"
CUT_OFF = "the request ended before its body did"

#: The characters of a path that are kept.
PATH = 1024


@dataclass(eq=False)
class HttpExchange:
    _guest: ByteStream
    _wanted: Wanted
    _connect: Callable[[], Awaitable[ByteStream]]
    _server: ByteStream | None = None
    _swap: Swap = field(default_factory=lambda: Swap(()))
    _rules: Rules | None = None

    def __post_init__(self) -> None:
        wanted, rules = self._wanted, self._rules
        #: True if each request is held to rules.
        self._is_held = rules is not None and rules.holds_requests(wanted.names, wanted.port)
        self._entry = self._wanted.entry
        self._heard = h11.Connection(h11.SERVER, max_incomplete_event_size=PIECE)
        self._said = h11.Connection(h11.CLIENT, max_incomplete_event_size=PIECE)

    async def run(self) -> None:
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
            if not isinstance(request, h11.Request):
                return False
            host, target = _asked(request)
            headers = _end_to_end(request)
        except h11.RemoteProtocolError as error:
            await self.refuse(error.error_status_hint)
            return False
        if entry is None:
            entry = self._noted()
        self._entry = entry
        entry.method = request.method.decode("ascii", "replace")[:LONGEST]
        entry.path = target.partition("?")[0][:PATH]
        if request.method == b"CONNECT" or not self._is_named(host):
            # Another site may be at the same address.
            entry.host = (host or entry.host)[:LONGEST]
            entry.rule = "network.hosts"
            await self._answer(403, f"denied by {entry.rule}: it is for {host}")
            return False
        target, denied = self._judged(request, target, headers)
        if denied is not None:
            entry.rule, reason = denied
            await self._answer(403, f"denied by {entry.rule}: {reason}")
            return False
        try:
            server = await self._open()
        except Denied as denied:
            entry.rule = str(denied)
            await self._answer(403, f"denied by {denied}")
            return False
        except Failed as error:
            entry.error = str(error)
            await self._answer(502, entry.error)
            return False
        headers = self._request_headers(request, headers, host)
        goes_on = await self._carry(
            server, h11.Request(method=request.method, target=target, headers=headers), entry
        )
        entry.end()
        self._entry = None
        return goes_on

    def _judged(
        self, request: h11.Request, target: str, headers: Headers
    ) -> tuple[str, tuple[str, str] | None]:
        """Return the target for the server; and the rule that denies the request, and why."""
        wanted = self._wanted
        if self._swap.is_in_the_clear(headers):
            where = f"use https, or name 'http://{wanted.host}' in its hosts"
            return target, (SECRETS, f"a secret goes to {wanted.host} over TLS alone: {where}")
        if self._rules is None or not self._is_held:
            return target, None
        method = request.method.decode("ascii", "replace")
        odd = next((name for name, _ in headers if name.lower().replace(b"_", b"-") in OTHERS), b"")
        if odd:
            return target, (HTTP, f"{odd.decode('ascii', 'replace')} names another request")
        path, mark, query = target.partition("?")
        judged = self._rules.request(wanted.names, wanted.port, method, path)
        if judged is None:
            return target, (HTTP, f"no rule has {method} {wanted.host}:{wanted.port}{path[:PATH]}")
        return f"{judged}{mark}{query}", None

    async def refuse(self, status: int = 400) -> None:
        entry = self._entry or self._noted()
        entry.error = MALFORMED
        entry.end()
        await self._answer(status, MALFORMED)

    def _noted(self) -> Entry:
        return self._wanted.log.begin(self._wanted.host, self._wanted.port)

    def _is_named(self, host: str | None) -> bool:
        """True if a request is for the host that was connected to; an address may have any name."""
        if host is None:
            return True
        parts, wanted = HOST.match(host), self._wanted
        if parts is None or (wanted.address is not None and not self._is_held):
            return parts is not None
        name, port = parts[1].removesuffix(".").strip("[]"), parts[2]
        return name in wanted.names and port in (None, str(wanted.port))

    async def _open(self) -> ByteStream:
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

    async def _carry(self, server: ByteStream, request: h11.Request, entry: Entry) -> bool:
        """Send a request and its body, and hand back the response. False if it was the last."""
        body = asyncio.ensure_future(self._send(server, request, entry))
        try:
            switched = await self._respond(server, entry)
        except (Failed, h11.ProtocolError, OSError, asyncio.TimeoutError) as error:
            of_body = body.exception() if body.done() else None
            reason = of_body if isinstance(of_body, Failed) else error
            entry.error = f"no whole answer: {self._why(reason)}"
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

    def _why(self, error: BaseException) -> str:
        """The reason that there is no whole answer. The parser's words have a server's bytes."""
        if not isinstance(error, h11.ProtocolError):
            return why(error)
        return ENDED if self._said.trailing_data[1] else "it is malformed"

    def _request_headers(self, request: h11.Request, headers: Headers, host: str | None) -> Headers:
        """The headers for the server: the host is the one that was judged, in our own words."""
        found = [(b"Host", self._host(host).encode())]
        found += [(name, value) for name, value in headers if name.lower() != b"host"]
        upgrade = {
            each.strip().lower()
            for name, value in request.headers
            if name == b"upgrade"
            for each in value.split(b",")
        }
        # Nothing of another protocol would be looked through.
        if WEBSOCKET in upgrade and self._swap.is_empty and not self._is_held:
            found += [(b"Connection", b"Upgrade"), (b"Upgrade", WEBSOCKET)]
        return self._swap.into(found)

    def _host(self, asked: str | None) -> str:
        """The `Host` of a request that asked for this one."""
        wanted = self._wanted
        if asked is not None and wanted.address is not None:
            return asked
        name = f"[{wanted.host}]" if ":" in wanted.host else wanted.host
        is_bare = asked is not None and ":" not in asked and wanted.port in DEFAULT
        return name if is_bare else f"{name}:{wanted.port}"

    async def _send(self, server: ByteStream, request: h11.Request, entry: Entry) -> None:
        await server.write(self._said.send(request) or b"")
        while True:
            try:
                event = await _next(self._heard, self._guest)
            except (h11.ProtocolError, OSError, asyncio.TimeoutError) as error:
                # The server would wait for the rest.
                server.abort()
                is_there = isinstance(error, h11.ProtocolError) and not self._heard.trailing_data[1]
                raise Failed(MALFORMED if is_there else CUT_OFF) from None
            if isinstance(event, h11.Data):
                entry.sent += len(event.data)
                await server.write(self._said.send(h11.Data(bytes(event.data))) or b"")
            elif isinstance(event, h11.EndOfMessage):
                await server.write(self._said.send(h11.EndOfMessage()) or b"")
                return
            else:
                raise h11.RemoteProtocolError("the request is not whole")

    async def _respond(self, server: ByteStream, entry: Entry) -> bool:
        """Hand back a response. True if both sides speak another protocol from then on."""
        while True:
            event = await _next(self._said, server)
            if isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    entry.status = 101
                    headers = [*event.headers]
                else:
                    headers = self._response_headers(event)
                headers = [each for each in headers if each[0].lower() not in FRAMING]
                said = h11.InformationalResponse(status_code=event.status_code, headers=headers)
                await self._hand_back(said)
                if event.status_code == 101:
                    return True
            elif isinstance(event, h11.Response):
                answer = h11.Response(
                    status_code=event.status_code,
                    headers=self._response_headers(event),
                    reason=self._swap.out_of(bytes(event.reason)),
                )
                entry.status = event.status_code
                await self._hand_back(answer)
            elif isinstance(event, h11.Data):
                entry.received += len(event.data)
                await self._hand_back(h11.Data(self._swap.piece(bytes(event.data))))
            elif isinstance(event, h11.EndOfMessage):
                await self._hand_back(h11.Data(self._swap.rest()))
                await self._hand_back(h11.EndOfMessage())
                return False
            else:
                raise Failed(ENDED)

    def _response_headers(self, event: h11.Response | h11.InformationalResponse) -> Headers:
        out_of = self._swap.out_of
        return [(out_of(name), out_of(value)) for name, value in _end_to_end(event)]

    async def _hand_back(self, event: h11.Event) -> None:
        await self._guest.write(self._heard.send(event) or b"")

    async def _answer(self, status: int, reason: str) -> None:
        """Answer in the place of the server, and let no other request follow."""
        body = self._swap.out_of(f"fastaudit_rs: {reason}\n".encode())
        headers = [
            (b"Content-Type", b"text/plain; charset=utf-8"),
            (b"Content-Length", b"%d" % len(body)),
            (b"Connection", b"close"),
        ]
        is_head = self._entry is not None and self._entry.method == "HEAD"
        with contextlib.suppress(h11.LocalProtocolError, OSError):
            response = h11.Response(status_code=status, headers=headers)
            # The answer to HEAD has the length of a body, and none: RFC 9110, 9.3.2.
            events = [response, *([] if is_head else [h11.Data(body)]), h11.EndOfMessage()]
            said = [self._heard.send(event) or b"" for event in events]
            await self._guest.write(b"".join(said))


def _asked(request: h11.Request) -> tuple[str | None, str]:
    """Return the host that a request names, if it names one, and the target on it."""
    if request.http_version not in (b"1.0", b"1.1"):
        raise h11.RemoteProtocolError("another version", error_status_hint=505)
    target = request.target.decode("ascii")
    host = next((value for name, value in request.headers if name == b"host"), None)
    named = None if host is None else host.decode("latin-1").lower()
    if request.method == b"CONNECT":
        return target.lower(), target
    if target.startswith("/") or target == "*":
        return named, target
    scheme, colon, rest = target.partition("://")
    if not colon or scheme.lower() != "http":
        raise h11.RemoteProtocolError("another form of a target")
    authority, slash, path = rest.partition("/")
    # RFC 9112, 3.2.2: the target is stronger than the header, and a server may not know.
    named = authority.lower() if named in (None, authority.lower()) else f"{named}, {authority}"
    return named, f"/{path}" if slash else "/"


def _end_to_end(message: h11.Request | h11.Response | h11.InformationalResponse) -> Headers:
    """The headers that are not about one connection alone.

    A message must say in one way where it ends: each server would choose another (RFC 9112, 6.1).
    """
    headers = message.headers
    names = {name for name, _ in headers}
    listed = {
        name.strip().lower()
        for key, value in headers
        if key == b"connection"
        for name in value.split(b",")
    }
    is_old = message.http_version == b"1.0" and b"transfer-encoding" in names
    if is_old or names >= FRAMING or listed & FRAMING:
        raise h11.RemoteProtocolError("two ends")
    kept = zip(headers.raw_items(), headers, strict=True)
    return [raw for raw, (name, _) in kept if name not in HOP and name not in listed]


async def _next(connection: h11.Connection, stream: ByteStream) -> Any:
    while True:
        event = connection.next_event()
        if event is not h11.NEED_DATA:
            return event
        connection.receive_data(await asyncio.wait_for(stream.read(), IDLE))
