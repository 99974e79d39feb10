"""One step of a session, or another question to its process, watched until the answer is there."""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from ... import AuditDenied
from ...sessions.values import unpack
from ..wire import DENIALS, REPORT
from .run import ProcessWatch, error_told
from .runner import CancelToken, SandboxConfig
from .session_process import Process

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
                self.violations.append(AuditDenied.from_dict(head["denied"]))
        return None

    def _kill(self) -> None:
        if self.was_killed:
            # The kernel lets nothing survive this.
            self.process.worker.kill()
            self._kill_at = math.inf
            return
        self.was_killed = True
        self._kill_at = time.monotonic() + 2
        self.process.signal(signal.SIGKILL)


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
        found["display"] = _displays(unpack(body[:shown], arrays=False))
    if len(body) > shown:
        try:
            found["value"] = unpack(body[shown:])
        except Exception as bad:
            found["value_error"] = f"it cannot be read: {bad}"
    return found


def _displays(given: Any) -> list[dict[str, str | bytes]]:
    shown = [] if type(given) is not list else given
    return [
        {mime: data for mime, data in thing.items() if type(data) in (str, bytes)}
        for thing in shown
        if type(thing) is dict and all(type(mime) is str for mime in thing)
    ]
