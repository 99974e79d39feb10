"""Coroutine functions of a host that the steps of a session in this process await.

They run in the host's event loop. Each side has a pipe that wakes its loop, and leaves the other
side's objects alone: arguments and results are bytes.
"""

import asyncio
import builtins
import contextlib
import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from ..tool_error import ToolError
from .values import NotData, pack, unpack

Function = Callable[..., Coroutine[Any, Any, Any]]


class _Pipe:
    """A pipe that wakes an event loop."""

    def __init__(self) -> None:
        self._ends = os.pipe()
        for end in self._ends:
            os.set_blocking(end, False)

    def wake(self) -> None:
        # One that is full wakes it anyway; one that is closed has nobody to wake.
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


class Coroutines:
    """The calls of coroutine functions that are under way."""

    def __init__(self) -> None:
        """Begin without calls."""
        self._to_host, self._to_guest = _Pipe(), _Pipe()
        self._asked: deque[tuple[int, Function | None, bytes]] = deque()
        self._answers: deque[tuple[int, bytes]] = deque()
        self._numbers = itertools.count()
        #: On the host's side.
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._own: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None
        #: On the guest's side.
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()

    def serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run functions in this event loop, until `leave`."""
        self._to_host.watch(loop, self._start)

    def leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start no more of them there."""
        self._to_host.leave(loop)

    def serve_alone(self) -> None:
        """Run functions in an event loop of a thread of its own, unless there is one already."""
        if self._own is None:
            loop = asyncio.new_event_loop()
            self.serve(loop)
            thread = threading.Thread(target=loop.run_forever, name="fastaudit_rs: functions")
            thread.daemon = True
            thread.start()
            self._own = loop, thread

    def leave_alone(self) -> None:
        """End that thread."""
        if self._own is not None:
            loop, thread = self._own
            self._own = None
            loop.call_soon_threadsafe(loop.stop)
            thread.join(1)
            if not loop.is_running():
                self.leave(loop)
                loop.close()

    def close(self) -> None:
        """End all."""
        self.leave_alone()
        for pipe in (self._to_host, self._to_guest):
            pipe.close()

    def _start(self) -> None:
        """Start the functions that were asked for, in the host's event loop."""
        while self._asked:
            number, function, data = self._asked.popleft()
            if function is None:
                task = self._tasks.get(number)
                if task is not None:
                    task.cancel()
            else:
                call = self._call(number, function, data)
                self._tasks[number] = asyncio.get_running_loop().create_task(call)

    async def _call(self, number: int, function: Function, data: bytes) -> None:
        answer: object
        try:
            args, kwargs = unpack(data, arrays=False)
            answer = ("value", await function(*args, **kwargs))
            packed = pack(answer)
        except asyncio.CancelledError:
            packed = pack(("cancelled",))
        except Exception as error:
            packed = pack(_told(error))
        finally:
            self._tasks.pop(number, None)
        self._answers.append((number, packed))
        self._to_guest.wake()

    def _answered(self) -> None:
        """Give the guest's futures their results, in its event loop."""
        while self._answers:
            number, data = self._answers.popleft()
            future = self._futures.pop(number, None)
            if future is None or future.done():
                continue
            kind, *rest = unpack(data)
            if kind == "value":
                future.set_result(rest[0])
            elif kind == "cancelled":
                future.cancel()
            else:
                future.set_exception(_raised(*rest))

    def stand_in(self, name: str, function: Function) -> Function:
        """Return the coroutine function that steps call in the place of the host's."""

        async def called(*args: Any, **kwargs: Any) -> Any:
            loop = asyncio.get_running_loop()
            if loop not in self._loops:
                self._loops.add(loop)
                self._to_guest.watch(loop, self._answered)
            try:
                data = pack((list(args), kwargs), arrays=False)
            except NotData as wrong:
                text = str(wrong).removeprefix("value").removeprefix("[0]").removeprefix("[1]")
                raise TypeError(f"function {name!r}: argument{text}; pass data") from None
            number = next(self._numbers)
            self._futures[number] = future = loop.create_future()
            self._asked.append((number, function, data))
            self._to_host.wake()
            try:
                return await future
            except asyncio.CancelledError:
                self._asked.append((number, None, b""))
                self._to_host.wake()
                raise
            finally:
                self._futures.pop(number, None)

        called.__name__ = called.__qualname__ = name
        called.__doc__ = str(function.__doc__ or "") or None
        return called


def _told(error: Exception) -> tuple[object, ...]:
    """An exception as data."""
    kind = type(error)
    is_own = kind.__module__ == "builtins"
    name = kind.__qualname__ if is_own else f"{kind.__module__}.{kind.__qualname__}"
    args: object = [str(error)]
    if is_own:
        with contextlib.suppress(NotData):
            pack(list(error.args), arrays=False)
            args = list(error.args)
    return ("raised", is_own, name, args)


def _raised(is_own: bool, name: str, args: list[Any]) -> Exception:
    """The exception of its data."""
    kind = getattr(builtins, name, None) if is_own else None
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(*args)
        except TypeError:
            return RuntimeError(f"{name}: {args}")
    error = ToolError(f"{name}: {args[0]}")
    error.kind = name
    return error
