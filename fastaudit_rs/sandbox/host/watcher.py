"""Watching runs and steps to their end: here, or many of them in one thread.

A run or a step is a generator. It yields what is to be watched, and goes on when that is over. The
parts between are short, and a coroutine has them done in threads of ours (`_threads`).
"""

import contextlib
import contextvars
import functools
import os
import selectors
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from ..._threads import apart, submit
from . import copies

T = TypeVar("T")

#: The time between two looks at something, in seconds.
INTERVAL = 0.05


class Watched(Protocol):
    def begin(self, *, is_apart: bool) -> None:
        """Begin to watch; if `is_apart`, what may take long is left to `call`."""

    def fileno(self) -> int:
        """A descriptor that can be read when there is something to look at; -1 if none is."""
        ...

    def look(self, seconds: float) -> None:
        """Look at what there is, within so many seconds. It raises nothing."""

    @property
    def is_over(self) -> bool: ...

    @property
    def is_called(self) -> bool:
        """True if `call` has something to do."""
        ...

    def call(self) -> None:
        """Call functions of the host, for any time. It raises nothing."""

    def end(self) -> None:
        """Watch no more, when it is over; raise the error that there was."""


Steps: TypeAlias = Generator[Watched, None, T]


def driven(steps: "Steps[T]") -> T:
    """Do all in this thread, which waits."""
    failed: BaseException | None = None
    while True:
        try:
            watched = next(steps) if failed is None else steps.throw(failed)
        except StopIteration as end:
            result: T = end.value
            return result
        failed = None
        try:
            watched.begin(is_apart=False)
            try:
                while not watched.is_over:
                    watched.look(INTERVAL)
            finally:
                watched.end()
        except BaseException as error:
            failed = error


def begun(steps: "Steps[T]") -> "Future[T]":
    """Begin, and let the thread that watches and threads for short work do all."""
    chain = _Chain(steps)
    submit(functools.partial(chain.go_on, None))
    return chain.future


class _Chain(Generic[T]):
    def __init__(self, steps: "Steps[T]") -> None:
        self._steps = steps
        #: Functions of the host see the variables of the coroutine.
        self._context = contextvars.copy_context()
        self.future: Future[T] = Future()
        self.future.set_running_or_notify_cancel()

    def go_on(self, watched: Watched | None) -> None:
        """Go on after something was over, up to the next that is to be watched."""
        following = self._context.run(self._following, watched)
        # No thread is in the context any more: the next one may be there at once.
        if following is not None:
            _watcher.add(following, self)

    def _following(self, watched: Watched | None) -> Watched | None:
        failed: BaseException | None = None
        while True:
            try:
                if watched is not None:
                    watched.end()
            except BaseException as error:
                failed = error
            try:
                watched = next(self._steps) if failed is None else self._steps.throw(failed)
            except StopIteration as end:
                self.future.set_result(end.value)
                return None
            except BaseException as error:
                self.future.set_exception(error)
                return None
            failed = None
            try:
                watched.begin(is_apart=True)
                return watched
            except BaseException as error:
                failed, watched = error, None

    def follow(self, watched: Watched) -> None:
        """Go on in another thread: the one that watches does not wait for anything."""
        try:
            if watched.is_called:
                apart(functools.partial(self._call, watched), "tool")
            else:
                submit(functools.partial(self.go_on, watched))
        except BaseException as error:
            # The process ends, or has no thread left.
            self.future.set_exception(error)

    def _call(self, watched: Watched) -> None:
        """Call functions of the host, for any time, and watch again."""
        self._context.run(watched.call)
        _watcher.add(watched, self)


class _Watcher:
    """One thread, which is there as long as something is watched."""

    def __init__(self) -> None:
        #: What wakes the thread, if there is one.
        self._pipe: tuple[int, ...] = ()
        self.begin_anew()
        copies.note(self)

    def begin_anew(self) -> None:
        """Forget what is watched in the original."""
        for end in self._pipe:
            os.close(end)
        self._lock = threading.Lock()
        self._new: list[tuple[Watched, _Chain[Any]]] = []
        self._pipe = ()

    def add(self, watched: Watched, chain: _Chain[Any]) -> None:
        with self._lock:
            self._new.append((watched, chain))
            if self._pipe:
                self._nudge()
                return
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
            threading.Thread(target=self._run, name="fastaudit_rs watcher", daemon=True).start()

    def nudge(self) -> None:
        """Look at all that is watched now."""
        with self._lock:
            self._nudge()

    def _nudge(self) -> None:
        # A full pipe wakes it anyway.
        with contextlib.suppress(BlockingIOError):
            if self._pipe:
                os.write(self._pipe[1], b"\0")

    def _run(self) -> None:
        watching: dict[Watched, _Chain[Any]] = {}
        looked = 0.0
        wakes = self._pipe[0]
        with selectors.DefaultSelector() as selector:
            selector.register(wakes, selectors.EVENT_READ)
            while True:
                with self._lock:
                    new, self._new = self._new, []
                    if not (new or watching):
                        for end in self._pipe:
                            os.close(end)
                        self._pipe = ()
                        return
                for watched, chain in new:
                    watching[watched] = chain
                    if watched.fileno() >= 0:
                        selector.register(watched, selectors.EVENT_READ, watched)
                keys = [key for key, _ in selector.select(0 if new else INTERVAL)]
                ready: list[Watched] = [key.data for key in keys if key.data is not None]
                if len(ready) < len(keys):
                    os.read(wakes, 1 << 16)
                if len(ready) < len(keys) or time.monotonic() - looked >= INTERVAL:
                    ready, looked = [*watching], time.monotonic()
                for watched in ready:
                    watched.look(0)
                    if watched.is_over or watched.is_called:
                        if watched.fileno() >= 0:
                            selector.unregister(watched)
                        watching.pop(watched).follow(watched)


_watcher = _Watcher()

nudge = _watcher.nudge
