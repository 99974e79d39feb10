"""The output of a step as it comes."""

import asyncio
from collections.abc import Awaitable, Callable

from ..results import Result
from .base import Output, Stream


class OutputStream(Stream):
    """The output of a step, which begins when the first of it is asked for.

    Args:
        run: Runs the step with a function that gets its output, in any thread.
        stop: Interrupts it.
    """

    def __init__(
        self,
        run: Callable[[Callable[[Output], None]], Awaitable[Result]],
        stop: Callable[[], object],
    ) -> None:
        """Begin nothing yet."""
        self._run = run
        self._stop = stop
        self._queue: asyncio.Queue[Output | None] = asyncio.Queue()
        self._task: asyncio.Task[Result] | None = None

    def __aiter__(self) -> "OutputStream":
        """Return it."""
        return self

    async def __anext__(self) -> Output:
        """Return the next piece of output."""
        if self._task is None:
            self._task = self._begun()
        try:
            output = await self._queue.get()
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if output is not None:
            return output
        # Whoever asks once more gets no more.
        self._queue.put_nowait(None)
        self._task.result()
        raise StopAsyncIteration

    def _begun(self) -> "asyncio.Task[Result]":
        loop = asyncio.get_running_loop()

        def tell(output: Output) -> None:
            loop.call_soon_threadsafe(self._queue.put_nowait, output)

        async def run() -> Result:
            return await self._run(tell)

        task = loop.create_task(run())
        task.add_done_callback(lambda _: self._queue.put_nowait(None))
        return task

    @property
    def result(self) -> Result:
        """The result of the step."""
        if self._task is None or not self._task.done():
            raise RuntimeError("the step has not ended yet: read its output to the end first")
        return self._task.result()

    async def aclose(self) -> None:
        """Interrupt the step if it still runs, and wait for its end."""
        if self._task is not None and not self._task.done():
            self._stop()
            await asyncio.wait([self._task])
