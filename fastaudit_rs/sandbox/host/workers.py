"""The processes of a sandbox that wait for work, started as they are needed."""

import contextlib
import threading
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from . import copies
from .cancel import CancelToken
from .process import Worker
from .setup import Setup


class Workers:
    """Workers that are started as they are needed. One of them waits for the next run."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.begin_anew()
        copies.note(self)

    def begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._idle: tuple[Worker, Hashable] | None = None

    @contextlib.contextmanager
    def worker(self, cancel: CancelToken) -> Iterator[Worker]:
        # A worker from another state is stale.
        key = self._setup.state()
        with self._lock:
            idle, self._idle = self._idle, None
        if idle is not None and not (idle[1] == key and idle[0].is_alive):
            idle[0].end()
            idle = None
        worker = idle[0] if idle is not None else self._setup.start()
        yield worker
        if not worker.is_alive:
            return
        with self._lock:
            idle, self._idle = self._idle, (worker, key)
        if idle is not None:
            idle[0].end()


class WorkerSource(Protocol):
    """The source of the workers of runs."""

    def worker(self, cancel: CancelToken) -> AbstractContextManager[Worker]:
        """Return an idle worker."""
        ...
