"""A session: steps of code that share names, imports and a working directory.

The interface is the same in this process (`Policy.session`) and in a sandbox (`Sandbox.session`).
"""

import contextlib
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
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
from .pieces import InLoop, Stream, Tell
from .questions import Questions
from .record import MAGIC, Parts, SessionRecord, parts, read
from .server_tools import Server, servers_of
from .store import Place, fetched, put


class Session(Closing):
    """Steps of code that share names, imports and a working directory."""

    #: The name under which a store keeps its record.
    id: str

    _most_snapshots: int
    _questions: Questions
    #: The servers whose tools it has, until it is closed.
    _servers: list[Server]
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
            variables: Values for names of the step, and of those after it: data, dates, decimals,
                paths, arrays of numpy, frames of pandas and polars, images. They are copied.
            tools: Functions of the host, by name or in a list, for this step and those after it,
                besides those of the session. They run with the host's rights, and get what their
                annotations name, made of what the code passes by value.
            timeout: The seconds that it may take; the session's own limit by default.
            stdin: What it reads from ``sys.stdin`` and by ``input()``.
            on_output: A function that gets the output as it comes, by lines, in this thread. If it
                raises an exception, the step is interrupted, and `run` raises it.

        Returns:
            The result: also of a step that fails, or that a limit or `interrupt` ended.

        Raises:
            RuntimeError: The session is closed, or runs a step already.
            SandboxError: Its process has ended; `reset` starts another.
            TypeError: An argument has another type, a variable cannot be passed by value, or
                nobody can tell how data become what an annotation of a tool names.
            ValueError: An argument has a wrong value: no identifier, a negative `timeout`.

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
        """Run a step as `run` does, without stopping the event loop. Cancelling it interrupts it.

        Tools that are coroutine functions, and ``on_output``, run in this event loop.
        """
        heard = InLoop(self.interrupt, listener(on_output))
        ran = await self._arun(StepRequest(code, **given), heard.tell)
        await heard.end()
        return self._with_losses(ran)

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
        """Run a step as `arun` does, and have its output as it comes.

        Examples:
            >>> async def show(session):
            ...     stream = session.stream("print(1)")
            ...     async for output in stream:
            ...         print(output.name, output.text)
            ...     return stream.result
        """
        request = StepRequest(code, variables, tools, timeout, stdin)

        async def run(tell: Tell, stopped: threading.Event) -> Result:
            return self._with_losses(await self._arun(request, tell, stopped))

        return Stream(run, self.interrupt)

    @property
    def pending(self) -> list[Pending]:
        """The questions that wait for an answer: those for which ``on_ask`` said ``"pending"``."""
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
        """Answer a question that waits, and run its step again, from its beginning.

        The operation that was asked about is answered so, once; ``on_ask`` is asked about others.
        The step begins with the names that there are now: as it ended, those from before it.

        Args:
            pending: The question's ``id``.
            answer: One of its ``answers``.
            tools: As for `run`: a step that was given tools needs them again.
            timeout: As for `run`.

        Returns:
            The result of the step. It may wait for another answer.

        Raises:
            RuntimeError: As for `run`; the question waits on where the step does not begin.
            TypeError: An argument has another type.
            ValueError: No question waits by this id: it was answered already, has expired, or is
                another session's; or it cannot have this answer.

        Examples:
            >>> ran = policy.session(on_ask=lambda denied: "pending").run(code)
            >>> if ran.pending is not None:
            ...     ran = session.answer(ran.pending.id, "once")
        """
        with self._answered(pending, answer, tools=tools, timeout=timeout) as request:
            return self._with_losses(self._run(request))

    @twin("Session.answer", answer)
    async def aanswer(self, pending: str, answer: Answer, **given: Any) -> Result:
        """Do the same as `answer` without stopping the event loop."""
        with self._answered(pending, answer, **given) as request:
            return self._with_losses(await self._arun(request))

    def allow(self, denied: AuditDenied, answer: Answer = "guard") -> None:
        """Answer an operation that was denied, for when it is tried again: ``on_ask`` is not asked.

        Args:
            denied: The denial, of ``Result.violations``.
            answer: One of ``denied.answers``; ``"guard"`` and ``"pattern"`` hold while the session
                lasts, ``"once"`` for one more time.

        Raises:
            RuntimeError: The session was made without an ``on_ask``.
            TypeError: An argument has another type.
            ValueError: It cannot have this answer.

        Examples:
            >>> session = policy.session(on_ask=lambda denied: "deny")
            >>> for denied in session.run(code).violations:
            ...     session.allow(denied, "pattern")
            >>> ran = session.run(code)
        """
        if not self._asks:
            raise RuntimeError('allow needs a session with on_ask, such as lambda denied: "deny"')
        self._questions.stand(denied, answer)

    def adopt(self, pending: Pending) -> None:
        """Have a question wait here that waited in a session that is no more.

        What it says counts as the host's word: take it from a place that no guest can write to.

        Raises:
            TypeError: It is no `Pending`.
            ValueError: It had its answer here.
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
        """What steps may do, as a short text for a model: the policy, limits, the directory.

        It belongs into the description of the tool that runs code.

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
        """The value of a name, by value, as variables are passed.

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

        Examples:
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
        of the statements that made them. Files, threads, instances of such classes and the like
        are lost, as are the working directory and tools.

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
        self._check_apart(to)
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
        """End it. It runs nothing any more.

        A step that runs is interrupted: its `Result.killed_by` is ``"interrupt"``.
        """

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
