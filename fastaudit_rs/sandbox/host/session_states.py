"""The states of a session in a sandbox: the one that it has, and those that it can go back to."""

import contextlib
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...sessions.base import Functions, Session
from ...sessions.snapshot import Snapshot, check_room, closed, number_of
from ..wire import Job
from .calls import told
from .copies import FOREIGN
from .exchange import Exchange
from .process import ProcessEnded, SandboxError, Worker
from .session_process import Process

if TYPE_CHECKING:
    from .decisions import Decisions

#: The message where all processes of a session have ended.
SNAPSHOT_LOST = "the snapshots have ended with the session's process: reset() begins anew"


def how_ended(status: int) -> str:
    """Describe an exit status, or minus the number of a signal."""
    return f"exit status {status}" if status >= 0 else f"signal {-status}"


class States(Session):
    """A session whose process can go back to copies of itself."""

    _busy: threading.Lock
    _closed: bool
    _decisions: "Decisions | None"
    _first_functions: Functions
    _functions: dict[str, Callable[..., Any]]
    _held: list[Process]
    _job: Job
    _keep: int
    _most_snapshots: int
    #: The number of the last question.
    _number: int
    _seconds: float | None
    _start: Callable[[], Worker]
    _steps: int
    _told: list[dict[str, Any]]
    #: The number of snapshots, and that at the last `reset`.
    _made = _reset_at = 0
    #: True in a copy of the host.
    _is_foreign = False

    @property
    def _process(self) -> Process:
        return self._held[0]

    @abstractmethod
    def _question(self, kind: str, **told: object) -> Exchange:
        """Send the process a question between steps, and wait for the answer."""

    def reset(self) -> None:
        with self._free():
            process = self._process
            process.drop_all()
            if process.is_lost or not process.keep_only_copies():
                process.worker.end()
                worker = self._start()
            else:
                worker = process.worker
            process.release()
            self._held[0] = Process(worker, self._job, self._decisions)
            self._functions = dict(self._first_functions)
            self._told = told(self._functions)
            self._steps = 0
            self._reset_at = self._made

    def undo(self) -> None:
        """Go back to the state before the last step, but for files; see `Session.undo`.

        Threads that steps have started do not run there. It works also where the last step has
        ended the process.
        """
        with self._free():
            self._notice_end()
            lost = "the state from before is lost: reset() begins anew"
            if not self._process.copies:
                if self._process.is_lost and self._keep:
                    raise SandboxError(lost)
                raise RuntimeError(
                    "no state from before the last step is kept: "
                    f"the session keeps {self._keep} (keep=), and each undo() uses one"
                )
            if not self._process.go_back():
                raise SandboxError(lost)

    def snapshot(self) -> Snapshot:
        """Keep the state that there is now, in a copy of the process; see `Session.snapshot`.

        Threads that steps have started do not run there. The copy is one of the sandbox's
        processes, which `Limits.processes` counts.
        """
        with self._free():
            check_room(len(self._process.snapshots), self._most_snapshots)
            number = self._made = self._made + 1
            self._copy(number)
            return Snapshot(self, number, self._steps)

    def restore(self, snapshot: Snapshot) -> None:
        number = number_of(snapshot, self)
        with self._free():
            process = self._process
            self._notice_end()
            if number not in process.snapshots:
                if process.is_lost and number > self._reset_at:
                    raise SandboxError(SNAPSHOT_LOST)
                raise closed()
            if process.snapshots[number].has_ended:
                process.forget(number)
                raise SandboxError("the snapshot's process has ended: the session is as it was")
            if not process.restore(number):
                raise SandboxError(SNAPSHOT_LOST)
            # The copy is the session's own process now: another one waits in its place.
            self._copy(number)

    def _copy(self, number: int) -> None:
        """Have the process make a copy of itself that waits, a snapshot of this number."""
        process = self._process
        try:
            self._asked("copy")
            copy = process.copies[-1] if process.copies else None
            if copy is None or copy.step != self._number or (copy.process or 0) <= 0:
                raise SandboxError("the session's process cannot be copied: no more may be started")
            process.copies.remove(copy)
            process.snapshots[number] = copy
        finally:
            for copy in [copy for copy in process.copies if copy.step == self._number]:
                process.drop(copy)

    def _drop(self, number: int) -> None:
        if not (self._closed or self._is_foreign) and number in self._process.snapshots:
            with self._free():
                self._process.forget(number)

    def _asked(self, kind: str, **told: object) -> tuple[dict[str, Any], memoryview]:
        self._check_process()
        exchange = self._question(kind, **told)
        if exchange.answer is None:
            why = exchange.broken or "it ended, or took too long"
            raise SandboxError(f"the session's process gave no answer: {why}: {self._ways()}")
        return exchange.answer

    @contextlib.contextmanager
    def _free(self) -> Iterator[None]:
        """Use the process, which no step uses meanwhile."""
        if self._closed:
            raise RuntimeError("the session is closed")
        if self._is_foreign:
            raise RuntimeError(FOREIGN)
        if not self._busy.acquire(blocking=False):
            raise RuntimeError(
                "the session runs a step already: wait for its end, or call interrupt()"
            )
        try:
            yield
        finally:
            self._busy.release()

    def _notice_end(self) -> None:
        """Look whether the process has ended since the last step."""
        if self._process.status is None and self._process.has_ended():
            self._process.settle()

    def _check_process(self) -> None:
        self._notice_end()
        if self._process.status is not None:
            how = how_ended(self._process.status)
            raise ProcessEnded(f"the session's process has ended ({how}): {self._ways()}")

    def _ways(self) -> str:
        ways = ["reset() starts another"]
        if self._process.copies:
            ways.append("undo() goes back")
        if self._process.snapshots:
            ways.append("restore() to a snapshot")
        return ", ".join(ways)
