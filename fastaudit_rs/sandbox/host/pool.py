"""Processes of a sandbox that are started in advance, for many short runs."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ...results import Result
from ...sessions.arguments import count
from ..wire import COMMON
from . import copies
from .process import Worker
from .run import INTERVAL
from .runner import CancelToken, InFlight, Runner, RunRequest
from .setup import Setup, Workers, WorkerSource


class Pool(Runner):
    """Processes of a sandbox that are started in advance: ``Sandbox.pool()`` makes it.

    Each run is a copy (fork(2)) of a process that has imported the preloaded modules and has run
    nothing else. The runs share the directory of the sandbox, and nothing else.
    """

    def __init__(
        self,
        run: Callable[[RunRequest, WorkerSource], Result],
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

    def _run(self, request: RunRequest) -> Result:
        with self._in_flight.running(request.cancel):
            return self._run_in(request, self._worker)

    @contextlib.contextmanager
    def _worker(self, cancel: CancelToken) -> Iterator[Worker]:
        """A worker, as soon as fewer runs than there may be have one."""
        while not self._room.acquire(timeout=INTERVAL):
            cancel.check()
        is_usable = False
        try:
            with self._workers.worker(cancel) as worker:
                yield worker
                is_usable = worker.is_alive
        finally:
            if is_usable:
                self._room.release()
            else:
                # A pool that is closed starts no other one.
                with contextlib.suppress(RuntimeError):
                    self._starter.submit(self._replace)

    def _replace(self) -> None:
        """Start a worker in the place of one that has ended."""
        try:
            self._workers.start()
        finally:
            self._room.release()
