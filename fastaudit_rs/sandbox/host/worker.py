"""A process of a sandbox that waits for work, as the host sees it: its limits, and its end."""

import contextlib
import os
import socket
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...results import Result
from ..limits import Limits, limit_of
from . import cgroup

if TYPE_CHECKING:
    from .egress.asking import HostQuestions
    from .egress.connects import Connects

#: The time for a message of a process to come whole, in seconds.
WHOLE = 5


@dataclass
class Ended:
    exit_code: int
    signal: int
    was_killed: bool

    def __str__(self) -> str:
        return f"by signal {self.signal}" if self.signal > 0 else f"with exit code {self.exit_code}"


class Worker(ABC):
    """A process that waits for work."""

    #: The connection to it.
    control: socket.socket
    #: Its number; known once it is ready.
    pid: int | None = None
    #: Its connections, if the host makes them in its place.
    _connects: "Connects | None" = None

    def __init__(self, limits: Limits, *, is_confined: bool) -> None:
        self.limits = limits
        self.is_confined = is_confined
        self._group: cgroup.Cgroup | None = None
        self._kills = 0
        self._computed = 0.0

    def _join(self, pid: int) -> frozenset[str]:
        """Put the process into a control group; return the controllers that limit that."""
        self._group = cgroup.joined(pid, cgroup.wanted(self.limits, self.is_confined))
        return frozenset() if self._group is None else self._group.held

    def limit_of(self, status: int) -> str | None:
        """The limit that ended its child with this status, of those that the host does not hold."""
        return limit_of(
            status,
            self.limits,
            was_short=self._was_short_of_memory(),
            # The kernel part has a count of its own.
            counts_memory=self.is_confined,
            computed=0 if self.limits.cpu_seconds is None else self._computed_since(),
        )

    def _was_short_of_memory(self) -> bool:
        """True if the kernel has killed one of its processes for memory since the last call."""
        if self._group is None:
            return False
        before, self._kills = self._kills, self._group.kills()
        return self._kills > before

    def _computed_since(self) -> float:
        """Return the seconds that its ended children have computed since the last call."""
        before = self._computed
        with contextlib.suppress(OSError), open(f"/proc/{self.pid}/stat", "rb") as status:
            # cutime and cstime of proc_pid_stat(5).
            ticks = sum(map(int, status.read().rpartition(b")")[2].split()[13:15]))
            self._computed = ticks / os.sysconf("SC_CLK_TCK")
        return self._computed - before

    def begin_requests(self, questions: "HostQuestions | None") -> None:
        """Forget the requests over the network that it has made up to now.

        The host is asked about others by these questions, if it is asked.
        """
        if self._connects is not None:
            self._connects.log.clear()
            self._connects.log.questions = questions

    def with_requests(self, result: Result, *, are_over: bool) -> Result:
        """The result with the requests since then; `are_over` if their processes have ended."""
        if self._connects is None:
            return result
        log = self._connects.log
        return replace(result, requests=log.taken(wait=are_over), requests_left_out=log.left_out)

    def begin_anew(self) -> None:
        """Count as ended: it is the original's."""
        if self._group is not None:
            self._group.forget()

    @property
    @abstractmethod
    def is_alive(self) -> bool: ...

    @abstractmethod
    def kill(self) -> None:
        """Kill it and everything that it started."""

    @abstractmethod
    def end(self, patience: float = 0, *, is_idle: bool = False) -> Ended:
        """Give it some seconds to end by itself, kill it, and wait for its end.

        One that `is_idle` has nothing that code has left: it is killed whatever it prepares.
        """


def wait_no_longer(control: socket.socket, seconds: int = WHOLE) -> None:
    """Have reading fail where the rest of a message does not come: many wait in one thread."""
    control.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))
