"""The requests of a sandbox's process, as they are noted while they go on."""

import errno
import re
import threading
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from ....timeline import Request
from .asking import HostQuestions
from .rules import HERE, LOOPBACK, Address

#: The requests that are kept of a run: the first ones that are allowed, and that are denied. Many
#: of one kind hide none of the other.
KEPT = 1000

#: The characters of the name of a host, or of a method, and those that are not kept of it.
LONGEST, NOT_SHOWN = 253, re.compile(r"[^!-~]")

#: The time for connections to be seen as closed, after the end of the processes that had them, in
#: seconds.
PATIENCE = 0.3

#: The time for a connection to be seen as closed that its client has closed, in seconds.
ENDING = 0.05


@dataclass(eq=False)
class Entry:
    host: str
    port: int | None
    method: str | None = None
    path: str | None = None
    status: int | None = None
    sent: int = 0
    received: int = 0
    rule: str | None = None
    error: str | None = None
    began: float = field(default_factory=time.monotonic)
    time: float = field(default_factory=time.time)
    ended: float | None = None

    def end(self) -> None:
        self.ended = time.monotonic()

    def request(self) -> Request:
        told = vars(self).copy()
        ended, began = told.pop("ended") or time.monotonic(), told.pop("began")
        # The code chooses it, and hosts show it.
        told["host"] = NOT_SHOWN.sub("?", self.host[:LONGEST])
        told["verdict"] = "allowed" if self.rule is None else "denied"
        return Request(**told, duration=ended - began)


class Log:
    """The requests of one process and of those that it starts."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entries: list[Entry] = []
        self._left_out = 0
        #: The requests that `taken` left out the last time: there were too many.
        self.left_out = 0
        #: The questions of the run or the session, if it asks.
        self.questions: HostQuestions | None = None
        #: The number of connections that are carried now, those to the name server (true) apart.
        self.carried = {False: 0, True: 0}

    def begin(self, host: str, port: int | None) -> Entry:
        """Note a request that begins. It is kept if there are not too many."""
        entry = Entry(host, port)
        self._keep(entry)
        return entry

    def _keep(self, entry: Entry) -> None:
        is_denied = entry.rule is not None
        with self._changed:
            entries = self._entries
            if len(entries) >= KEPT:
                alike = [
                    at for at, one in enumerate(entries) if (one.rule is not None) == is_denied
                ]
                if len(alike) >= KEPT:
                    self._left_out += 1
                    return
                if len(entries) >= 2 * KEPT:
                    # Some were denied after they began, and there are too many of them now.
                    self._left_out += 1
                    del entries[max({*range(len(entries))} - {*alike})]
            entries.append(entry)

    def deny(self, host: str, port: int | None, rule: str) -> None:
        """Note a request that is denied. Clients look a name up more than once."""
        with self._changed:
            last = self._entries[-1] if self._entries else None
        if port is None and last is not None and (last.host, last.port) == (host, None):
            return
        entry = Entry(host, port, rule=rule)
        entry.end()
        self._keep(entry)

    def count(self, more: int, *, is_lookup: bool) -> None:
        """Count a connection that begins (1) or ends (-1)."""
        with self._changed:
            self.carried[is_lookup] += more
            self._changed.notify_all()

    def has_room(self, most: int, *, is_lookup: bool) -> bool:
        """Return whether there are fewer connections; those that have just ended may be counted."""
        with self._changed:
            return self._changed.wait_for(lambda: self.carried[is_lookup] < most, ENDING)

    def clear(self) -> None:
        with self._changed:
            self._entries, self._left_out = [], 0

    def taken(self, *, wait: bool) -> list[Request]:
        """Return the requests since the last time; `wait` if their processes have ended."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: not self.carried[False], PATIENCE)
            entries, self._entries = self._entries, []
            self.left_out, self._left_out = self._left_out, 0
        return [entry.request() for entry in entries]


# The connections of a sandbox that are on the way to the proxy, and where they are to lead.

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
    #: The rule that denies it, unless an answer of the host opens it.
    asks: str | None = None

    @property
    def names(self) -> list[str]:
        """The host, as rules may name it: this machine has a name and two addresses."""
        found = [self.host] if self.address is None else [self.host, str(self.address)]
        return [*dict.fromkeys(found + HERE)] if self.address in LOOPBACK else found

    def end(self) -> None:
        if self.entry is not None:
            self.entry.end()
        self.log.count(-1, is_lookup=self.entry is None)


class WaitingConnections:
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
