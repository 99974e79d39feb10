"""The thread that runs the steps of a session in this process."""

import asyncio
import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from .. import AuditDenied, AuditPerms
from .._native import _Interrupts, _own_directory
from .forms import NotData, message, told
from .output import Capture
from .questions import Thinking

#: The seconds that a step which is interrupted has until it is given up, and those between two
#: interrupts: it may catch the first one.
GRACE, AGAIN = 0.5, 0.02

#: The seconds between two looks for Ctrl-C: a signal that comes just before a thread begins to wait
#: does not wake it.
LOOK = 0.05

_RUN_FOREVER = asyncio.BaseEventLoop.run_forever.__code__


@dataclass(eq=False)
class StepJob:
    """A function that the thread calls under the guard."""

    work: Callable[[], object]
    notify: Callable[[], object]
    limit: float | None
    #: When it was asked for.
    asked: float = field(default_factory=time.monotonic)
    result: Any = None
    #: An exception for the host, made anew without objects of the code.
    failed: BaseException | None = None
    #: The reason that the work did not begin.
    refused: OSError | None = None
    killed_by: str | None = None
    is_done: bool = False
    #: The time in which answers are waited for.
    thinking: Thinking = field(default_factory=Thinking)
    #: True if it got an interrupt, though it may have caught it.
    was_interrupted: bool = False
    started: float = field(default_factory=time.monotonic)
    began: float = 0
    ended: float = 0
    _given_up_at: float | None = None
    _interrupted_at: float = -AGAIN

    def stop(self, killed_by: str) -> None:
        if self.killed_by is None:
            self.killed_by = killed_by
        self.notify()

    def end_here(self, killed_by: str) -> None:
        """Stop it from the thread that does it, which raises `KeyboardInterrupt` by itself."""
        self._interrupted_at = time.monotonic()
        self.stop(killed_by)

    def interrupt(self, guest: "Guest") -> None:
        """Interrupt it, but for one that was interrupted just now: it may be ending."""
        now = time.monotonic()
        if now - self._interrupted_at > AGAIN / 2:
            self._interrupted_at = now
            self.was_interrupted = guest.interrupt(self) or self.was_interrupted

    def wait(self, guest: "Guest") -> float | None:
        """End it if it must. Return the seconds until the next look; ``None`` if it is over."""
        if self.is_done:
            return None
        now = time.monotonic()
        if self.killed_by is None:
            if self.limit is None:
                return threading.TIMEOUT_MAX
            left = self.started + self.limit + self.thinking.seconds() - now
            if left > 0:
                return max(left, LOOK) if self.thinking.goes_on else left
            self.killed_by = "wall_seconds"
        if self._given_up_at is None:
            self._given_up_at = now + GRACE
        if now >= self._given_up_at:
            guest.give_up(self)
            return None
        self.interrupt(guest)
        return AGAIN


class Guest:
    """A thread that calls functions under a guard, one after another."""

    def __init__(self, perms: AuditPerms, directory: str, output: Capture, name: str) -> None:
        self.directory = directory
        self.output = output
        self.interrupts = _Interrupts()
        self.job: StepJob | None = None
        self.is_given_up = False
        #: Held while a job is interrupted: the next one does not begin meanwhile.
        self._lock = threading.RLock()
        self._name = name
        self._jobs: SimpleQueue[StepJob | None] = SimpleQueue()
        self._guard = perms()._keep()
        self._thread: threading.Thread | None = None
        #: The directory to enter: the first one, and that between jobs where threads have none of
        #: their own.
        self._next_directory: str | None = directory
        #: Work to be done before that of the first job.
        self.first: Callable[[], object] | None = None

    def start(self, job: StepJob) -> None:
        if self.first is not None:
            job.work, self.first = _after(self.first, job.work), None
        if self._thread is None:
            thread = threading.Thread(target=_serve, args=(self,), name=self._name)
            thread.daemon = True
            # A guard that the caller is under may deny it.
            thread.start()
            self._thread = thread
        with self._lock:
            self.job = job
        self._jobs.put(job)

    def interrupt(self, job: StepJob) -> bool:
        """Raise `KeyboardInterrupt` in a job, if it runs code of a step. True if it does."""
        thread = self._thread
        with self._lock:
            is_put = self.job is job and self.interrupts.interrupt()
        if is_put and thread is not None and thread.ident is not None:
            _wake(thread.ident)
        return is_put

    def give_up(self, job: StepJob) -> None:
        """Go on interrupting a job, without waiting for it."""
        if self.is_given_up:
            return
        self.is_given_up = True

        def pursue() -> None:
            while not job.is_done:
                self.interrupt(job)
                time.sleep(AGAIN)

        threading.Thread(target=pursue, name=f"{self._name}: interrupts", daemon=True).start()

    def begin_again(self) -> None:
        self._next_directory = self.directory

    def end(self, work: Callable[[], object], notify: Callable[[], object]) -> None:
        """End the thread once it has done its jobs, and this work as the last one."""
        if self._thread is None:
            notify()
            return
        self._jobs.put(StepJob(work, notify, None))
        self._jobs.put(None)

    def join(self, seconds: float) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)


def _after(first: Callable[[], object], work: Callable[[], object]) -> Callable[[], object]:
    def both() -> object:
        first()
        return work()

    return both


def _serve(guest: Guest) -> None:
    has_own = _own_directory()
    while True:
        job = guest._jobs.get()
        if job is None:
            return
        _perform(guest, job, has_own)
        del job


def _perform(guest: Guest, job: StepJob, has_own: bool) -> None:
    before = None
    try:
        if not has_own:
            before = os.getcwd()
        if guest._next_directory is not None:
            os.chdir(guest._next_directory)
            guest._next_directory = None
        with guest._guard:
            job.began = time.monotonic()
            try:
                job.result = _interruptible(guest.interrupts, job.work)
            except BaseException as error:
                job.failed = _for_host(error)
    except OSError as error:
        # The working directory was removed.
        job.refused = error
    except BaseException as error:
        job.failed = _for_host(error)
    finally:
        if before is not None:
            with contextlib.suppress(OSError):
                guest._next_directory = guest._next_directory or os.getcwd()
                os.chdir(before)
        job.ended = time.monotonic()
        job.is_done = True
        guest.job = None
        guest.is_given_up = False
        job.notify()


def _for_host(error: BaseException) -> BaseException:
    """Return the exception to raise in the host in the place of one of the thread's."""
    kind = type(error)
    if issubclass(kind, KeyboardInterrupt):
        return KeyboardInterrupt()
    if kind is NotData:
        return TypeError(message(error))
    if kind is AuditDenied:
        with contextlib.suppress(BaseException):
            return AuditDenied.from_dict(AuditDenied.to_dict(error))  # type: ignore[arg-type]
    return RuntimeError(told(error))


def _interruptible(interrupts: _Interrupts, work: Callable[[], object]) -> object:
    """Call a function that may be interrupted; no interrupt arrives after this has returned."""
    try:
        return _ended(interrupts, work)
    except KeyboardInterrupt:
        _end(interrupts)
        raise


def _ended(interrupts: _Interrupts, work: Callable[[], object]) -> object:
    interrupts.begin()
    try:
        result = work()
        _end(interrupts)
    except BaseException:
        _end(interrupts)
        raise
    return result


def _end(interrupts: _Interrupts) -> None:
    """Let no more interrupts arrive, and take the last one.

    It is not taken back: before 3.13 CPython would go on looking for it in all threads, and a frame
    that is traced would never get past that (ceval.c).
    """
    try:
        if interrupts.end():
            while True:
                pass
    except KeyboardInterrupt:
        pass


def _wake(thread: int) -> None:
    """Wake the event loop that a thread waits in: an exception arrives only where Python runs."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code is _RUN_FOREVER:
            loop = frame.f_locals.get("self")
            # Only objects of exact types are used, so that no code of the step runs here.
            if type(loop) is asyncio.SelectorEventLoop:
                end = vars(loop).get("_csock")
                if type(end) is socket.socket:
                    with contextlib.suppress(OSError):
                        socket.socket.send(end, b"\0")
            return
        frame = frame.f_back
