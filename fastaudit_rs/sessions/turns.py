"""Turns: who may use something, in the order in which they ask, from threads and event loops."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future

from .._threads import in_thread
from .._waiting import loop_here


def check_here() -> None:
    """Raise where waiting would stop an event loop, whose task may be what is waited for."""
    if loop_here() is not None:
        raise RuntimeError(
            "the session is in use, and waiting here would stop the event loop: await arun() or "
            "aremove(), or enter `async with sessions.asession(key)`"
        )


class Turns:
    """Gives turns, a number of them at a time; `make_room` is called where somebody waits."""

    def __init__(self, count: float = 1, make_room: Callable[[], object] | None = None) -> None:
        self._lock = threading.Lock()
        self._left = self.count = count
        self._make_room = make_room
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

    def take(self) -> None:
        """Wait for a turn."""
        turn = self.ask()
        try:
            if self._make_room is not None and not turn.done():
                self._make_room()
            if not turn.done():
                check_here()
            turn.result()
        except BaseException:
            self.drop(turn)
            raise

    async def async_take(self) -> None:
        """The same, without stopping the event loop."""
        turn = self.ask()
        try:
            if self._make_room is not None and not turn.done():
                await in_thread(self._make_room)
            await asyncio.wrap_future(turn)
        except BaseException:
            self.drop(turn)
            raise

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, and have it."""
        self.take()
        try:
            yield
        finally:
            self.end()

    @contextlib.asynccontextmanager
    async def async_turn(self) -> AsyncIterator[None]:
        """The same, without stopping the event loop."""
        await self.async_take()
        try:
            yield
        finally:
            self.end()
