"""Threads of this package, for work that would hold up an event loop.

Those of the loop's own executor are the host's: `asyncio.to_thread` waits where they are taken.
"""

import asyncio
import contextlib
import contextvars
import functools
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from ._waiting import works_for

P = ParamSpec("P")
Result = TypeVar("Result")
_Self = TypeVar("_Self", bound="Closing")

#: How the names of threads of ours begin.
OURS = "fastaudit_rs"

#: The threads for short work, which never waits for other such work.
MOST = 32

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def submit(work: Callable[[], Result]) -> "Future[Result]":
    """Do short work in a thread of ours."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(MOST, thread_name_prefix=OURS)
        pool = _pool
    return pool.submit(work)


def apart(work: Callable[[], Result], name: str) -> "Future[Result]":
    """Do work that may take any time in a thread of its own."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=f"{OURS} {name}", daemon=True).start()
    return future


def when_forgotten(
    one: object, end: Callable[..., object], *args: object
) -> "weakref.finalize[..., object]":
    """End something once nobody has it any more, or the interpreter ends (`weakref.finalize`)."""
    return weakref.finalize(one, _end, weakref.ref(one), end, args)


def _end(one: "weakref.ref[object]", end: Callable[..., object], args: tuple[object, ...]) -> None:
    # Garbage is collected in any thread: also in one of ours, which this may wait for, and in one
    # by which native code calls us (`_DummyThread`), as the kernel's questions come. A process
    # that waits for the answer would not end.
    thread = threading.current_thread()
    is_waited_for = isinstance(thread, threading._DummyThread) or thread.name.startswith(OURS)
    if is_waited_for and one() is None:
        threading.Thread(target=end, args=args, name=f"{OURS} forgotten", daemon=False).start()
    else:
        end(*args)


async def in_thread(function: Callable[..., Result], *args: Any, **options: Any) -> Result:
    """Call a function in a thread of ours, in a copy of the caller's context.

    Cancelling this waits for its end. What is made there for a loop, such as an ``on_ask`` that is
    a coroutine function, is made for this one.
    """
    context = contextvars.copy_context()
    context.run(works_for.set, asyncio.get_running_loop())
    call: Any = functools.partial(context.run, function, *args, **options)
    return await to_its_end(submit(call))


async def to_its_end(begun: "Future[Result]", end: Callable[[], object] | None = None) -> Result:
    """Wait for work that goes on elsewhere. Cancelling this calls `end`, and waits for its end."""
    work = asyncio.wrap_future(begun)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if end is not None:
            end()
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()
        raise


class Closing(ABC):
    """Closes at the end of a ``with`` statement, and of ``async with``, which stops no loop."""

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self: _Self) -> _Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await in_thread(self.close)

    @abstractmethod
    def close(self) -> None:
        """End its processes. It runs nothing any more."""


def awaited(function: Callable[P, Result]) -> Callable[P, Coroutine[Any, Any, Result]]:
    """The twin of a function for coroutines, which calls it in a thread of ours."""

    @functools.wraps(function)
    async def call(*args: P.args, **options: P.kwargs) -> Result:
        return await in_thread(function, *args, **options)

    name = function.__name__
    call.__name__, call.__qualname__ = f"a{name}", function.__qualname__.replace(name, f"a{name}")
    call.__doc__ = f"Do the same as `{name}` without stopping the event loop meanwhile."
    return call


def _begin_anew() -> None:
    """Forget the threads of the original in a copy of the process, which has none of them."""
    global _lock, _pool
    _lock, _pool = threading.Lock(), None


os.register_at_fork(after_in_child=_begin_anew)
