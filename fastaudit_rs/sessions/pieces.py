"""The output of a step as it comes, told to a function of the host, or read as a stream."""

import asyncio
import codecs
import contextvars
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal, TypeAlias

from .._native import _Interrupts
from ..results import Result

#: The streams of a step.
Name: TypeAlias = Literal["stdout", "stderr"]
NAMES: tuple[Name, Name] = ("stdout", "stderr")


@dataclass(frozen=True)
class Output:
    """A piece of a step's output.

    Attributes:
        name: The stream that it was written to.
        text: The text.
    """

    name: Name
    text: str


#: A function that gets the output of a step, by pieces.
Tell: TypeAlias = Callable[[Output], object]


class Pieces:
    """Tells the pieces of a step's output as text."""

    def __init__(self, tell: Tell) -> None:
        #: ``None`` once it has failed: the step ends, and nobody hears the rest.
        self._tell: Tell | None = tell
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {name: make("replace") for name in NAMES}

    def add(self, name: Name, data: bytes, final: bool = False) -> None:
        text = self._decoders[name].decode(data, final)
        if not text or self._tell is None:
            return
        try:
            self._tell(Output(name, text))
        except BaseException:
            self._tell = None
            raise

    def end(self) -> None:
        for name in NAMES:
            self.add(name, b"", final=True)


#: The writes that are kept until they are told.
WRITES = 1000

#: The pieces of a step after which lines wait for others, and how long, in seconds: each takes
#: memory of the host until it is told.
PIECES, PAUSE = 10_000, 0.05


class Lines:
    """Tells what a step in this process writes by lines: `print` writes each value by itself.

    A line without an end is told when it is flushed, when the other stream is written to, and at
    the end of the step, as a terminal does.
    """

    def __init__(self, tell: Tell, interrupts: _Interrupts) -> None:
        self._pieces = Pieces(tell)
        self._interrupts = interrupts
        self._held: dict[Name, list[bytes]] = {name: [] for name in NAMES}
        self._count, self._last = 0, 0.0

    def add(self, name: Name, data: bytes) -> None:
        """Take a write, in the thread that writes."""
        self.flush(NAMES[1 - NAMES.index(name)])
        held = self._held[name]
        held.append(data)
        if len(held) >= WRITES:
            self._told(name)
        elif b"\n" in data or b"\r" in data:
            self.flush(name)

    def flush(self, name: Name) -> None:
        """Tell what is held of a stream, unless there are many pieces already."""
        if self._count < PIECES or time.monotonic() - self._last >= PAUSE:
            self._told(name)

    def _told(self, name: Name) -> None:
        # No interrupt of the step breaks off the host's function.
        self._interrupts.hold()
        try:
            held, self._held[name] = self._held[name], []
            if held:
                self._count, self._last = self._count + 1, time.monotonic()
                self._pieces.add(name, b"".join(held))
        finally:
            self._interrupts.release()

    def end(self) -> None:
        """Tell the rest, once the step has ended."""
        for name in NAMES:
            held, self._held[name] = self._held[name], []
            self._pieces.add(name, b"".join(held), final=True)


class InLoop:
    """Calls a function with output in an event loop; a failure of it ends the step."""

    def __init__(self, stop: Callable[[], object], on_output: Tell | None) -> None:
        self._stop = stop
        self._on_output = on_output
        self._loop = asyncio.get_running_loop()
        # `on_output` gets the caller's context, not that of the thread that writes.
        self._context = contextvars.copy_context()
        self._failed: BaseException | None = None

    @property
    def tell(self) -> Callable[[Output], None] | None:
        """The function for pieces, in any thread."""
        if self._on_output is None:
            return None

        def tell(output: Output) -> None:
            self._loop.call_soon_threadsafe(self._told, output, context=self._context)

        return tell

    def _told(self, output: Output) -> None:
        if self._on_output is None or self._failed is not None:
            return
        try:
            self._on_output(output)
        except BaseException as error:
            self._failed = error
            self._stop()

    async def end(self) -> None:
        """Wait for the last calls; raise what one of them raised."""
        await asyncio.sleep(0)
        if self._failed is not None:
            raise self._failed


#: The tasks of streams that have not ended, in their order, and what is set if a stream went away.
Streams: TypeAlias = dict[asyncio.Task[Result], threading.Event]


async def end_of_left(streams: Streams) -> None:
    """Wait for the steps of streams that went away before this task's: they end shortly."""
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    earlier = takewhile(lambda stream: stream[0] is not this, [*streams.items()])
    left = [task for task, is_left in earlier if is_left.is_set() and task.get_loop() is loop]
    if left:
        await asyncio.wait(left)


class Stream(AsyncIterator[Output]):
    """The output of a step as it comes; its result at the end.

    The step begins when the first of it is asked for. A stream that goes away before its end, as
    after ``break``, interrupts the step, as `aclose` does. `arun` waits for that.
    """

    def __init__(
        self,
        run: Callable[[Tell, threading.Event], Coroutine[Any, Any, Result]],
        interrupt: Callable[[], object],
        tasks: Streams,
    ) -> None:
        self._run = run
        self._interrupt = interrupt
        self._tasks = tasks
        self._stopped = threading.Event()
        self._queue: asyncio.Queue[Output | None] = asyncio.Queue()
        self._task: asyncio.Task[Result] | None = None

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Output:
        if self._task is None:
            self._task = self._begun()
        try:
            output = await self._queue.get()
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait([self._task])
            raise
        if output is not None:
            return output
        # Whoever asks again gets the end again.
        self._queue.put_nowait(None)
        self._task.result()
        raise StopAsyncIteration

    def _begun(self) -> "asyncio.Task[Result]":
        # Nothing here leads to the stream: it goes away once nobody reads it.
        loop, put, tasks = asyncio.get_running_loop(), self._queue.put_nowait, self._tasks

        def tell(output: Output) -> None:
            loop.call_soon_threadsafe(put, output)

        def ended(task: "asyncio.Task[Result]") -> None:
            tasks.pop(task, None)
            put(None)
            if not task.cancelled():
                # It is raised where the stream is read, if it still is.
                task.exception()

        task = loop.create_task(self._run(tell, self._stopped))
        tasks[task] = self._stopped
        task.add_done_callback(ended)
        return task

    def __del__(self) -> None:
        if self._task is not None and not self._task.done():
            self._stopped.set()
            self._interrupt()

    @property
    def result(self) -> Result:
        """The result of the step.

        Raises:
            RuntimeError: It has not ended yet.
        """
        if self._task is None or not self._task.done():
            raise RuntimeError("the step has not ended yet: read its output to the end first")
        return self._task.result()

    async def aclose(self) -> None:
        """Interrupt the step if it still runs, and wait for its end."""
        if self._task is not None and not self._task.done():
            self._stopped.set()
            self._interrupt()
            await asyncio.wait([self._task])
