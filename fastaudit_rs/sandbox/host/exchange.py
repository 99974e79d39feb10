"""One step of a session, or another question to its process, watched until the answer is there."""

import contextlib
import math
import selectors
import signal
import threading
import time
from typing import Any

from ... import AuditDenied
from ...sessions.base import NAMES, Name, Pieces
from ...sessions.values import unpack
from ..limits import keep
from ..wire import DENIALS, REPORT, Malformed, decode
from .calls import Calls
from .channel import Broken
from .files import Disk
from .run import INTERVAL, error_told
from .runner import CancelToken, SandboxConfig
from .session_process import Process

#: The time for a step to end by itself when it is interrupted, in seconds.
GRACE = 0.5

#: The time between two interrupts: a step may not have begun at the first one.
AGAIN = 0.1

#: The messages that a step may send.
MESSAGES = 100_000


class Exchange:
    """A question to the process of a session, until its answer."""

    def __init__(
        self,
        process: Process,
        number: int,
        config: SandboxConfig,
        seconds: float | None,
        cancel: CancelToken,
    ) -> None:
        self._process = process
        self.number = number
        self._config = config
        self._seconds = math.inf if seconds is None else seconds
        self._cancel = cancel
        self.calls: Calls | None = None
        self.pieces: Pieces | None = None
        self._kill_at = self._interrupt_at = math.inf
        self._lock = threading.Lock()
        self._is_over = self._was_interrupted = False
        self._messages = 0
        self._found: dict[Name, bytearray] = {name: bytearray() for name in NAMES}
        self.answer: tuple[dict[str, Any], memoryview] | None = None
        self.violations: list[AuditDenied] = []
        self._denials_left = REPORT
        #: The limit that ended it, or ``"interrupt"``.
        self.killed_by: str | None = None
        #: True if it had to be killed for that.
        self.was_killed = False
        #: True if the process went back to its state from before.
        self.was_undone = False
        #: The reason, if the process sent what is no message.
        self.broken = ""

    def text(self, name: Name) -> str:
        return self._found[name].decode(errors="replace")

    def is_stopped(self) -> bool:
        return self.killed_by is not None

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
        self._process.signal(signal.SIGINT)

    def finish(self) -> None:
        """Let no interrupt come any more, once it was watched: the next one is not meant."""
        with self._lock:
            self._is_over = True
        if self._was_interrupted:
            self._process.settle_signals()

    def watch(self) -> None:
        """Watch it to its end: there is an answer then, or the process has ended."""
        begun = time.monotonic()
        disk = Disk(self._config.base, self._config.limits.disk)
        process = self._process
        caught: BaseException | None = None
        with contextlib.closing(disk), selectors.PollSelector() as selector:
            for descriptor in process.pipes:
                selector.register(descriptor, selectors.EVENT_READ)
            selector.register(process.channel, selectors.EVENT_READ)
            selector.register(process.worker.control, selectors.EVENT_READ)
            while self.answer is None and process.status is None:
                try:
                    self._look(selector)
                    self._cancel.check()
                    now = time.monotonic()
                    if now - begun > self._seconds:
                        self.stop("wall_seconds")
                    if now - begun > INTERVAL and disk.is_over(process.worker.pid):
                        self.stop("disk", 0)
                    if now > self._kill_at:
                        self._kill()
                    elif now > self._interrupt_at:
                        self._interrupt()
                except BaseException as error:
                    # The host's own: a function of its, or its user. The step ends first.
                    if caught is not None:
                        process.end()
                    caught = caught or error
                    self.stop("interrupt")
        if self.calls is not None:
            self.calls.end()
        if process.status is not None and not process.is_lost:
            process.settle()
        for name, data in process.drained():
            self._take(name, data)
        if self.pieces is not None:
            for name in NAMES:
                self.pieces.add(name, b"", final=True)
        if caught is not None:
            raise caught

    def _look(self, selector: selectors.BaseSelector) -> None:
        process = self._process
        pending = process.channel.flush()
        if not self.broken:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if pending else 0)
            if selector.get_key(process.channel).events != wanted:
                selector.modify(process.channel, wanted)
        until_kill = max(0.0, self._kill_at - time.monotonic())
        for key, events in selector.select(min(INTERVAL, until_kill)):
            if key.fileobj is process.channel:
                if events & selectors.EVENT_READ and not self._heard():
                    selector.unregister(process.channel)
            elif key.fileobj is process.worker.control:
                process.hear()
            else:
                self._take(process.pipes[key.fd], process.read(key.fd))

    def _heard(self) -> bool:
        """Obey what is there. False if nothing more can come."""
        try:
            for message in self._process.channel.messages():
                self._messages += 1
                if self._messages > MESSAGES:
                    raise Broken(f"it sent more than {MESSAGES} messages in a step")
                if self.answer is None:
                    with contextlib.suppress(Malformed):
                        self._obey(*decode(message), len(message))
        except Broken as error:
            self.broken = str(error)
            # It may be ending just now, and so have closed its connection.
            self._kill_at = min(self._kill_at, time.monotonic() + GRACE)
            return False
        return True

    def _obey(self, head: dict[str, Any], body: memoryview, size: int) -> None:
        kind = head["kind"]
        if kind in ("done", "answer"):
            if head.get("number") == self.number:
                self.answer = head, body
        elif kind in ("call", "ask"):
            if self.calls is not None:
                self.calls.obey(head, body)
        elif kind == "copied":
            process, number = head.get("process"), head.get("number")
            for copy in self._process.copies:
                if copy.process is None and copy.step == number and type(process) is int:
                    copy.process = process if process < 1 << 31 else -1
        elif kind == "denied" and len(self.violations) < DENIALS and size <= self._denials_left:
            self._denials_left -= size
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                self.violations.append(AuditDenied.from_dict(head["denied"]))

    def _kill(self) -> None:
        if self.was_killed:
            # The kernel lets nothing survive this.
            self._process.worker.kill()
            self._kill_at = math.inf
            return
        self.was_killed = True
        self._kill_at = time.monotonic() + 2
        self._process.signal(signal.SIGKILL)

    def _take(self, name: Name, data: bytes) -> None:
        kept = keep(self._found[name], data, self._config.limits.output)
        if self.pieces is not None:
            self.pieces.add(name, kept)
        if len(kept) < len(data):
            self.stop("output")


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
