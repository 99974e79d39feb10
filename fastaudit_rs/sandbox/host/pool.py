"""Processes of a sandbox that are started in advance, for many short runs."""

import contextlib
import queue
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from ...results import Result
from ...sessions.arguments import count
from ..wire import COMMON
from . import copies
from .process import Worker
from .run import INTERVAL
from .runner import CancelToken, InFlight, Runner, RunRequest
from .setup import Setup, WorkerSource

#: A worker that is being started, or has been, with the state that it depends on.
_Coming = Future[tuple[Worker, Hashable]]


class ReadyWorkers:
    """A number of workers that are started in advance, and again when one has ended."""

    def __init__(self, setup: Setup, preload: Sequence[str], count: int) -> None:
        self._setup = setup
        self._preload = preload
        self._count = count
        self._closed = False
        self.begin_anew()
        for _ in range(count):
            self._workers.put(self._submitted(self._workers.get()))
        copies.note(self)

    def begin_anew(self) -> None:
        """Forget them; others are started as they are needed."""
        self._starter = ThreadPoolExecutor(self._count, thread_name_prefix="fastaudit-rs-pool")
        #: `None` stands for one that nobody has started yet.
        self._workers: queue.SimpleQueue[_Coming | None] = queue.SimpleQueue()
        for _ in range(self._count):
            self._workers.put(None)

    def _submitted(self, coming: "_Coming | None" = None) -> "_Coming":
        return coming or self._starter.submit(self._start)

    def _start(self) -> tuple[Worker, Hashable]:
        if self._closed:
            raise RuntimeError("the pool is closed")
        key = self._setup.state()
        return self._setup.start(self._preload), key

    @contextlib.contextmanager
    def worker(self, cancel: CancelToken) -> Iterator[Worker]:
        coming = self._submitted(self._next(cancel))
        usable = False
        try:
            worker, key = coming.result()
            if key != self._setup.state() or not worker.is_alive:
                worker.end()
                coming = self._submitted()
                worker, _ = coming.result()
            yield worker
            usable = worker.is_alive
        finally:
            self._workers.put(coming if usable else self._submitted())

    def _next(self, cancel: CancelToken) -> "_Coming | None":
        while True:
            cancel.check()
            with contextlib.suppress(queue.Empty):
                return self._workers.get(timeout=INTERVAL)

    def wait(self) -> None:
        all_of_them = [self._submitted(self._workers.get()) for _ in range(self._count)]
        try:
            for coming in all_of_them:
                coming.result()
        finally:
            for coming in all_of_them:
                self._workers.put(coming)

    def start_no_more(self) -> None:
        """Start none for those that end from now on."""
        self._closed = True

    def close(self) -> None:
        self.start_no_more()
        for _ in range(self._count):
            coming = self._workers.get()
            if coming is not None and not coming.cancel():
                with contextlib.suppress(Exception):
                    coming.result()[0].end()
        self._starter.shutdown()


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
        self._workers = ReadyWorkers(setup, [*COMMON, *map(str, preload)], size)
        self._in_flight = InFlight("the pool")
        self._closed = False
        try:
            self._workers.wait()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"<Pool of {self._size} in {str(self._directory)!r}{closed}>"

    def close(self) -> None:
        """End its runs and processes. It runs nothing any more.

        A run that another thread waits for raises `RuntimeError`.
        """
        if not self._closed:
            self._closed = True
            self._workers.start_no_more()
            self._in_flight.close()
            self._workers.close()

    def _run(self, request: RunRequest) -> Result:
        with self._in_flight.running(request.cancel):
            return self._run_in(request, self._workers)
