"""Asynchronous callbacks, which an event loop runs while guarded code waits in another thread."""

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, TimeoutError as FutureTimeout
from typing import Any

from .denied import AuditDenied

#: The reason that nobody is asked by an event loop that cannot run meanwhile.
HELD_UP = (
    "on_ask is run by the event loop that this code keeps from running: run the guarded code in a "
    "thread (asyncio.to_thread), or await Session.arun"
)

#: The event loops whose threads wait for guarded code: they answer nothing meanwhile.
_held_up: list[asyncio.AbstractEventLoop] = []


def loop_here() -> asyncio.AbstractEventLoop | None:
    """The event loop of this thread, which it keeps from running as it waits."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


@contextlib.contextmanager
def waits_here() -> Iterator[None]:
    """Note that this thread waits for guarded code, and keeps its event loop from running."""
    loop = loop_here()
    if loop is None:
        yield
        return
    _held_up.append(loop)
    try:
        yield
    finally:
        _held_up.remove(loop)


#: The loop for which this thread works, which goes on meanwhile.
works_for: "contextvars.ContextVar[asyncio.AbstractEventLoop | None]"
works_for = contextvars.ContextVar("fastaudit_rs_loop", default=None)


def _loop() -> asyncio.AbstractEventLoop:
    loop = works_for.get()
    return asyncio.get_running_loop() if loop is None else loop


class Waiting:
    """A plain ``on_ask`` that waits for an asynchronous one, which another thread's loop runs."""

    __slots__ = ("_ask", "_context", "_loop", "_seconds")

    def __init__(
        self,
        ask: Callable[[AuditDenied], Awaitable[object]],
        seconds: Any,
        context: Callable[[], contextvars.Context] | None = None,
    ) -> None:
        """Take the loop that runs now, and its context: the callback has the host's rights.

        It runs in this context, or in that which `context` gives at the time.
        """
        try:
            self._loop = _loop()
        except RuntimeError:
            raise TypeError(
                "on_ask is a coroutine function, and no event loop runs here: make the guard in "
                "a coroutine, and run the guarded code in a thread (asyncio.to_thread)"
            ) from None
        if seconds is not None and (
            isinstance(seconds, bool) or not isinstance(seconds, (int, float))
        ):
            raise TypeError(f"ask_seconds must be a number or None, not {type(seconds).__name__}")
        if seconds is not None and not seconds > 0:
            raise ValueError(f"ask_seconds must be above 0, not {seconds!r}")
        self._ask, self._seconds = ask, seconds
        own = contextvars.copy_context()
        self._context = context or (lambda: own)

    def __repr__(self) -> str:
        return repr(self._ask)

    def __call__(self, denied: AuditDenied) -> object:
        """Wait for the answer; the loop goes on."""
        loop, ask = self._loop, self._ask
        if loop_here() is loop or any(held is loop for held in _held_up):
            raise RuntimeError(HELD_UP)
        answer: Future[object] = Future()
        tasks = []

        async def work() -> None:
            try:
                given = await ask(denied)
            except BaseException as error:
                if not answer.cancelled():
                    answer.set_exception(error)
                if not isinstance(error, Exception):
                    raise
            else:
                if not answer.cancelled():
                    answer.set_result(given)

        def begin() -> None:
            tasks.append(loop.create_task(work()))

        loop.call_soon_threadsafe(begin, context=self._context().copy())
        try:
            return answer.result(self._seconds)
        except (FutureTimeout, TimeoutError):
            if answer.done():
                raise
            answer.cancel()
            loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
            raise TimeoutError(f"nobody answered within {self._seconds:g} seconds") from None
        except BaseException:
            # The step that waits was interrupted.
            if answer.cancel():
                loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
            raise
