"""connect(2) of a sandbox's processes, which the host does in their place.

The kernel asks the host about each (seccomp_unotify(2)), by way of `sandlock`. Landlock denies all
others, or before Linux 6.7 the host: nothing that the caller writes to its memory meanwhile has an
effect.
"""

import contextlib
import errno
import os
import resource
import socket
import struct
import sys
from typing import Any

from .... import _landlock
from ..network import DOMAIN
from .log import Log, Wanted
from .proxy import Proxy
from .rules import LOCAL, LOOPBACK, Address, address_of
from .unaddressed import disconnected, family_of, read_address, taken

#: The connections that the processes of one run may have at a time, if the policy does not say.
CONNECTIONS = 256

#: The connections to the name server that they may have besides.
LOOKUPS = 32

#: The results of connecting that lead to a connection.
UNDER_WAY = (0, errno.EINPROGRESS, errno.EINTR)


class Connects:
    """Answers the kernel's questions about connecting, for one process of a sandbox."""

    calls = ("connect",)

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        most = proxy.network.max_connections
        self._most = CONNECTIONS if most is None else min(most, CONNECTIONS)
        self.log = Log()

    def end(self) -> None:
        self._proxy.end(self.log)

    def answer(self, _name: str, ctx: Any) -> int | None:
        """Connect a socket to the proxy. Return 0, an error's number, or `None`: not for us."""
        told = read_address(ctx)
        if isinstance(told, int):
            return told
        try:
            wanted = _destination(told)
            if wanted is None:
                # Landlock lets nothing be reached, whatever the kernel reads, once it holds ports.
                holds = _landlock.version() >= _landlock.PORTS
                return None if holds else disconnected(ctx, family_of(told))
            with taken(ctx) as guest:
                return self._connect(guest, *wanted)
        except OSError as error:
            return error.errno or errno.EPERM

    def _connect(self, guest: socket.socket, family: int, address: Address, port: int) -> int:
        if guest.family != family:
            return errno.EAFNOSUPPORT
        if guest.type != socket.SOCK_STREAM or guest.proto not in (0, socket.IPPROTO_TCP):
            return errno.EACCES
        with contextlib.suppress(OSError):
            guest.getpeername()
            return errno.EISCONN
        name = self._proxy.names.name(address)
        if name == LOCAL:
            name, address = None, LOOPBACK[0]
        rule = self._rule(name, address, port)
        host = name or (str(address) if rule else self._proxy.rules.named(address, port))
        asks = None
        if rule is None and port != DOMAIN and self._proxy.approvable is not None:
            asks, is_open = self._proxy.approvable.asks(name, address, port)
            if asks is not None and (not is_open or self.log.questions is None):
                rule = asks
            elif asks is not None and address in LOOPBACK:
                host = LOCAL
        if rule is None and guest.fileno() >= _descriptors():
            # All numbers below it are in use: those that are left are for the host.
            rule = "network.max_connections"
        if rule is not None:
            self.log.deny(host, port, rule)
            return errno.EACCES
        entry = None if port == DOMAIN else self.log.begin(host, port)
        wanted = Wanted(host, None if name else address, port, self.log, entry, asks)
        error = self._carry(guest, wanted)
        if entry is not None and error not in UNDER_WAY:
            entry.error = os.strerror(error)
            entry.end()
        return error

    def _rule(self, name: str | None, address: Address, port: int) -> str | None:
        self._proxy.waiting.expire()
        is_lookup = port == DOMAIN
        if not self.log.has_room(LOOKUPS if is_lookup else self._most, is_lookup=is_lookup):
            return "network.max_connections"
        if is_lookup:
            return None
        return self._proxy.rules.of(name, address, port)

    def _carry(self, guest: socket.socket, wanted: Wanted) -> int:
        """Connect to the proxy, which knows the connection by the port that it comes from."""
        place = self._proxy.places.get(guest.family)
        if place is None:
            return errno.ENETUNREACH
        with contextlib.suppress(OSError):
            # It fails where the code has bound it itself, or has begun to connect.
            guest.bind((place[0], 0))
        key = (guest.family, guest.getsockname()[1])
        error = self._proxy.waiting.put(key, wanted)
        if error:
            return error
        error = guest.connect_ex(place)
        if error not in UNDER_WAY:
            self._proxy.waiting.drop(key)
        return error


def _descriptors() -> int:
    """The number of descriptors that the host may use for connections: half of all."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if most == resource.RLIM_INFINITY else most // 2


def _destination(told: bytes) -> tuple[int, Address, int] | None:
    """Return the family, the address and the port of a `sockaddr`; `None` for other families."""
    family = family_of(told)
    if family not in (socket.AF_INET, socket.AF_INET6):
        return None
    start, end = (4, 8) if family == socket.AF_INET else (8, 24)
    if len(told) < (16 if family == socket.AF_INET else end):
        raise OSError(errno.EINVAL, "the address is too short")
    (port,) = struct.unpack_from("!H", told, 2)
    return family, address_of(socket.inet_ntop(family, told[start:end])), port
