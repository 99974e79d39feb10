"""The common part of sandboxes, their pools and managers: how they are made, used and closed."""

import asyncio
import contextlib
import os
import re
import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ... import AuditLog, Policy
from ..._keywords import checked, twin
from ..._rules import rules_for_model
from ..._threads import Closing, in_thread
from ...results import Result
from ...sessions.arguments import StepRequest, Tools, input_of, listed
from ...sessions.server_tools import held
from ..limits import Limits
from ..secrets import Secret
from ..wire import Command, Job
from . import copies
from .files import DiskUse
from .watcher import Steps, begun, driven

if TYPE_CHECKING:
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


class RunRequest(StepRequest):
    """A step that is a program of its own, or a program that a sandbox runs: checked."""

    def __init__(
        self,
        code: str | os.PathLike[str],
        args: Sequence[str] = (),
        stdin: str | bytes = b"",
        *,
        value: bool = False,
        variables: Mapping[str, object] | None = None,
        tools: Tools | None = None,
        timeout: float | None = None,
        command: Command | None = None,
    ) -> None:
        #: The file that has the code.
        self.path: str | os.PathLike[str] | None = None
        if not isinstance(code, str):
            if not isinstance(code, os.PathLike):
                kind = type(code).__name__
                raise TypeError(f"code must be a str or the path of a file, not {kind}")
            self.path, code = code, ""
        elif command is None and re.fullmatch(r"[\w./\\~:-]+\.py", code):
            # As code it would be an attribute of what has the file's name.
            raise ValueError(
                f"code must be Python code, not the name of a file: write Path({code!r})"
            )
        words = listed("args", args)
        super().__init__(code, variables, tools, timeout, input_of(stdin))
        self.args = [str(word) for word in words]
        self.value = bool(value)
        self.command = command
        self.cancel = CancelToken()
        #: The event loop that waits for it, if one does.
        self.loop: asyncio.AbstractEventLoop | None = None


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
        """Run code in a new process, and wait for it. ``await`` may stand at its top level.

        Args:
            code: Python code, or the path of a file of code, up to 64 MB. A file where code may
                write must be a regular one; links there are not followed.
            args: The code's ``sys.argv[1:]``.
            stdin: What the code reads from its standard input.
            value: ``True`` asks for the value of the last expression, and for the figures and
                frames that the code shows (`Result.display`).
            variables: Values by name: data, arrays of numpy, frames of pandas and polars, images.
                The code gets copies.
            tools: Functions of the host by name, up to 1,000 calls. They run with the host's
                rights; arguments and results are copied.
            timeout: The seconds that it may take; ``limits.wall_seconds`` by default.

        Returns:
            The result, also if the code fails or a limit ends it.

        Raises:
            OSError: The file cannot be read.
            RuntimeError: The sandbox is closed, or is closed during the run.
            SandboxError: The process does not start, or ends by itself.
            TypeError: An argument has another type, or a variable cannot be copied.
            ValueError: An argument has a wrong value, or a link leads to the file.
        """
        request = RunRequest(
            code, args, stdin, value=value, variables=variables, tools=tools, timeout=timeout
        )
        with held(request.tools):
            return driven(self._run(request))

    @abstractmethod
    def _run(self, request: RunRequest) -> Steps[Result]: ...

    @twin("Sandbox.arun", run)
    async def arun(self, *args: Any, **given: Any) -> Result:
        """Run code as `run` does, without blocking the event loop or using its executor.

        Cancelling it ends the run. Tools and ``on_ask`` that are coroutine functions run in this
        event loop.
        """
        request = RunRequest(*args, **given)
        stack = contextlib.ExitStack()
        stack.enter_context(held(request.tools))
        try:
            return await self._arun(request)
        finally:
            if request.tools:
                await in_thread(stack.close)

    async def _arun(self, request: RunRequest) -> Result:
        request.loop = asyncio.get_running_loop()
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
    path: list[str]
    #: Names of modules that all of its processes import.
    preload: list[str]
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
    disk_use: DiskUse = field(default_factory=DiskUse)

    @property
    def directory(self) -> Path:
        return Path(self.base, "work")

    def seconds(self, request: RunRequest) -> float | None:
        """The seconds that a run may take."""
        return self.limits.wall_seconds if request.timeout is None else request.timeout

    def rules_for_model(self, seconds: float | None) -> str:
        return rules_for_model(
            self.policy,
            directory=str(self.directory),
            is_sandbox=True,
            seconds=seconds,
            memory=self.limits.memory,
        )

    def job(self, code: str, file: str, **more: Any) -> Job:
        """The code for a process of it, or a session's without code; see `Job`."""
        return Job(
            code,
            file,
            path=self.path,
            logs=self.log is not None,
            cpu_seconds=self.limits.cpu_seconds,
            disk=cast("int | None", self.limits.disk),
            **more,
        )
