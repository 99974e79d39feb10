"""Threads of this package, for work that would hold up an event loop.

Those of the loop's own executor are the host's: `asyncio.to_thread` waits where they are taken.
"""

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
Result = TypeVar("Result")

#: The threads for short work, which never waits for other such work.
MOST = 32

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def submit(work: Callable[[], Result]) -> "Future[Result]":
    """Do short work in a thread of ours."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(MOST, thread_name_prefix="fastaudit_rs")
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

    threading.Thread(target=run, name=f"fastaudit_rs {name}", daemon=True).start()
    return future


async def in_thread(function: Callable[..., Result], *args: Any, **options: Any) -> Result:
    """Call a function in a thread of ours, in the caller's context, as `asyncio.to_thread` does."""
    context = contextvars.copy_context()
    call = functools.partial(context.run, function, *args, **options)
    return await asyncio.wrap_future(submit(call))


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
