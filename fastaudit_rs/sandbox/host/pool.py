"""Processes of a sandbox that are started in advance, for many short runs."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ...results import Result
from ...sessions.arguments import count
from ..wire import COMMON
from . import copies
from .process import Worker
from .runner import CancelToken, InFlight, Runner, RunRequest
from .setup import Setup, Workers, WorkerSource
from .watcher import Steps, Watched, nudge


class Pool(Runner):
    """Processes of a sandbox that are started in advance: ``Sandbox.pool()`` makes it.

    Each run is a copy (fork(2)) of a process that has imported the preloaded modules and has run
    nothing else. The runs share the directory of the sandbox, and nothing else.
    """

    def __init__(
        self,
        run: Callable[[RunRequest, WorkerSource, Watched], Steps[Result]],
        setup: Setup,
        size: int,
        preload: Iterable[str],
    ) -> None:
        if isinstance(preload, str):
            raise TypeError("preload must be names of modules, not str")
        self._run_in = run
        self._size = count("size", size, 1)
        self._directory = setup.config.directory
        self._workers = Workers(setup, [*COMMON, *map(str, preload)], size)
        self._in_flight = InFlight("the pool")
        self.begin_anew()
        copies.note(self)
        try:
            for starting in [self._starter.submit(self._workers.start) for _ in range(size)]:
                starting.result()
        except BaseException:
            self.close()
            raise

    def begin_anew(self) -> None:
        self._starter = ThreadPoolExecutor(self._size, thread_name_prefix="fastaudit-rs-pool")
        self._room = threading.Semaphore(self._size)

    def __repr__(self) -> str:
        closed = ", closed" if self._workers.closed else ""
        return f"<Pool of {self._size} in {str(self._directory)!r}{closed}>"

    def close(self) -> None:
        """End its runs and processes. It runs nothing any more.

        A run that another thread waits for raises `RuntimeError`.
        """
        self._workers.closed = True
        self._in_flight.close()
        self._starter.shutdown()
        self._workers.close()

    def _run(self, request: RunRequest) -> Steps[Result]:
        with self._in_flight.running(request.cancel):
            room = _Room(self._room, request.cancel)
            used: list[Worker] = []
            workers = functools.partial(self._worker, used)
            try:
                return (yield from self._run_in(request, workers, room))
            finally:
                if room.is_taken:
                    self._make_room(used)

    @contextlib.contextmanager
    def _worker(self, used: list[Worker]) -> Iterator[Worker]:
        with self._workers.worker() as worker:
            used.append(worker)
            yield worker

    def _make_room(self, used: list[Worker]) -> None:
        if all(worker.is_alive for worker in used):
            self._room.release()
            nudge()
        else:
            # A pool that is closed starts no other one.
            with contextlib.suppress(RuntimeError):
                self._starter.submit(self._replace)

    def _replace(self) -> None:
        """Start a worker in the place of one that has ended."""
        try:
            self._workers.start()
        finally:
            self._make_room([])


class _Room:
    """Waits until fewer runs than there may be have a worker."""

    is_called = False

    def __init__(self, room: threading.Semaphore, cancel: CancelToken) -> None:
        self._room, self._cancel = room, cancel
        self.is_taken = False
        self._error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        return self.is_taken or self._error is not None

    def begin(self, *, is_apart: bool) -> None:
        self.look(0)

    def fileno(self) -> int:
        return -1

    def look(self, seconds: float) -> None:
        try:
            self._cancel.check()
            self.is_taken = self.is_taken or self._room.acquire(timeout=seconds)
        except BaseException as error:
            self._error = error

    def call(self) -> None:
        """Do nothing: it has no functions of the host."""

    def end(self) -> None:
        if self._error is not None:
            raise self._error
