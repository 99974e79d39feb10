"""The common part of sandboxes, their pools and their managers: how they are used and closed."""

import os
import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..._keywords import checked
from ...results import Result
from ...sessions.base import Closing
from .cancel import CancelToken

if TYPE_CHECKING:
    import asyncio


@dataclass(frozen=True)
class RunRequest:
    code: str | os.PathLike[str]
    args: Sequence[str]
    input: str | bytes
    value: bool
    cancel: CancelToken
    loop: "asyncio.AbstractEventLoop | None" = None

    def __post_init__(self) -> None:
        code, args, given = self.code, self.args, self.input
        if isinstance(code, str):
            # As code it would be an attribute of what has the file's name.
            if re.fullmatch(r"[\w./\\~:-]+\.py", code):
                raise ValueError(
                    f"code must be Python code, not the name of a file: write Path({code!r})"
                )
        elif not isinstance(code, os.PathLike):
            raise TypeError(f"code must be a str or the path of a file, not {type(code).__name__}")
        if isinstance(args, (str, bytes)):
            raise TypeError(f"args must be a list, not {type(args).__name__}: write [{args!r}]")
        if not isinstance(given, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"input must be str or bytes, not {type(given).__name__}")


class Runner(Closing):
    @checked("Sandbox.run")
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
            input: Its standard input.
            value: True if the value of the last expression is wanted.

        Returns:
            The result; also where a limit ended the run.

        Raises:
            OSError: The file cannot be read.
            RuntimeError: It is closed, or was closed meanwhile, which ends the run.
            SandboxError: A process that is to run it does not start, or ends by itself.
        """
        return self._run(RunRequest(code, args, input, value, CancelToken()))

    @abstractmethod
    def _run(self, request: RunRequest) -> Result:
        """Run code in the place that it has."""

    @checked("Sandbox.arun")
    async def arun(
        self,
        code: str | os.PathLike[str],
        args: Sequence[str] = (),
        input: str | bytes = b"",
        *,
        value: bool = False,
    ) -> Result:
        """Run code as `run` does, in a thread of the event loop's executor.

        Cancelling it ends the run. An ``on_ask`` that is a coroutine function runs in this event
        loop.
        """
        import asyncio

        cancel = CancelToken()
        request = RunRequest(code, args, input, value, cancel, asyncio.get_running_loop())
        try:
            return await asyncio.to_thread(self._run, request)
        finally:
            cancel.cancel("the run was cancelled")
