"""What sandboxes, their pools and their managers have in common: how they are used and closed."""

import os
from collections.abc import Sequence
from types import TracebackType
from typing import TypeVar

from .sandbox_run import Result

_Self = TypeVar("_Self", bound="Closing")


class Closing:
    """What is closed at the end of a ``with`` statement."""

    def __enter__(self: _Self) -> _Self:
        """Use it."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """End what it has. It runs nothing any more."""
        raise NotImplementedError


class Runner(Closing):
    """What runs code, and waits for it."""

    def run(
        self,
        code: str | os.PathLike[str],
        args: Sequence[str] = (),
        input: str | bytes = b"",
        *,
        value: bool = False,
    ) -> Result:
        """Run code, and wait for it.

        Args:
            code: Python code, or the path of a file of it.
            args: Its arguments, in ``sys.argv``.
            input: What it reads from standard input.
            value: Whether the value of the last expression is wanted.

        Returns:
            What became of it; also where a limit ended it.

        Raises:
            OSError: The file cannot be read.
            RuntimeError: It is closed.
            SandboxError: A process that is to run it does not start, or ends by itself.
        """
        return self._run(code, args, input, value)

    def _run(
        self,
        code: str | os.PathLike[str],
        args: Sequence[str],
        input: str | bytes,
        value: bool,
    ) -> Result:
        raise NotImplementedError

    async def arun(
        self,
        code: str | os.PathLike[str],
        args: Sequence[str] = (),
        input: str | bytes = b"",
        *,
        value: bool = False,
    ) -> Result:
        """Run code as `run` does, in a thread of the event loop's executor."""
        import asyncio

        return await asyncio.to_thread(self.run, code, args, input, value=value)
