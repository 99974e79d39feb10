"""Turns: who may use something, in the order in which they ask, from threads and event loops."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future


class Turns:
    """Gives turns, a number of them at a time."""

    def __init__(self, count: int = 1) -> None:
        self._lock = threading.Lock()
        self._left = count
        self._waiting: deque[Future[None]] = deque()

    def ask(self) -> "Future[None]":
        """Ask for a turn: the future has a result once it is given."""
        turn: Future[None] = Future()
        with self._lock:
            if self._left:
                self._left -= 1
                turn.set_result(None)
            else:
                self._waiting.append(turn)
        return turn

    def has_taken(self) -> bool:
        """Take a turn if one is left. False if none is."""
        with self._lock:
            if self._left:
                self._left -= 1
                return True
        return False

    @property
    def is_wanted(self) -> bool:
        """True if somebody waits."""
        with self._lock:
            return any(not turn.cancelled() for turn in self._waiting)

    @property
    def are_taken(self) -> bool:
        """True if none is left."""
        return not self._left

    def end(self) -> None:
        """End a turn: the first one who waits has it then."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._left += 1
                    return
                turn = self._waiting.popleft()
            if turn.set_running_or_notify_cancel():
                turn.set_result(None)
                return

    def drop(self, turn: "Future[None]") -> None:
        """Give up a turn that was asked for, and that may have been given meanwhile."""
        if not turn.cancel():
            self.end()

    def wait(self, turn: "Future[None]") -> None:
        try:
            turn.result()
        except BaseException:
            self.drop(turn)
            raise

    async def wait_async(self, turn: "Future[None]") -> None:
        try:
            await asyncio.wrap_future(turn)
        except BaseException:
            self.drop(turn)
            raise

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, and have it."""
        self.wait(self.ask())
        try:
            yield
        finally:
            self.end()

    @contextlib.asynccontextmanager
    async def async_turn(self) -> AsyncIterator[None]:
        """The same, without stopping the event loop."""
        await self.wait_async(self.ask())
        try:
            yield
        finally:
            self.end()
