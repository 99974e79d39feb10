"""A session: steps of code that share names, imports and a working directory.

The interface is the same in this process (`Policy.session`) and in a sandbox (`Sandbox.session`).
"""

import contextlib
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from .. import AuditDenied
from .._answers import Answer
from .._keywords import checked, twin
from .._threads import Closing
from ..pending import Pending
from ..results import Restart, Result
from .arguments import (
    GivenTools,
    OnOutput,
    StepRequest,
    Tools,
    Variables,
    listener,
)
from .pieces import InLoop, Stream, Streams, Tell, end_of_left
from .questions import Questions
from .record import MAGIC, Parts, SessionRecord, parts, read
from .server_tools import Server, servers_of
from .store import Place, fetched, put


class Session(Closing):
    """Steps of code that share names, imports and a working directory.

    `Policy.session` makes one in this process, `Sandbox.session` in a sandbox.
    """

    #: The name under which a store keeps its record.
    id: str

    _most_snapshots: int
    _questions: Questions
    #: The servers whose tools it has, until it is closed.
    _servers: list[Server]
    _streams: Streams
    #: True if it has an ``on_ask``.
    _asks: bool
    #: Why the next step has not the names of the last one, and what is lost, to be told with it.
    _restarted: tuple[Restart, dict[str, str]] | None = None

    @checked("Session.run")
    def run(
        self,
        code: str,
        *,
        variables: Variables = None,
        tools: GivenTools = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
        on_output: OnOutput = None,
    ) -> Result:
        r"""Run a step, and wait for its end.

        Args:
            code: Python code; ``await`` may stand at its top level.
            variables: Values by name, for this step and later ones: data, dates, decimals, paths,
                arrays of numpy, frames of pandas and polars, images. The code gets copies.
            tools: Functions of the host, by name or in a list, for this step and later ones,
                besides those of the session. They run with the host's rights. Arguments and results
                are copied; the annotation of a parameter says what the function gets.
            timeout: The seconds that the step may take; by default the session's.
            stdin: What the code reads by ``input()`` and from ``sys.stdin``.
            on_output: A function that gets each line of output, as an `Output`, in this thread. If
                it raises, the step is interrupted, and `run` raises the same.

        Returns:
            The result, also if the step fails, or a limit or `interrupt` ends it.

        Raises:
            RuntimeError: The session is closed, or runs a step already.
            SandboxError: Its process has ended; `reset` starts another.
            TypeError: An argument has another type, a variable cannot be copied, or a tool has an
                annotation that no data can become.
            ValueError: An argument has a wrong value, such as a name that is not an identifier.

        Examples:
            >>> from fastaudit_rs import Policy
            >>> with Policy().session() as session:
            ...     ran = session.run("print('a', 'b')", on_output=lambda output: print(output))
            Output(name='stdout', text='a b\n')
        """
        request = StepRequest(code, variables, tools, timeout, stdin)
        return self._with_losses(self._run(request, listener(on_output)))

    @abstractmethod
    def _run(self, request: StepRequest, on_output: Tell | None = None) -> Result: ...

    @twin("Session.run", run)
    async def arun(self, code: str, *, on_output: Tell | None = None, **given: Any) -> Result:
        """Run a step as `run` does, without blocking the event loop. Cancelling it interrupts it.

        Tools that are coroutine functions, and ``on_output``, run in this event loop.
        """
        heard = InLoop(self.interrupt, listener(on_output))
        ran = await self._async_step(StepRequest(code, **given), heard.tell)
        await heard.end()
        return ran

    async def _async_step(
        self,
        request: StepRequest,
        tell: Tell | None = None,
        stopped: threading.Event | None = None,
    ) -> Result:
        await end_of_left(self._streams)
        if stopped is not None and stopped.is_set():
            raise RuntimeError("the stream was closed before its step began")
        return self._with_losses(await self._arun(request, tell, stopped))

    @abstractmethod
    async def _arun(
        self,
        request: StepRequest,
        on_output: Tell | None = None,
        stopped: threading.Event | None = None,
    ) -> Result:
        """Run a step; `stopped` interrupts it also where it has not begun."""

    @checked("Session.run")
    def stream(
        self,
        code: str,
        *,
        variables: Variables = None,
        tools: GivenTools = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
    ) -> Stream:
        """Run a step as `arun` does, and iterate over its output as it comes.

        Examples:
            >>> async def show(session):
            ...     stream = session.stream("print(1)")
            ...     async for output in stream:
            ...         print(output.name, output.text)
            ...     return stream.result
        """
        request = StepRequest(code, variables, tools, timeout, stdin)

        return Stream(partial(self._async_step, request), self.interrupt, self._streams)

    @property
    def pending(self) -> list[Pending]:
        """The questions that wait for `answer`, because ``on_ask`` answered ``"pending"``."""
        return self._questions.waiting()

    @checked("Session.answer")
    def answer(
        self,
        pending: str,
        answer: Answer,
        *,
        tools: Tools | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Answer a question that waits, and run its step again from its beginning.

        The answer counts once, for the operation that the question names; ``on_ask`` is asked about
        others. The step begins with the present names.

        Args:
            pending: The ``id`` of the question.
            answer: One of its ``answers``.
            tools: As for `run`: a step that had tools of its own needs them again.
            timeout: As for `run`.

        Returns:
            The result of the step, which may wait for another answer.

        Raises:
            RuntimeError: As for `run`; then the question still waits.
            TypeError: An argument has another type.
            ValueError: No question of this session has the id, it was answered already or has
                expired; or it cannot have this answer.

        Examples:
            >>> from fastaudit_rs import Policy
            >>> with Policy().session(on_ask=lambda denied: "pending") as session:
            ...     ran = session.run("import os; os.putenv('A', 'b'); 42")
            ...     if ran.pending is not None:
            ...         ran = session.answer(ran.pending.id, "once")
            ...     ran.value
            42
        """
        with self._answered(pending, answer, tools=tools, timeout=timeout) as request:
            return self._with_losses(self._run(request))

    @twin("Session.answer", answer)
    async def aanswer(self, pending: str, answer: Answer, **given: Any) -> Result:
        """Answer as `answer` does, without blocking the event loop."""
        with self._answered(pending, answer, **given) as request:
            return await self._async_step(request)

    def allow(self, denied: AuditDenied, answer: Answer = "guard") -> None:
        """Answer in advance an operation that was denied; ``on_ask`` is not asked about it then.

        Args:
            denied: A denial of ``Result.violations``.
            answer: One of ``denied.answers``: ``"guard"`` and ``"pattern"`` hold while the session
                lasts, ``"once"`` for one time.

        Raises:
            RuntimeError: The session was made without an ``on_ask``.
            TypeError: An argument has another type.
            ValueError: The denial cannot have this answer.

        Examples:
            >>> from fastaudit_rs import Policy
            >>> with Policy().session(on_ask=lambda denied: "deny") as session:
            ...     for denied in session.run("import os; os.putenv('A', 'b')").violations:
            ...         session.allow(denied, "guard")
            ...     session.run("os.putenv('A', 'b')").success
            True
        """
        if not self._asks:
            raise RuntimeError('allow needs a session with on_ask, such as lambda denied: "deny"')
        self._questions.stand(denied, answer)

    def adopt(self, pending: Pending) -> None:
        """Take over a question of a session that is gone, so that `answer` finds it here.

        Store questions where no guarded code can write: the session trusts what they say.

        Raises:
            TypeError: It is not a `Pending`.
            ValueError: This session answered it already.
        """
        self._questions.adopt(pending)

    @contextlib.contextmanager
    def _answered(self, pending: str, answer: Answer, **given: Any) -> Iterator[StepRequest]:
        """The step of a question that has its answer; it waits on if the step does not begin."""
        request = StepRequest("", **given)
        taken = self._questions.take(pending, answer)
        request.code, request.variables = taken.code, taken.variables
        request.stdin, request.granted = taken.stdin, taken.granted
        try:
            yield request
        finally:
            if not request.has_begun:
                self._questions.put_back(taken)

    def _hold(self, tools: Mapping[str, Callable[..., Any]]) -> None:
        """Keep the servers that some of the tools have, until `_release`."""
        for server in servers_of(tools):
            if server not in self._servers:
                server.hold()
                self._servers.append(server)

    def _release(self) -> None:
        while self._servers:
            self._servers.pop().release()

    @property
    @abstractmethod
    def timeout(self) -> float | None:
        """The seconds that a step may take unless its `run` says another number."""

    @abstractmethod
    def rules_for_model(self) -> str:
        """Tell a model what steps may do: the policy, limits and the directory, in a short text.

        Put it into the description of the tool that runs code.

        Examples:
            >>> from fastaudit_rs import Policy
            >>> session = Policy(write=["out"], network=False).session(timeout=60)
            >>> print(session.rules_for_model().partition("- Write")[2])
             files in: out
            - Read files in: any directory
            - Network: none
            - Start programs: none
            - Limits: 60 seconds a call
            Everything else raises PermissionError, each time it is tried: do it another way,
            or tell the user the setting that the error names.
        """

    @abstractmethod
    def _read_file(self, name: str, max_bytes: int) -> bytes:
        """Read a file that a step has changed, as `Sandbox.read_file` does."""

    def _with_losses(self, ran: Result) -> Result:
        """The result of a step, which tells what was lost before it."""
        if self._restarted is None:
            return ran
        restarted, lost = self._restarted
        self._restarted = None
        return replace(ran, restarted=restarted, lost=lost)

    @abstractmethod
    def interrupt(self) -> bool:
        """End the step that runs, by a ``KeyboardInterrupt`` in it, from another thread or a tool.

        A tool that runs ends first.

        Returns:
            True if a step runs; its `Result.killed_by` is ``"interrupt"``.
        """

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The names that steps have given values, in order, without tools."""

    @abstractmethod
    def get(self, name: str) -> Any:
        """Return a copy of the value of a name.

        Raises:
            KeyError: There is no such name.
            RuntimeError: The session is closed, or runs a step.
            TypeError: The value cannot be copied: it is not data, an array, a frame or an image.
        """

    @abstractmethod
    def reset(self) -> None:
        """Forget all names and the session's own modules, go back to its first directory.

        It closes the snapshots.
        """

    @abstractmethod
    def undo(self) -> None:
        """Go back to the state before the last step, except for files.

        A sandbox's session goes back one step more each time, up to ``undo_depth``.

        Raises:
            RuntimeError: The session keeps no such state, is closed, or runs a step.
            SandboxError: Its process has ended, and the states with it; `reset` starts another.
        """

    @abstractmethod
    def snapshot(self) -> "Snapshot":
        """Keep the present state, except for files, for `restore`.

        Examples:
            >>> def tried(session, codes):
            ...     before = session.snapshot()
            ...     for code in codes:
            ...         if session.run(code).success:
            ...             return code
            ...         session.restore(before)

        Raises:
            RuntimeError: The session keeps as many as it may, is closed, or runs a step.
            SandboxError: Its process has ended, or cannot be copied.
        """

    @abstractmethod
    def restore(self, snapshot: "Snapshot") -> None:
        """Go back to the state of a snapshot, any number of times. `undo` goes no further back.

        It works even if a step has ended the session's process.

        Raises:
            RuntimeError: The snapshot or the session is closed, or the session runs a step.
            SandboxError: The process of the snapshot has ended.
            TypeError: The argument is not a snapshot.
            ValueError: It is a snapshot of another session.
        """

    @abstractmethod
    def _drop(self, number: int) -> None:
        """Let go of a snapshot."""

    def save(self, to: Place) -> SessionRecord:
        """Write a record of the names, which another session can `load`, also in another process.

        It has data, arrays and frames by value, and imports, functions and classes by the source
        of the statements that made them. Files, threads, instances of such classes, the working
        directory and tools are lost.

        Args:
            to: The path of a file; or a store, a mutable mapping from ids to bytes such as
                `DirectoryStore`, for the record under the id of the session.

        Returns:
            The names that it keeps, and those that are lost, with the reasons.

        Raises:
            OSError: The file cannot be written.
            RuntimeError: The session is closed, or runs a step.
            SandboxError: Its process has ended.
            TypeError: ``to`` is something else, or the session has too many names.
        """
        self._check_apart(to)
        body = self._saved()
        found = parts(body)
        put(to, self.id, MAGIC + body)
        return found.told({})

    def load(self, source: Place) -> SessionRecord:
        """Forget all names, as `reset` does, and restore those of a record.

        The statements in the record run like the code of steps, under the same policy and limits.
        Tools stay. The next result, and its `Result.for_model`, tell what is lost.

        Args:
            source: The path of a file; or a store, for the record under the id of the session.

        Returns:
            The restored names, and those that are lost, with the reasons.

        Raises:
            KeyError: The store has no record under the id.
            OSError: The file cannot be read.
            RuntimeError: The session is closed, or runs a step.
            SandboxError: Its process does not start, or ends.
            TypeError: ``source`` is something else.
            ValueError: It is not a record of a session.
        """
        self._check_apart(source)
        return self._load(read(*fetched(source, self.id)))

    @abstractmethod
    def _check_apart(self, place: Place) -> None:
        """Warn if code of the session can write where its record is."""

    def _load(self, found: Parts) -> SessionRecord:
        self.reset()
        self._restarted = "anew", {}
        told = found.told(self._loaded(found.packed()))
        self._restarted = "restored", told.lost
        return told

    @abstractmethod
    def _saved(self) -> bytes:
        """The body of a record; the side that runs the code makes it."""

    @abstractmethod
    def _loaded(self, body: bytes) -> dict[str, str]:
        """Give names what a record has; return what is lost."""

    def _has_ended(self) -> bool:
        """True if its process has ended: it goes on after `undo`, `load` or `reset`."""
        return False

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
        """End the session, and interrupt the step that runs."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            message = f"'Session' object has no attribute {name!r}"
            if name in ("commands", "commit", "diff", "discard", "files"):
                message += ": a session of Sandbox.session() has it"
            raise AttributeError(message, name=name, obj=self)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a session cannot be pickled or copied: save(to) keeps what load() needs")


class Snapshot:
    """A state of a session: `Session.snapshot` makes it, `Session.restore` goes back to it.

    In this process it has the names and the working directory. In a sandbox it is a copy of the
    session's process.
    """

    __slots__ = ("_number", "_session", "_step")

    def __init__(self, session: "Session", number: int, step: int) -> None:
        self._session = session
        self._number = number
        self._step = step

    @property
    def step(self) -> int:
        """How many steps the session had run."""
        return self._step

    def close(self) -> None:
        """Forget the state: the session cannot go back to it any more.

        Raises:
            RuntimeError: The session runs a step.
        """
        self._session._drop(self._number)

    def __repr__(self) -> str:
        return f"<Snapshot after {self._step} steps>"
