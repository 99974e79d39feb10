"""Workers that are copies (fork(2)) of another one, which waits for no work itself.

A copy has what that one prepared, and shares its memory. The kernel confines both alike; limits
hold for each copy, which is in a control group of its own.
"""

import socket
import threading

from ... import _landlock
from ...sessions.errors import SandboxError
from ..limits import Limits
from ..wire import receive, send
from . import cgroup, copies
from .counts import Counts
from .process import StartedWorker
from .worker import Ended, Worker, wait_no_longer

#: The copies of one worker at a time: it lists them to find what others have left.
MOST = 128


def can_copy(limits: Limits) -> bool:
    """True if copies can be held apart: their signals by Landlock, and limits by control groups."""
    wanted = cgroup.wanted(limits, is_confined=True)
    has_scopes = _landlock.version() >= _landlock.WHOLE
    return has_scopes and bool(wanted) and all(map(cgroup.are_there, wanted))


class Original:
    """A worker of which others are copied."""

    def __init__(self, worker: StartedWorker, counts: Counts) -> None:
        self._worker = worker
        self.counts = counts
        #: The number of its copies.
        self.copies = 0
        self.begin_anew()
        copies.note(self)

    def begin_anew(self) -> None:
        self._lock = threading.Lock()

    @property
    def is_alive(self) -> bool:
        return self._worker.is_alive

    def take(self) -> None:
        """Count a copy, which is made then."""
        with self._lock:
            self.copies += 1

    def copy(self, connection: socket.socket) -> None:
        """Have a copy made, which has this connection."""
        with self._lock:
            send(self._worker.control, b"copy", [connection.fileno()])

    def end(self, copy: int | None) -> None:
        """End a copy, and what is left of it."""
        with self._lock:
            self.copies -= 1
            try:
                if copy is not None:
                    send(self._worker.control, b"end %d" % copy)
                    receive(self._worker.control)
            except (EOFError, OSError):
                # Nothing is left of any of them.
                self.close()

    def close(self) -> None:
        self._worker.end()


class CopiedWorker(Worker):
    """A copy of one that was taken; so many processes of ours (`own`) are none of the code's."""

    def __init__(self, original: Original, limits: Limits, own: int) -> None:
        super().__init__(limits, is_confined=True)
        self._original = original
        self.control, theirs = socket.socketpair()
        self._ending = threading.Lock()
        self._has_ended = False
        copies.note(self)
        try:
            with theirs:
                original.copy(theirs)
        except OSError as error:
            self.end()
            raise SandboxError(f"the process of the sandbox has ended: {error}") from error
        wait_no_longer(self.control)
        try:
            self.pid = int(receive(self.control)[0])
            self._join(self.pid)
            if self._group is None:
                raise OSError("it cannot be put into a control group")
        except (EOFError, OSError) as error:
            self.end()
            raise SandboxError(f"the process of the sandbox did not start: {error}") from error
        most = limits.processes
        original.counts.add(self._group, None if most is None else most + own + 1)

    def begin_anew(self) -> None:
        super().begin_anew()
        self._ending = threading.Lock()
        self._has_ended = True
        self.control.close()

    @property
    def is_alive(self) -> bool:
        return not self._has_ended and self._original.is_alive

    def kill(self) -> None:
        if self._group is not None:
            self._group.kill()

    def end(self, patience: float = 0, *, is_idle: bool = False) -> Ended:
        with self._ending:
            has_ended, self._has_ended = self._has_ended, True
        if not has_ended:
            self.kill()
            self._original.end(self.pid)
            if self._group is not None:
                self._original.counts.remove(self._group)
                self._group.close()
            self.control.close()
        return Ended(0, -1, was_killed=True)
