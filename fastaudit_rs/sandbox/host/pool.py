"""Processes of a sandbox that wait for its runs: one, or some that are started in advance."""

import contextlib
import functools
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

from ...results import Result
from ...sessions.arguments import count
from ..wire import COMMON
from . import copies
from .runner import CancelToken, InFlight, Runner, RunRequest
from .setup import Setup, module_names
from .watcher import Steps, Watched, nudge
from .worker import Worker


class Workers:
    """Workers that are started as they are needed. So many of them wait for the next runs."""

    def __init__(self, setup: Setup, preload: Sequence[str] = (), most: int = 1) -> None:
        self._setup = setup
        self._preload = preload
        self._most = most
        #: True if no more are started.
        self.closed = False
        self.begin_anew()
        copies.note(self)

    def begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[Worker, Hashable]] = []

    @contextlib.contextmanager
    def worker(self) -> Iterator[Worker]:
        found = self._next() or self._started()
        yield found[0]
        self._keep(*found)

    def start(self) -> None:
        self._keep(*self._started())

    def _started(self) -> tuple[Worker, Hashable]:
        if self.closed:
            raise RuntimeError("the pool is closed")
        key = self._setup.state()
        return self._setup.start(self._preload), key

    def _next(self) -> tuple[Worker, Hashable] | None:
        """Take one that waits; one from another state is stale."""
        key = self._setup.state()
        while True:
            with self._lock:
                if not self._idle:
                    return None
                worker, of_state = self._idle.pop(0)
            if of_state == key and worker.is_alive:
                return worker, key
            worker.end(is_idle=True)

    def _keep(self, worker: Worker, key: Hashable) -> None:
        with self._lock:
            if worker.is_alive and len(self._idle) < self._most and not self.closed:
                self._idle.append((worker, key))
                return
        worker.end(is_idle=True)

    def close(self) -> None:
        with self._lock:
            self.closed = True
            idle, self._idle = self._idle, []
        for worker, _ in idle:
            worker.end(is_idle=True)


#: Gives an idle worker for a run.
WorkerSource = Callable[[], AbstractContextManager[Worker]]


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
        self._run_in = run
        self._size = count("size", size, 1)
        self._directory = setup.config.directory
        self._workers = Workers(setup, [*COMMON, *module_names(preload)], size)
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
