"""The common part of sandboxes, their pools and managers: how they are made, used and closed."""

import contextlib
import math
import os
import re
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ... import AuditLog, Policy
from ..._keywords import checked
from ..._threads import Closing
from ...results import Result
from ...sessions.arguments import Tools, input_of, seconds, tools_of, variables_of
from ..limits import Limits
from ..secrets import Secret
from ..wire import Command, Job
from . import copies
from .watcher import Steps, begun, driven

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future


# Cancelling runs from other threads: by a cancelled `arun`, and by closing.

#: The time for the runs that are cancelled to leave, in seconds.
PATIENCE = 2.0


class CancelToken:
    """Cancels one run, from any thread. The thread that watches the run looks for it."""

    def __init__(self) -> None:
        #: The reason, as its error says it; empty as long as it may go on.
        self.why = ""

    def cancel(self, why: str) -> None:
        """Cancel the run: at once if it has begun, before its first line if not."""
        self.why = self.why or why

    def check(self) -> None:
        if self.why:
            raise RuntimeError(self.why)


#: The bytes that the variables of a run or a step may have, and the input of a step.
GIVEN = 64 << 20


def check_size(argument: str, data: bytes) -> None:
    if len(data) > GIVEN:
        size = len(data) >> 20
        raise ValueError(f"{argument} must have at most {GIVEN >> 20} MB, not {size} MB")


class InFlight:
    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._closed = False
        self.begin_anew()
        copies.note(self)

    def begin_anew(self) -> None:
        self._changed = threading.Condition()
        self._tokens: list[CancelToken] = []

    @contextlib.contextmanager
    def running(self, cancel: CancelToken) -> Iterator[None]:
        with self._changed:
            if self._closed:
                raise RuntimeError(f"{self._owner} is closed")
            self._tokens.append(cancel)
        try:
            yield
        except Exception:
            # Its process was taken away from it.
            cancel.check()
            raise
        finally:
            with self._changed:
                self._tokens.remove(cancel)
                self._changed.notify_all()
        cancel.check()

    def close(self) -> None:
        """Cancel all runs, let no more begin, and give them some time to leave."""
        with self._changed:
            self._closed = True
            for cancel in self._tokens:
                cancel.cancel(f"{self._owner} was closed meanwhile")
            # A signal handler may close what its own thread runs: that cannot leave meanwhile.
            self._changed.wait_for(lambda: not self._tokens, PATIENCE)


@dataclass(frozen=True)
class RunRequest:
    code: str | os.PathLike[str]
    args: Sequence[str]
    stdin: str | bytes
    value: bool
    cancel: CancelToken
    loop: "asyncio.AbstractEventLoop | None" = None
    timeout: float | None = None
    variables: bytes = b""
    tools: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    #: A program to run in the place of the code.
    command: Command | None = None

    def __post_init__(self) -> None:
        code, args, stdin = self.code, self.args, self.stdin
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
        input_of(stdin)
        check_size("variables", self.variables)

    def limit(self, limits: Limits) -> float:
        """The seconds that it may take."""
        usual = limits.wall_seconds if self.timeout is None else self.timeout
        return math.inf if usual is None else usual

    @property
    def given(self) -> bytes:
        return input_of(self.stdin)


class Runner(Closing):
    @checked("Sandbox.run")
    def run(
        self,
        code: str | os.PathLike[str],
        args: Sequence[str] = (),
        stdin: str | bytes = b"",
        *,
        value: bool = False,
        variables: Mapping[str, object] | None = None,
        tools: Tools | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run code, and wait for it. ``await`` may stand at its top level.

        Args:
            code: Python code, or the path of a file of it.
            args: Its arguments, in ``sys.argv``.
            stdin: What it reads from its standard input.
            value: True if the value of the last expression is wanted, and what the code shows:
                figures and frames (`Result.display`).
            variables: Values for its names: data, arrays of numpy and frames of pandas. They are
                copied.
            tools: Functions of the host for its names, up to 1,000 calls. They run with the host's
                rights; arguments and results are data, and copied.
            timeout: The seconds that it may take; ``limits.wall_seconds`` by default.

        Returns:
            The result; also where a limit ended the run.

        Raises:
            OSError: The file cannot be read.
            RuntimeError: It is closed, or was closed meanwhile, which ends the run.
            SandboxError: A process that is to run it does not start, or ends by itself.
            TypeError: An argument has another type, or a variable is no data.
            ValueError: An argument has a wrong value.
        """
        more = variables_of(variables), tools_of(tools)
        limit = seconds("timeout", timeout)
        request = RunRequest(code, args, stdin, value, CancelToken(), None, limit, *more)
        return driven(self._run(request))

    @abstractmethod
    def _run(self, request: RunRequest) -> Steps[Result]:
        """Run code in the place that it has."""

    @checked("Sandbox.arun")
    async def arun(
        self,
        code: str | os.PathLike[str],
        args: Sequence[str] = (),
        stdin: str | bytes = b"",
        *,
        value: bool = False,
        variables: Mapping[str, object] | None = None,
        tools: Tools | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run code as `run` does, without stopping the event loop; its executor is left to others.

        Cancelling it ends the run. An ``on_ask`` and tools that are coroutine functions run in this
        event loop.
        """
        import asyncio

        more = variables_of(variables), tools_of(tools)
        limit, loop = seconds("timeout", timeout), asyncio.get_running_loop()
        return await self._arun(
            RunRequest(code, args, stdin, value, CancelToken(), loop, limit, *more)
        )

    async def _arun(self, request: RunRequest) -> Result:
        import asyncio

        try:
            return await asyncio.wrap_future(self._begun(request))
        finally:
            request.cancel.cancel("the run was cancelled")

    def _begun(self, request: RunRequest) -> "Future[Result]":
        return begun(self._run(request))


# The configuration of a sandbox: checked as the sandbox is made, and handed on whole.


@dataclass(frozen=True)
class SandboxConfig:
    """What a sandbox was made with.

    Tools of the host are no part of it: they may lead to the sandbox, whose end needs this.
    """

    policy: Policy
    limits: Limits
    env: Mapping[str, str]
    path: Sequence[str]
    #: The directory that counts as its disk.
    base: str
    #: The package `sandlock`, if the kernel holds the policy.
    kernel: Any
    in_container: bool
    asks: bool
    #: The most that answers of the host may open, besides the policy.
    approvable: Policy | None
    secrets: Sequence[Secret]
    log: AuditLog | None

    @property
    def directory(self) -> Path:
        return Path(self.base, "work")

    def job(self, code: str, file: str, args: Sequence[str] = (), **more: Any) -> Job:
        """The code for a process of it, or a session's without code; see `Job`."""
        return Job(
            code,
            file,
            [str(arg) for arg in args],
            [*self.path],
            logs=self.log is not None,
            cpu_seconds=self.limits.cpu_seconds,
            disk=cast("int | None", self.limits.disk),
            **more,
        )
