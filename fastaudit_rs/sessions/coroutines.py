"""Coroutine functions of a host that the steps of a session in this process await.

They run in the host's event loop. Each side has a pipe that wakes its loop. A tool takes arguments
and results across, by value; nothing that the guest's loop holds leads to the host's side.
"""

import asyncio
import contextlib
import contextvars
import functools
import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from .. import _native

Function = Callable[..., Coroutine[Any, Any, Any]]

#: The time for the loop to stop, in seconds.
PATIENCE = 1.0


class _Pipe:
    def __init__(self) -> None:
        self._ends = os.pipe()
        for end in self._ends:
            os.set_blocking(end, False)

    def wake(self) -> None:
        # A full pipe wakes the loop anyway; behind a closed one nobody waits.
        with contextlib.suppress(OSError):
            os.write(self._ends[1], b"\0")

    def watch(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        loop.add_reader(self._ends[0], self._read, call)

    def leave(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError, ValueError, OSError):
            loop.remove_reader(self._ends[0])

    def _read(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            os.read(self._ends[0], 1 << 16)
        call()

    def close(self) -> None:
        ends, self._ends = self._ends, (-1, -1)
        for end in ends:
            with contextlib.suppress(OSError):
                os.close(end)


class _Answers:
    """The guest's side: the futures of its calls. The guest reaches it, by its event loop."""

    def __init__(self) -> None:
        self.pipe = _Pipe()
        self.given: deque[tuple[int, str, Any]] = deque()
        self._numbers = itertools.count()
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()

    def future(self) -> "tuple[int, asyncio.Future[Any]]":
        """Return a future of the running event loop, and its number."""
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops.add(loop)
            self.pipe.watch(loop, self._settle)
        number = next(self._numbers)
        future = self._futures[number] = loop.create_future()
        return number, future

    def drop(self, number: int) -> None:
        self._futures.pop(number, None)

    def _settle(self) -> None:
        """Give the futures their results, in their event loop."""
        while self.given:
            number, kind, answer = self.given.popleft()
            future = self._futures.pop(number, None)
            if future is None or future.done():
                continue
            if kind == "value":
                future.set_result(answer)
            elif kind == "cancelled":
                future.cancel()
            else:
                future.set_exception(answer)


class Caller:
    """The context of the caller that runs a step: tools see its variables."""

    def __init__(self) -> None:
        self.context = contextvars.copy_context()

    def run(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a plain function that runs another one in a copy of the context."""

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            return _native._run_in(self.context, function, args, kwargs)

        return called


class HostLoop:
    """The event loop of a host that has none: in a thread of its own, from the first use on."""

    def __init__(self) -> None:
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None

    def __call__(self) -> asyncio.AbstractEventLoop:
        if self._running is None:
            loop = asyncio.new_event_loop()
            run = loop.run_forever
            thread = threading.Thread(target=run, name="fastaudit_rs: tools", daemon=True)
            thread.start()
            self._running = loop, thread
        return self._running[0]

    def close(self) -> None:
        """Stop it, and close it unless a tool holds it up."""
        running, self._running = self._running, None
        if running is None:
            return
        loop, thread = running
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(PATIENCE)
        if not loop.is_running():
            loop.close()


class Coroutines:
    """The calls of tools that are coroutines, under way: the host's side."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._pipe = _Pipe()
        self._asked: deque[tuple[int, Callable[[], Coroutine[Any, Any, Any]] | None]] = deque()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._own = HostLoop()
        self._serves_alone = False
        self._answers = _Answers()

    def serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run functions in this event loop, until `leave`."""
        self._pipe.watch(loop, self._start)

    def leave(self, loop: asyncio.AbstractEventLoop) -> None:
        self._pipe.leave(loop)

    def serve_alone(self) -> None:
        """Run functions in an event loop of a thread of its own, unless there is one already."""
        if not self._serves_alone:
            self._serves_alone = True
            loop = self._own()
            loop.call_soon_threadsafe(self.serve, loop)

    def leave_alone(self) -> None:
        """Leave what is called from now on to another event loop; the rest goes on in its own."""
        if not self._serves_alone:
            return
        self._serves_alone = False
        loop, has_left = self._own(), threading.Event()

        def leave() -> None:
            self.leave(loop)
            has_left.set()

        loop.call_soon_threadsafe(leave)
        has_left.wait(PATIENCE)

    def close(self) -> None:
        self._own.close()
        for pipe in (self._pipe, self._answers.pipe):
            pipe.close()

    def _start(self) -> None:
        """Start the functions that were asked for, in the host's event loop."""
        while self._asked:
            number, call = self._asked.popleft()
            if call is None:
                task = self._tasks.get(number)
                if task is not None:
                    # The loop that it began in may be another one, and closed.
                    with contextlib.suppress(RuntimeError):
                        task.get_loop().call_soon_threadsafe(task.cancel)
            else:
                called = self._call(number, call)
                make = asyncio.get_running_loop().create_task
                self._tasks[number] = self._caller.context.copy().run(make, called)

    async def _call(self, number: int, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        kind: str
        answer: object = None
        try:
            kind, answer = "value", await call()
        except asyncio.CancelledError:
            kind = "cancelled"
        except StopIteration as error:
            # A future refuses a StopIteration.
            kind, answer = "raised", RuntimeError(f"StopIteration: {error.value!r}")
        except (Exception, SystemExit) as error:
            # SystemExit would end the event loop.
            kind, answer = "raised", error
        finally:
            self._tasks.pop(number, None)
        self._answers.given.append((number, kind, answer))
        self._answers.pipe.wake()

    def in_host(self, function: Function) -> Function:
        """A function for a tool, which runs another one in the host's event loop, as the host's."""

        @functools.wraps(function)
        async def called(*args: Any, **kwargs: Any) -> Any:
            number, future = self._answers.future()
            self._asked.append((number, functools.partial(function, *args, **kwargs)))
            self._pipe.wake()
            try:
                return await future
            except asyncio.CancelledError:
                self._asked.append((number, None))
                self._pipe.wake()
                raise
            finally:
                self._answers.drop(number)

        return called
