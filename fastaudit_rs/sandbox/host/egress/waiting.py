"""The connections of a sandbox that are on the way to the proxy, and where they are to lead."""

import errno
import time
from typing import NamedTuple

from .log import Entry, Log
from .rules import Address

#: The port of name servers: RFC 1035.
DOMAIN = 53

#: The connections that may wait to be taken up; more than these could stop the host.
WAITING = 64

#: The time after which one that nobody took up is forgotten, in seconds.
FORGOTTEN = 10.0


class Wanted(NamedTuple):
    host: str
    #: The address that the code gave, if it gave no name's.
    address: Address | None
    port: int
    log: Log
    #: Its entry there; `None` for a connection to a name server.
    entry: Entry | None

    def end(self) -> None:
        if self.entry is not None:
            self.entry.end()
        self.log.count(-1, is_lookup=self.entry is None)


class WaitingConnection:
    """The connections that are on the way to the proxy, by the ports that they come from."""

    def __init__(self) -> None:
        self._wanted: dict[tuple[int, int], tuple[Wanted, float]] = {}

    def put(self, key: tuple[int, int], wanted: Wanted) -> int:
        """Expect a connection. Return 0, or the number of an error."""
        if key in self._wanted:
            return errno.EALREADY
        if len(self._wanted) >= WAITING:
            return errno.EAGAIN
        self._wanted[key] = wanted, time.monotonic()
        wanted.log.count(1, is_lookup=wanted.entry is None)
        return 0

    def take(self, key: tuple[int, int]) -> Wanted | None:
        return self._wanted.pop(key, (None, 0))[0]

    def expire(self) -> None:
        """Forget those that nobody took up."""
        now = time.monotonic()
        for key, (_, since) in [*self._wanted.items()]:
            if now - since > FORGOTTEN:
                self.drop(key)

    def drop(self, key: tuple[int, int]) -> None:
        wanted = self.take(key)
        if wanted is not None:
            wanted.end()
