"""Connections to servers, by the name that was asked for and the addresses that it leads to."""

import asyncio
import socket
import ssl

from .rules import Address, Rules, address_of
from .stream import PIECE, ByteStream, Failed, why
from .waiting import Wanted

#: The time to look a name up, and to connect to one address, in seconds.
LOOKUP, CONNECT = 15.0, 10.0

#: The addresses of a name that are tried.
TRIED = 4

#: The addresses of this machine: RFC 6761.
LOOPBACK = [address_of("127.0.0.1"), address_of("::1")]


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
        here = LOOPBACK if wanted.address.is_loopback else []
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
        rule = rules.of_resolved(wanted.host, address, wanted.port)
        if rule is None:
            allowed.append(address)
        denied = denied or rule
    if denied is not None and not allowed:
        raise Denied(denied)
    return allowed[:TRIED]
