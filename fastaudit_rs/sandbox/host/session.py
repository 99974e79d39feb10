"""A session in a sandbox: steps in one process, which is watched during each."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ... import AuditDenied
from ..._rules import rules_for_model
from ..._waiting import is_loop_here
from ...results import Error, Result
from ...sessions.arguments import Tools, count, id_of, identifier, is_async, seconds, tools_of
from ...sessions.base import Session, Snapshot, StepRequest
from ...sessions.coroutines import HostLoop
from ...sessions.errors import BUSY, CLOSED, FOREIGN, ProcessEnded, SandboxError
from ...sessions.pieces import Output, Pieces
from ...sessions.questions import Questions, asking, asking_async, settled
from ...sessions.record import parts, reasons
from ...sessions.tool_values import Budget
from ...sessions.values import unpack
from ..limits import KILLED
from ..wire import encode
from . import copies
from .calls import Calls, told
from .commands import CommandRequest, SandboxCommands
from .decisions import Decisions
from .egress.asking import HostQuestions
from .exchange import Exchange, outcome
from .files import Files
from .guest_files import SandboxFiles
from .process import Worker
from .review import Change, Review
from .runner import CancelToken, InFlight, SandboxConfig, check_size
from .session_process import Process
from .watcher import Steps, begun, driven

#: The time for a step to leave when its session is closed, in seconds.
PATIENCE = 3.0

#: The message where all processes of a session have ended.
SNAPSHOT_LOST = "the snapshots have ended with the session's process: reset() begins anew"


class SandboxSession(Session):
    """Steps of code in one process of a sandbox; `Sandbox.session` makes it."""

    #: The number of snapshots, and that at the last `reset`.
    _made = _reset_at = 0
    #: True in a copy of the host.
    _is_foreign = False

    def __init__(
        self,
        config: SandboxConfig,
        start: Callable[[], Worker],
        files: Files,
        in_flight: InFlight,
        tools: Tools | None,
        timeout: float | None,
        undo_depth: int,
        snapshots: int,
        calls: int,
        on_ask: Callable[[AuditDenied], object] | None,
        pending_seconds: float | None,
        id: str | None,
        own_tools: dict[str, Callable[..., Any]],
    ) -> None:
        self.id = id_of(id)
        self._questions = questions = Questions(pending_seconds, self.id)
        if on_ask is not None:
            ask: Any = on_ask
            on_ask = (asking_async if is_async(ask) else asking)(questions, ask)
        self._on_ask = on_ask
        self._asks = on_ask is not None
        self._host_questions = None if on_ask is None else HostQuestions()
        self._config = config
        self._start = start
        self._job = config.job("", "<session>", session=True, asks=on_ask is not None)
        self._files = files
        self._in_flight = in_flight
        self._first_tools = {**tools_of(tools), **own_tools}
        self._tools = dict(self._first_tools)
        self._told = told(self._tools)
        usual = config.limits.wall_seconds
        self._seconds = usual if timeout is None else seconds("timeout", timeout)
        self._undo_depth = count("undo_depth", undo_depth)
        self._most_snapshots = count("snapshots", snapshots)
        self._budget = Budget(count("calls", calls, 1))
        self._busy = threading.Lock()
        #: The number of the last question, and that of the last step since the beginning.
        self._number = self._steps = 0
        self._closed = False
        self._loop = HostLoop()
        #: A function that gets each step: its code, no arguments, when it began, and its result.
        self._noted: Callable[[str, tuple[()], float, Result], object] | None = None
        self._exchange: Exchange | None = None
        self._cancel = CancelToken()
        self._decisions = None if config.log is None else Decisions(config.log)
        if self._decisions is not None:
            # It is the last to be closed: its end is that of all processes.
            weakref.finalize(self, self._decisions.close)
        #: The process, in a list that its end does not need this object for.
        self._held = [Process(start(), self._job, self._decisions)]
        self._review = Review(str(config.directory), files.names)
        self._finish = weakref.finalize(self, _finish, os.getpid(), self._held, self._loop)
        copies.note(self)

    def begin_anew(self) -> None:
        """Leave the process to the original: it speaks with one."""
        self._is_foreign = True
        self._busy = threading.Lock()
        self._exchange = None

    @property
    def is_closed(self) -> bool:
        """True once it runs nothing any more."""
        return self._closed

    @property
    def _process(self) -> Process:
        return self._held[0]

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self._steps} steps"
        return f"<session in a sandbox, {state}>"

    def _run(
        self, request: StepRequest, on_output: Callable[[Output], object] | None = None
    ) -> Result:
        return driven(self._step(request, self._loop, on_output, is_held_up=is_loop_here()))

    async def _arun(
        self,
        request: StepRequest,
        on_output: Callable[[Output], object] | None = None,
        stopped: threading.Event | None = None,
    ) -> Result:
        loop = asyncio.get_running_loop()
        cancelled = stopped or threading.Event()
        work = asyncio.wrap_future(begun(self._step(request, lambda: loop, on_output, cancelled)))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            cancelled.set()
            self.interrupt()
            # The step ends shortly: the session can be used when this returns.
            while not work.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([work])
            if not work.cancelled():
                work.exception()
            raise

    @property
    def timeout(self) -> float | None:
        return self._seconds

    def rules_for_model(self) -> str:
        config = self._config
        return rules_for_model(
            config.policy,
            directory=str(config.directory),
            is_sandbox=True,
            seconds=self._seconds,
            memory=config.limits.memory,
        )

    def _read_file(self, name: str, max_bytes: int) -> bytes:
        if self._closed:
            raise RuntimeError("the session is closed")
        return self._files.read(name, max_bytes)

    def interrupt(self) -> bool:
        """End the step that runs; see `Session.interrupt`. One that goes on is killed shortly."""
        exchange = self._exchange
        return exchange is not None and exchange.stop("interrupt")

    @property
    def names(self) -> list[str]:
        with self._free():
            answer, body = self._asked("names")
            found = _unpacked(body)
            if type(found) is not list:
                raise SandboxError(f"the session's process gave a malformed answer: {answer!r}")
            return [name for name in found if type(name) is str]

    def get(self, name: str) -> Any:
        identifier("name", name)
        with self._free():
            answer, body = self._asked("get", name=name)
        if answer.get("missing"):
            raise KeyError(name)
        if "failed" in answer:
            raise TypeError(str(answer["failed"]))
        return _unpacked(body)

    @property
    def files(self) -> SandboxFiles:
        """The files in the directory of its sandbox, as `Sandbox.files`."""
        return SandboxFiles(self._files, self._check_open)

    @property
    def commands(self) -> SandboxCommands:
        """Programs, run as its steps would start them."""

        def requested(given: CommandRequest) -> StepRequest:
            # The history has its words.
            request = StepRequest(given.text, None, None, given.timeout, given.stdin)
            request.command = given.command
            return request

        return SandboxCommands(
            lambda given: self._run(requested(given)), lambda given: self._arun(requested(given))
        )

    def diff(self) -> list[Change]:
        """The files that were added, changed and removed since the session began.

        Or since `commit`. Links, and all that is no regular file, are left out.

        Raises:
            OSError: A file cannot be read.
            RuntimeError: The session is closed, or runs a step.
        """
        with self._free():
            return self._review.changes()

    def commit(self, to: str | os.PathLike[str]) -> list[Change]:
        """Take over the changes: copy and remove files in a directory of the host.

        Links are not followed, and replaced by nothing. Each file is whole at any moment; all of
        them are there before the first one takes its place. Files are those of everybody to read,
        and to run if the sandbox's may be run.

        Args:
            to: The directory, which is made if it is not there.

        Returns:
            The changes, as `diff` tells them.

        Raises:
            OSError: A file cannot be read or written, or one has more than 100 MB.
            RuntimeError: The session is closed, or runs a step.
            ValueError: A link, or a directory that is one, is in the place of a file.
        """
        with self._free():
            return self._review.commit(os.fspath(to))

    def discard(self) -> list[Change]:
        """Put the files back to those of the beginning of the session, or of the last `commit`.

        Returns:
            The changes that are no more.

        Raises:
            OSError: A file cannot be written, or one that has changed was not kept, as 100 MB are.
                Nothing is put back then.
            RuntimeError: The session is closed, or runs a step.
        """
        with self._free():
            return self._review.discard()

    def _has_ended(self) -> bool:
        if self._closed or self._is_foreign or not self._busy.acquire(blocking=False):
            return False
        try:
            self._notice_end()
            return self._process.status is not None
        finally:
            self._busy.release()

    def _saved(self) -> bytes:
        with self._free():
            answer, body = self._asked("save")
        if "failed" in answer:
            raise TypeError(str(answer["failed"]))
        try:
            parts(body)
        except ValueError as error:
            raise SandboxError(f"the session's process gave a malformed record: {error}") from None
        return bytes(body)

    def _loaded(self, body: bytes) -> dict[str, str]:
        with self._free():
            _, told = self._asked("load", body, tools=self._told, given=[])
        try:
            return reasons(unpack(told, arrays=False))
        except ValueError as error:
            raise SandboxError(f"the session's process gave a malformed answer: {error}") from None

    def reset(self) -> None:
        with self._free():
            process = self._process
            process.drop_all()
            if process.is_lost or not process.keep_only_copies():
                process.worker.end()
                worker = self._start()
            else:
                worker = process.worker
            process.release()
            self._held[0] = Process(worker, self._job, self._decisions)
            self._tools = dict(self._first_tools)
            self._told = told(self._tools)
            self._host_questions = None if self._on_ask is None else HostQuestions()
            self._steps = 0
            self._reset_at = self._made

    def undo(self) -> None:
        """Go back to the state before the last step, but for files; see `Session.undo`.

        Threads that steps have started do not run there. It works also where the last step has
        ended the process.
        """
        with self._free():
            self._notice_end()
            lost = "the state from before is lost: reset() begins anew"
            if not self._process.copies:
                if self._process.is_lost and self._undo_depth:
                    raise SandboxError(lost)
                raise RuntimeError(
                    "no state from before the last step is kept: "
                    f"the session keeps {self._undo_depth} (undo_depth=), and each undo() uses one"
                )
            if not self._process.go_back():
                raise SandboxError(lost)

    def snapshot(self) -> Snapshot:
        """Keep the state that there is now, in a copy of the process; see `Session.snapshot`.

        Threads that steps have started do not run there. The copy is one of the sandbox's
        processes, which `Limits.processes` counts.
        """
        with self._free():
            self._check_room(len(self._process.snapshots))
            number = self._made = self._made + 1
            self._copy(number)
            return Snapshot(self, number, self._steps)

    def restore(self, snapshot: Snapshot) -> None:
        number = self._number_of(snapshot)
        with self._free():
            process = self._process
            self._notice_end()
            if number not in process.snapshots:
                if process.is_lost and number > self._reset_at:
                    raise SandboxError(SNAPSHOT_LOST)
                raise RuntimeError(CLOSED)
            if process.snapshots[number].has_ended:
                process.forget(number)
                raise SandboxError("the snapshot's process has ended: the session is as it was")
            if not process.restore(number):
                raise SandboxError(SNAPSHOT_LOST)
            # The copy is the session's own process now: another one waits in its place.
            self._copy(number)

    def close(self) -> None:
        self._closed = True
        if self._is_foreign:
            return
        exchange = self._exchange
        if exchange is not None:
            exchange.stop("interrupt", 0)
        with contextlib.ExitStack() as stack:
            if self._busy.acquire(timeout=PATIENCE):
                stack.callback(self._busy.release)
            self._finish()
        if self._decisions is not None:
            self._decisions.close()

    def _step(
        self,
        request: StepRequest,
        loop: Callable[[], asyncio.AbstractEventLoop],
        on_output: Callable[[Output], object] | None = None,
        cancelled: threading.Event | None = None,
        is_held_up: bool = False,
    ) -> Steps[Result]:
        given, code = request.stdin, request.code.encode(errors="surrogatepass")
        check_size("stdin", given or b"")
        check_size("code", code)
        limit = self._seconds if request.timeout is None else request.timeout
        with self._free():
            self._check_process()
            if request.tools:
                self._tools |= request.tools
                self._told = told(self._tools)
            self._steps += 1
            request.has_begun = True
            asked = self._questions.begin(
                request.code,
                request.variables,
                request.granted,
                request.stdin,
                may_wait=request.command is None,
            )
            began, begun = time.time(), time.monotonic()
            process = self._process
            worker = process.worker
            worker.begin_requests(self._host_questions)
            with self._files.changes() as changed:
                exchange = self._exchanged(limit)
                exchange.pieces = None if on_output is None else Pieces(on_output)
                exchange.questions = self._host_questions
                exchange.calls = self._calls_of(exchange, loop, is_held_up)
                place = copy = None
                if self._undo_depth:
                    exchange.most_copies = self._undo_depth
                    place, copy = process.copied(exchange.number), process.copies[-1]
                step = encode(
                    "step",
                    b"".join((request.variables, given or b"", code)),
                    stdin=None if given is None else len(given),
                    number=exchange.number,
                    code=len(code),
                    command=request.command,
                    step=self._steps,
                    tools=self._told,
                    given=[*request.tools],
                )
                try:
                    yield from self._watch(exchange, step, place, cancelled)
                finally:
                    if asked.is_over and process.copies and not exchange.was_undone:
                        exchange.was_undone = process.go_back()
            if copy is not None and copy.process is None and exchange.killed_by is None:
                # It had ended before, and had just not told so.
                self._check_process()
            if asked.raised is not None:
                raise asked.raised
            result = settled(self._result(exchange), asked)
            result = replace(result, changed=changed, duration=time.monotonic() - begun)
            result = worker.with_requests(result, are_over=False)
            if self._decisions is not None:
                self._decisions.add(result)
            if self._noted is not None:
                self._noted(request.code, (), began, result)
        return result

    def _calls_of(
        self,
        exchange: Exchange,
        loop: Callable[[], asyncio.AbstractEventLoop],
        is_held_up: bool = False,
    ) -> Calls:
        """The calls of tools that code makes meanwhile."""
        return Calls(
            self._process.channel,
            self._tools,
            loop,
            self._budget,
            self._on_ask,
            exchange.stop,
            exchange.is_stopped,
            is_held_up,
        )

    def _copy(self, number: int) -> None:
        """Have the process make a copy of itself that waits, a snapshot of this number."""
        process = self._process
        try:
            self._asked("copy")
            copy = process.copies[-1] if process.copies else None
            if copy is None or copy.step != self._number or (copy.process or 0) <= 0:
                raise SandboxError("the session's process cannot be copied: no more may be started")
            process.copies.remove(copy)
            process.snapshots[number] = copy
        finally:
            for copy in [copy for copy in process.copies if copy.step == self._number]:
                process.drop(copy)

    def _drop(self, number: int) -> None:
        if not (self._closed or self._is_foreign) and number in self._process.snapshots:
            with self._free():
                self._process.forget(number)

    def _asked(
        self, kind: str, body: bytes = b"", **told: Any
    ) -> tuple[dict[str, Any], memoryview]:
        self._check_process()
        exchange = self._exchanged(self._seconds)
        if kind == "load":
            exchange.calls = self._calls_of(exchange, self._loop)
        place = self._process.copied(exchange.number) if kind == "copy" else None
        driven(self._watch(exchange, encode(kind, body, number=exchange.number, **told), place))
        if exchange.answer is None:
            why = exchange.broken or "it ended, or took too long"
            raise SandboxError(f"the session's process gave no answer: {why}: {self._ways()}")
        return exchange.answer

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the session is closed")

    @contextlib.contextmanager
    def _free(self) -> Iterator[None]:
        """Use the process, which no step uses meanwhile."""
        self._check_open()
        if self._is_foreign:
            raise RuntimeError(FOREIGN)
        if not self._busy.acquire(blocking=False):
            raise RuntimeError(BUSY)
        try:
            yield
        finally:
            self._busy.release()

    def _notice_end(self) -> None:
        if self._process.status is None and self._process.has_ended():
            self._process.settle()

    def _check_process(self) -> None:
        self._notice_end()
        if self._process.status is not None:
            how = how_ended(self._process.status)
            raise ProcessEnded(f"the session's process has ended ({how}): {self._ways()}")

    def _ways(self) -> str:
        ways = ["reset() starts another"]
        if self._process.copies:
            ways.append("undo() goes back")
        if self._process.snapshots:
            ways.append("restore() to a snapshot")
        return ", ".join(ways)

    def _exchanged(self, limit: float | None) -> Exchange:
        self._number += 1
        self._cancel = CancelToken()
        return Exchange(self._process, self._number, self._config, limit, self._cancel)

    def _watch(
        self,
        exchange: Exchange,
        message: bytes,
        place: socket.socket | None,
        cancelled: threading.Event | None = None,
    ) -> Steps[None]:
        """Send a message, with the place of a copy, and watch until the answer is there."""
        with self._unless_closed(), self._in_flight.running(self._cancel):
            self._exchange = exchange
            try:
                if self._closed:
                    exchange.stop("interrupt", 0)
                elif cancelled is not None and cancelled.is_set():
                    exchange.stop("interrupt")
                self._process.channel.send(message, place)
                yield exchange
            finally:
                self._exchange = None
                exchange.finish()
                if exchange.was_killed and exchange.killed_by is not None:
                    exchange.was_undone = self._process.go_back()

    @contextlib.contextmanager
    def _unless_closed(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            # Its process was taken away from it.
            if not self._closed:
                raise

    def _result(self, exchange: Exchange) -> Result:
        process, killed_by = self._process, exchange.killed_by
        if exchange.broken and exchange.was_killed and killed_by is None:
            why = f"the session's process broke the rules: {exchange.broken}"
            raise SandboxError(f"{why}: {self._ways()}")
        about_hosts = [] if self._host_questions is None else self._host_questions.taken()
        result = Result(
            returncode=-signal.SIGKILL,
            stdout=exchange.text("stdout"),
            stderr=exchange.text("stderr"),
            duration=0,
            killed_by=killed_by,
            violations=[*exchange.violations, *about_hosts],
            confined=process.worker.is_confined,
        )
        if exchange.answer is not None:
            return replace(result, **outcome(*exchange.answer))
        if self._closed:
            error = Error("KeyboardInterrupt", "the session was closed")
            return replace(result, killed_by="interrupt", error=error)
        if exchange.was_killed and killed_by in KILLED:
            kind, message = KILLED[killed_by]
            lost = f"its process was killed: {self._ways()}"
            end = "it was undone" if exchange.was_undone else lost
            return replace(result, error=Error(kind, f"{message}: {end}"))
        status = -signal.SIGKILL if process.status is None else process.status
        killed_by = killed_by or process.worker.limit_of(status)
        how = how_ended(status)
        kind, message = KILLED.get(killed_by or "", ("SystemExit", "the step ended its process"))
        error = Error(kind, f"{message} ({how}): {self._ways()}")
        return replace(result, returncode=status, killed_by=killed_by, error=error)


def _finish(process: int, held: list[Process], loop: HostLoop) -> None:
    # A copy of the host is not the host.
    if os.getpid() == process:
        held[0].close()
        loop.close()


def how_ended(status: int) -> str:
    return f"exit status {status}" if status >= 0 else f"signal {-status}"


def _unpacked(body: memoryview) -> Any:
    try:
        return unpack(body)
    except Exception as error:
        raise SandboxError(f"the session's process gave a malformed answer: {error}") from None
