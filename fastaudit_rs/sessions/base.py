"""A session: steps of code that share names, imports and a working directory.

The interface is the same in this process (`Policy.session`) and in a sandbox (`Sandbox.session`).
"""

import asyncio
import codecs
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar

from .._keywords import checked
from ..results import Restart, Result
from .arguments import seconds, text_of, tools_of, variables_of
from .record import MAGIC, Parts, SessionRecord, parts, read
from .store import Place, fetched, put

_Self = TypeVar("_Self", bound="Closing")

#: The snapshots that a session keeps, unless it is told another number.
SNAPSHOTS = 8

#: The errors of a session that cannot run a step here or now, and of a snapshot that is no more.
FOREIGN = "the session is one of another process: make one in this process"
BUSY = (
    "the session runs a step already: wait for its end, or call interrupt(); a SessionManager "
    "queues steps"
)
CLOSED = "the snapshot is closed: by its close(), or by reset() of the session"

#: Tools: functions of the host that a step may call, by the names that it calls them by.
Tools = Mapping[str, Callable[..., Any]]


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

    name: Literal["stdout", "stderr"]
    text: str


class Pieces:
    """Tells the pieces of a step's output as text."""

    def __init__(self, tell: Callable[[Output], None]) -> None:
        self._tell = tell
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": make("replace"), "stderr": make("replace")}

    def add(self, name: Name, data: bytes, final: bool = False) -> None:
        text = self._decoders[name].decode(data, final)
        if text:
            self._tell(Output(name, text))

    def end(self) -> None:
        for name in NAMES:
            self.add(name, b"", final=True)


class StepRequest:
    """The arguments of `Session.run`, checked, with the variables packed."""

    def __init__(
        self,
        code: str,
        variables: Mapping[str, object] | None,
        tools: Tools | None,
        timeout: float | None,
    ) -> None:
        self.code = text_of(code)
        self.variables = variables_of(variables)
        self.tools = tools_of(tools)
        self.timeout = seconds("timeout", timeout)


class Closing(ABC):
    """Closes at the end of a ``with`` statement."""

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End its processes. It runs nothing any more."""


class Session(Closing):
    """Steps of code that share names, imports and a working directory."""

    #: The name under which a store keeps its record.
    id: str

    _most_snapshots: int
    #: Why the next step has not the names of the last one, and what is lost, to be told with it.
    _restarted: tuple[Restart, dict[str, str]] | None = None

    @checked("Session.run")
    def run(
        self,
        code: str,
        *,
        variables: Mapping[str, object] | None = None,
        tools: Tools | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run a step, and wait for its end.

        Args:
            code: Python code; ``await`` may stand at its top level.
            variables: Values for names of the step, and of those after it: data, arrays of numpy
                and frames of pandas. They are copied.
            tools: Functions of the host for names of this step and of those after it, besides
                those of the session. They run with the host's rights; arguments and results are
                data, and copied.
            timeout: The seconds that it may take; the session's own limit by default.

        Returns:
            The result: also of a step that fails, or that a limit or `interrupt` ended.

        Raises:
            RuntimeError: The session is closed, or runs a step already.
            SandboxError: Its process has ended; `reset` starts another.
            TypeError: An argument has another type, or a variable is no data.
            ValueError: An argument has a wrong value: no identifier, a negative `timeout`.
        """
        return self._with_losses(self._run(StepRequest(code, variables, tools, timeout)))

    @abstractmethod
    def _run(self, request: StepRequest) -> Result: ...

    @checked("Session.run")
    async def arun(
        self,
        code: str,
        *,
        variables: Mapping[str, object] | None = None,
        tools: Tools | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run a step as `run` does, without stopping the event loop. Cancelling it interrupts it.

        Tools that are coroutine functions run in this event loop.
        """
        return self._with_losses(await self._arun(StepRequest(code, variables, tools, timeout)))

    @abstractmethod
    async def _arun(
        self,
        request: StepRequest,
        on_output: Callable[[Output], None] | None = None,
        stopped: threading.Event | None = None,
    ) -> Result:
        """Run a step; `stopped` is set where it is to be interrupted before it has begun too."""

    @checked("Session.run")
    def stream(
        self,
        code: str,
        *,
        variables: Mapping[str, object] | None = None,
        tools: Tools | None = None,
        timeout: float | None = None,
    ) -> "Stream":
        """Run a step as `arun` does, and have its output as it comes.

        Example:
            >>> async def show(session):
            ...     stream = session.stream("print(1)")
            ...     async for output in stream:
            ...         print(output.name, output.text)
            ...     return stream.result
        """
        return Stream(self, StepRequest(code, variables, tools, timeout))

    def _with_losses(self, ran: Result) -> Result:
        """The result of a step, which tells what was lost before it."""
        if self._restarted is None:
            return ran
        restarted, lost = self._restarted
        self._restarted = None
        return replace(ran, restarted=restarted, lost=lost)

    @abstractmethod
    def interrupt(self) -> bool:
        """End the step that runs, by an exception in it: from another thread, or in a tool.

        A tool ends first; the step does nothing after a call of it.

        Returns:
            True if a step runs. `Result.killed_by` of it is ``"interrupt"``.
        """

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The names that steps have given values, in order, without those of the session."""

    @abstractmethod
    def get(self, name: str) -> Any:
        """The value of a name, by value: data, an array or a frame.

        Raises:
            KeyError: There is no such name.
            RuntimeError: The session is closed, or runs a step.
            TypeError: The value is nothing of that.
        """

    @abstractmethod
    def reset(self) -> None:
        """Begin anew: without names and modules of its own, in its first working directory.

        It closes the snapshots.
        """

    @abstractmethod
    def undo(self) -> None:
        """Go back to the state before the last step, but for files.

        A second time goes back one step more, as far as states are kept.

        Raises:
            RuntimeError: There is no such state, the session is closed, or runs a step.
            SandboxError: Its process has ended, and the states with it; `reset` starts another.
        """

    @abstractmethod
    def snapshot(self) -> "Snapshot":
        """Keep the state that there is now, but for files, to go back to it later.

        Example:
            >>> def tried(session, codes):
            ...     before = session.snapshot()
            ...     for code in codes:
            ...         if session.run(code).success:
            ...             return code
            ...         session.restore(before)

        Raises:
            RuntimeError: As many are kept as may be, the session is closed, or runs a step.
            SandboxError: Its process has ended, or cannot be copied.
        """

    @abstractmethod
    def restore(self, snapshot: "Snapshot") -> None:
        """Go back to a state that is kept, any number of times; `undo` goes no further back.

        It works also where a step has ended the session's process.

        Raises:
            RuntimeError: The snapshot is closed, the session is closed, or runs a step.
            SandboxError: The process of the snapshot has ended.
            TypeError: The argument is no snapshot.
            ValueError: It is one of another session.
        """

    @abstractmethod
    def _drop(self, number: int) -> None:
        """Let go of a snapshot."""

    def save(self, to: Place) -> SessionRecord:
        """Write a record of the names, which any session can `load`: after this process has ended.

        It has data, arrays and frames by value, and imports, functions and classes by the source
        of the statements that made them, as long as they hold what these made. Files, threads,
        instances of such classes and the like are lost, as are the working directory and tools.

        Args:
            to: The path of a file; or a store, a mutable mapping from ids to bytes such as
                `DirectoryStore`, which gets the record under the id of the session.

        Returns:
            The names that were kept, and those that are lost, with the reasons.

        Raises:
            OSError: The file cannot be written.
            RuntimeError: The session is closed, or runs a step.
            SandboxError: Its process has ended.
            TypeError: ``to`` is something else, or there are more names than a record has.
        """
        body = self._saved()
        found = parts(body)
        put(to, self.id, MAGIC + body)
        return found.told({})

    def load(self, source: Place) -> SessionRecord:
        """Begin anew, as `reset` does, with what a record has.

        Its statements run where the code of steps does, under the same policy and limits, and get
        nothing else. It replaces no tool. The next result, and `Result.for_model` of it, tell what
        is lost.

        Args:
            source: The path of a file; or a store, for its record under the id of the session.

        Returns:
            The names that there are again, and those that are lost, with the reasons.

        Raises:
            KeyError: The store has no such record.
            OSError: The file cannot be read.
            RuntimeError: The session is closed, or runs a step.
            SandboxError: Its process does not start, or ended meanwhile.
            TypeError: ``source`` is something else.
            ValueError: It is no record of a session.
        """
        return self._load(read(*fetched(source, self.id)))

    def _load(self, found: Parts) -> SessionRecord:
        self.reset()
        self._restarted = "anew", {}
        told = found.told(self._loaded(found.packed()))
        self._restarted = "restored", told.lost
        return told

    def _has_ended(self) -> bool:
        """True if its process has ended: it goes on after `undo`, `load` or `reset`."""
        return False

    @abstractmethod
    def _saved(self) -> bytes:
        """The body of a record; the side that runs the code makes it."""

    @abstractmethod
    def _loaded(self, body: bytes) -> dict[str, str]:
        """Give names what a record has; return what is lost."""

    def _number_of(self, snapshot: object) -> int:
        if not isinstance(snapshot, Snapshot):
            kind = type(snapshot).__name__
            raise TypeError(f"snapshot must be one that session.snapshot() made, not {kind}")
        if snapshot._session is not self:
            raise ValueError("snapshot must be one of this session: its snapshot() makes it")
        return snapshot._number

    def _check_room(self, count: int) -> None:
        if count >= self._most_snapshots:
            raise RuntimeError(
                f"the session keeps {self._most_snapshots} snapshots (snapshots=): close() one that"
                " is not needed"
            )

    @abstractmethod
    def close(self) -> None:
        """End it. It runs nothing any more.

        A step that runs is interrupted: its `Result.killed_by` is ``"interrupt"``.
        """

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a session cannot be pickled or copied: save(to) keeps what load() needs")

    async def __aenter__(self: _Self) -> _Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.close)


class Stream(AsyncIterator[Output]):
    """The output of a step as it comes; its result at the end.

    The step begins when the first of it is asked for.
    """

    def __init__(self, session: Session, request: StepRequest) -> None:
        self._session = session
        self._request = request
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

        session = self._session

        async def run() -> Result:
            return session._with_losses(await session._arun(self._request, tell, self._stopped))

        task = loop.create_task(run())
        task.add_done_callback(lambda _: self._queue.put_nowait(None))
        return task

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
            self._session.interrupt()
            await asyncio.wait([self._task])


class Snapshot:
    """A state of a session: `Session.snapshot` makes it, `Session.restore` goes back to it.

    In this process it has the names and the working directory; in a sandbox it is a copy of the
    session's process, which waits.
    """

    __slots__ = ("_number", "_session", "_step")

    def __init__(self, session: "Session", number: int, step: int) -> None:
        self._session = session
        self._number = number
        self._step = step

    @property
    def step(self) -> int:
        """The number of steps that the session had run."""
        return self._step

    def close(self) -> None:
        """Let go of it: the session cannot go back to it any more.

        Raises:
            RuntimeError: The session runs a step.
        """
        self._session._drop(self._number)

    def __repr__(self) -> str:
        return f"<Snapshot after {self._step} steps>"
