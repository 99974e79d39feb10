"""Steps of a session, and other questions to its process, each watched until there is an answer."""

import contextlib
import math
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ... import AuditDenied
from ...denied import TOOL_CALL
from ...results import Error, Result
from ...sessions.arguments import BETWEEN
from ...sessions.errors import BUSY, FOREIGN, SandboxError
from ...sessions.values import unpack
from ..limits import KILLED
from ..wire import DENIALS, REPORT, encode
from . import copies
from .run import ProcessWatch, displays_told, error_told
from .runner import CancelToken, InFlight, SandboxConfig
from .session_process import Process, how_ended
from .watcher import Steps, driven

#: The time for a step to leave when its session is closed, in seconds.
PATIENCE = 3.0

#: The time for a step to end by itself when it is interrupted, in seconds.
GRACE = 0.5

#: The time between two interrupts: a step may not have begun at the first one.
AGAIN = 0.1

#: The messages that a step may send.
MESSAGES = 100_000


class Exchange(ProcessWatch):
    """A question to the process of a session, until its answer."""

    most_messages = MESSAGES

    def __init__(
        self,
        process: Process,
        number: int,
        config: SandboxConfig,
        seconds: float | None,
        cancel: CancelToken,
    ) -> None:
        super().__init__(process, config, seconds, cancel)
        self.number = number
        self._kill_at = self._interrupt_at = math.inf
        self._lock = threading.Lock()
        self._is_over = self._was_interrupted = False
        #: The copies that are kept once there is another one.
        self.most_copies: int | None = None
        self.violations: list[AuditDenied] = []
        self._denials_left = REPORT
        #: True if it had to be killed.
        self.was_killed = False
        #: True if the process went back to its state from before.
        self.was_undone = False

    def stop(self, why: str, grace: float = GRACE) -> bool:
        """End it, from any thread: by an exception in it, or by killing it. False if it is over."""
        with self._lock:
            if self._is_over:
                return False
            is_first = self.killed_by is None
            kill_at = time.monotonic() + grace
            if not self.was_killed:
                # The limit is told of at each look: what was killed has its time to end.
                self._kill_at = kill_at if is_first else min(self._kill_at, kill_at)
            if is_first:
                self.killed_by = why
                # One that waits for the function that calls this is interrupted by its answer.
                is_called = self.calls is not None and self.calls.thread == threading.get_ident()
                if is_called:
                    self._interrupt_at = time.monotonic() + AGAIN
                elif grace:
                    self._interrupt()
        return True

    def _interrupt(self) -> None:
        self._was_interrupted = True
        self._interrupt_at = time.monotonic() + AGAIN
        self.process.signal(signal.SIGINT)

    def finish(self) -> None:
        """Let no interrupt come any more, once it was watched: the next one is not meant."""
        with self._lock:
            self._is_over = True
        if self._was_interrupted:
            self.process.settle_signals()

    def _on_broken(self) -> None:
        # It may be ending just now, and so have closed its connection.
        self._kill_at = min(self._kill_at, time.monotonic() + GRACE)

    def _look(self, seconds: float) -> None:
        super()._look(seconds)
        now = time.monotonic()
        if now > self._kill_at:
            self._kill()
        elif now > self._interrupt_at:
            self._interrupt()

    def _obey(self, head: dict[str, Any], body: memoryview, size: int) -> Callable[[], None] | None:
        kind = head["kind"]
        if kind in ("done", "answer"):
            if head.get("number") == self.number:
                self.answer = head, body
        elif kind in ("call", "ask"):
            if self.calls is not None:
                return self.calls.obey(head, body)
        elif kind == "copied":
            process, number = head.get("process"), head.get("number")
            for copy in list(self.process.copies):
                if copy.process is None and copy.step == number and type(process) is int:
                    copy.process = process if process < 1 << 31 else -1
                    # Not before: a process that has ended makes none.
                    self.process.keep(self.most_copies)
        elif kind == "denied" and len(self.violations) < DENIALS and size <= self._denials_left:
            self._denials_left -= size
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                denied = AuditDenied.from_dict(head["denied"])
                # The host notes those itself: `Session.allow` takes their word.
                if denied.event != TOOL_CALL:
                    self.violations.append(denied)
        return None

    def result(self, *, is_closed: bool) -> Result:
        """The result of a step, also where its process or its session has ended."""
        process, killed_by = self.process, self.killed_by
        result = self._result(-signal.SIGKILL, violations=self.violations)
        if self.answer is not None:
            return replace(result, **outcome(*self.answer))
        if is_closed:
            error = Error("KeyboardInterrupt", "the session was closed")
            return replace(result, killed_by="interrupt", error=error)
        if self.was_killed and killed_by in KILLED:
            kind, message = KILLED[killed_by]
            lost = f"its process was killed: {process.ways()}"
            end = "it was undone" if self.was_undone else lost
            return replace(result, error=Error(kind, f"{message}: {end}"))
        if self.broken and self.was_killed:
            why = f"the step's process was killed, as {self.broken}"
            return replace(result, error=Error("SystemExit", f"{why}: {process.ways()}"))
        status = -signal.SIGKILL if process.status is None else process.status
        killed_by = killed_by or process.worker.limit_of(status)
        kind, message = KILLED.get(killed_by or "", ("SystemExit", "the step ended its process"))
        error = Error(kind, f"{message} ({how_ended(status)}): {process.ways()}")
        return replace(result, returncode=status, killed_by=killed_by, error=error)

    def _kill(self) -> None:
        if self.was_killed:
            # The kernel lets nothing survive this.
            self.process.worker.kill()
            self._kill_at = math.inf
            return
        self.was_killed = True
        self._kill_at = time.monotonic() + 2
        self.process.signal(signal.SIGKILL)


class Exchanges:
    """The exchanges of a session with its process, one at a time."""

    def __init__(
        self,
        config: SandboxConfig,
        in_flight: InFlight,
        process: Process,
        seconds: float | None,
    ) -> None:
        self._config = config
        self._in_flight = in_flight
        self.process = process
        #: The time of a question between steps.
        self._seconds = BETWEEN if seconds is None else min(seconds, BETWEEN)
        #: The number of the last one.
        self.number = 0
        self.is_closed = False
        #: True in a copy of the host: the process speaks with one.
        self.is_foreign = False
        self._now: Exchange | None = None
        self._busy = threading.Lock()
        copies.note(self)

    def begin_anew(self) -> None:
        """Leave the process to the original."""
        self.is_foreign = True
        self._busy = threading.Lock()
        self._now = None

    def check_open(self) -> None:
        if self.is_closed:
            raise RuntimeError("the session is closed")

    @contextlib.contextmanager
    def free(self) -> Iterator[Process]:
        """Use the process, which no step uses meanwhile."""
        self.check_open()
        if self.is_foreign:
            raise RuntimeError(FOREIGN)
        if not self._busy.acquire(blocking=False):
            raise RuntimeError(BUSY)
        try:
            yield self.process
        finally:
            self._busy.release()

    def has_ended(self) -> bool:
        """True if the process has ended, as far as can be told now."""
        with contextlib.suppress(RuntimeError), self.free() as process:
            return process.has_ended()
        return False

    def new(self, seconds: float | None) -> Exchange:
        self.process.check()
        self.number += 1
        return Exchange(self.process, self.number, self._config, seconds, CancelToken())

    def between(self) -> Exchange:
        """One that is no step."""
        return self.new(self._seconds)

    def ask(
        self, kind: str, body: bytes = b"", exchange: Exchange | None = None, **told: Any
    ) -> tuple[dict[str, Any], memoryview]:
        """Ask the process something that is no step, and wait for its answer."""
        exchange = exchange or self.between()
        place = self.process.copied(exchange.number) if kind == "copy" else None
        passes = place is not None
        message = encode(kind, body, number=exchange.number, passes=passes, **told)
        driven(self.watched(exchange, message, place))
        if exchange.answer is None:
            why = exchange.broken or "it ended, or took too long"
            ways = self.process.ways()
            raise SandboxError(f"the session's process gave no answer: {why}: {ways}")
        return exchange.answer

    def watched(
        self,
        exchange: Exchange,
        message: Sequence[bytes | memoryview],
        place: socket.socket | None = None,
        cancelled: threading.Event | None = None,
    ) -> Steps[None]:
        """Send a message, with the place of a copy, and watch until the answer is there."""
        try:
            with self._in_flight.running(exchange.cancel):
                self._now = exchange
                try:
                    if self.is_closed:
                        exchange.stop("interrupt", 0)
                    elif cancelled is not None and cancelled.is_set():
                        exchange.stop("interrupt")
                    self.process.channel.send(message, place)
                    yield exchange
                finally:
                    self._now = None
                    exchange.finish()
                    if exchange.was_killed and exchange.killed_by is not None:
                        exchange.was_undone = self.process.go_back()
        except Exception:
            # Its process was taken away from it, if it is closed.
            if not self.is_closed:
                raise

    def stop(self, grace: float = GRACE) -> bool:
        """Interrupt what runs now; False if nothing does."""
        exchange = self._now
        return exchange is not None and exchange.stop("interrupt", grace)

    def close(self, finish: Callable[[], object]) -> None:
        """End what runs, and call a function that ends the process."""
        self.is_closed = True
        if self.is_foreign:
            return
        self.stop(0)
        has_left = self._busy.acquire(timeout=PATIENCE)
        try:
            finish()
        finally:
            if has_left:
                self._busy.release()


def outcome(head: dict[str, Any], body: memoryview) -> dict[str, Any]:
    status, shown, value_error = head.get("status"), head.get("shown"), head.get("value_error")
    found: dict[str, Any] = {"returncode": status if type(status) is int else 1}
    found["error"] = error_told(head.get("error"))
    if type(value_error) is str:
        found["value_error"] = value_error
    if type(shown) is not int or not 0 <= shown <= len(body):
        return found
    # The packages that make arrays and frames of them raise errors of many classes.
    with contextlib.suppress(Exception):
        found["display"] = displays_told(unpack(body[:shown], arrays=False))
    if len(body) > shown:
        try:
            found["value"] = unpack(body[shown:])
        except Exception as bad:
            found["value_error"] = f"it cannot be read: {bad}"
    return found
