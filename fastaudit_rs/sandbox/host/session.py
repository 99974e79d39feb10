"""A session in a sandbox: steps in one process, which is watched during each."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ... import AuditDenied
from ..._threads import to_its_end, when_forgotten
from ...results import Result, Timings
from ...sessions.arguments import StepRequest, count, id_of, identifier, is_async, path_of, seconds
from ...sessions.base import Session, Snapshot
from ...sessions.coroutines import HostLoop
from ...sessions.errors import CLOSED, SandboxError
from ...sessions.forms import VALUE, limited
from ...sessions.pieces import Output, Pieces
from ...sessions.questions import Questions, asking, asking_async, settled
from ...sessions.record import parts, reasons
from ...sessions.server_tools import ToolAnswers
from ...sessions.store import Place, check_apart
from ...sessions.tool_values import Budget
from ...sessions.values import unpack
from ..wire import encode
from .calls import told
from .commands import SandboxCommands
from .decisions import Decisions
from .egress.asking import HostQuestions
from .exchange import Exchanges
from .files import Files
from .guest_files import SandboxFiles
from .process import names_descriptors
from .review import Change, Review
from .runner import InFlight, SandboxConfig
from .session_process import Process
from .watcher import Steps, begun, driven
from .worker import Worker

#: The characters of a reason that its process gives.
TOLD = 1000

#: The message where all processes of a session have ended.
SNAPSHOT_LOST = "the snapshots have ended with the session's process: reset() begins anew"


class SandboxSession(Session):
    """Steps of code in one process of a sandbox; `Sandbox.session` makes it."""

    #: The number of snapshots, and that at the last `reset`.
    _made = _reset_at = 0

    def __init__(
        self,
        config: SandboxConfig,
        start: Callable[[], Worker],
        files: Files,
        in_flight: InFlight,
        tools: dict[str, Callable[..., Any]],
        timeout: float | None,
        undo_depth: int,
        snapshots: int,
        tool_calls: int,
        on_ask: Callable[[AuditDenied], object] | None,
        pending_seconds: float | None,
        id: str | None,
    ) -> None:
        self.id = id_of(id)
        self._questions = questions = Questions(pending_seconds, self.id)
        if on_ask is not None:
            ask: Any = on_ask
            on_ask = (asking_async if is_async(ask) else asking)(questions, ask)
        self._on_ask = on_ask
        self._asks = on_ask is not None
        self._config = config
        self._start = start
        self._job = config.job("", "<session>", session=True, asks=on_ask is not None)
        self._files = files
        self._first_tools = tools
        self._begin()
        usual = config.limits.wall_seconds
        self._seconds = usual if timeout is None else seconds("timeout", timeout)
        self._undo_depth = count("undo_depth", undo_depth)
        self._most_snapshots = count("snapshots", snapshots)
        self._budget = Budget(count("tool_calls", tool_calls, 1))
        self._loop = HostLoop()
        #: A function that gets each step: its code, no arguments, when it began, and its result.
        self._noted: Callable[[str, tuple[()], float, Result], object] | None = None
        self._decisions = None if config.log is None else Decisions(config.log)
        if self._decisions is not None:
            # It is the last to be closed: its end is that of all processes.
            when_forgotten(self, self._decisions.close)
        self._review = Review(str(config.directory), files.names)
        self._servers, self._streams = [], {}
        self._answers = ToolAnswers()
        try:
            self._hold(self._first_tools)
            process = self._process_in(start())
        except BaseException:
            self._release()
            raise
        self._exchanges = Exchanges(config, in_flight, process, self._seconds)
        self._finish = when_forgotten(self, _finish, os.getpid(), self._exchanges, self._loop)

    def _begin(self) -> None:
        """Begin without steps, with the tools of the session alone."""
        self._tools = dict(self._first_tools)
        self._told = told(self._tools)
        self._host_questions = None if self._on_ask is None else HostQuestions()
        #: The number of steps since then.
        self._steps = 0

    def _process_in(self, worker: Worker) -> Process:
        try:
            return Process(worker, self._job, self._decisions)
        except BaseException:
            worker.end()
            raise

    @property
    def is_closed(self) -> bool:
        """True once it runs nothing any more."""
        return self._exchanges.is_closed

    @property
    def _process(self) -> Process:
        return self._exchanges.process

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{self._steps} steps"
        return f"<session in a sandbox, {state}>"

    def _run(
        self, request: StepRequest, on_output: Callable[[Output], object] | None = None
    ) -> Result:
        return driven(self._step(request, self._loop, on_output))

    async def _arun(
        self,
        request: StepRequest,
        on_output: Callable[[Output], object] | None = None,
        stopped: threading.Event | None = None,
    ) -> Result:
        loop = asyncio.get_running_loop()
        cancelled = stopped or threading.Event()

        def end() -> None:
            cancelled.set()
            self.interrupt()

        # The step ends shortly: the session can be used when this returns.
        return await to_its_end(begun(self._step(request, lambda: loop, on_output, cancelled)), end)

    @property
    def timeout(self) -> float | None:
        return self._seconds

    def rules_for_model(self) -> str:
        return self._config.rules_for_model(self._seconds)

    def _read_file(self, name: str, max_bytes: int) -> bytes:
        self._exchanges.check_open()
        return self._files.read(name, max_bytes)

    def interrupt(self) -> bool:
        """End the step that runs; see `Session.interrupt`. One that goes on is killed shortly."""
        return self._exchanges.stop()

    @property
    def names(self) -> list[str]:
        with self._exchanges.free():
            _, body = self._exchanges.ask("names")
        with _well_formed("answer"):
            if type(found := unpack(body)) is not list:
                raise ValueError("it has no list of names")
            return [name for name in found if type(name) is str]

    def get(self, name: str) -> Any:
        identifier("name", name)
        with self._exchanges.free():
            answer, body = self._exchanges.ask("get", name=name)
        if answer.get("missing"):
            raise KeyError(name)
        if "failed" in answer:
            raise TypeError(limited(str(answer["failed"]), TOLD))
        with _well_formed("answer"):
            return unpack(body)

    @property
    def files(self) -> SandboxFiles:
        """The files in the directory of its sandbox, as `Sandbox.files`."""
        return SandboxFiles(self._files, self._exchanges.check_open)

    @property
    def commands(self) -> SandboxCommands:
        """Programs, run as its steps would start them."""
        return SandboxCommands(self._run, self._arun)

    def diff(self) -> list[Change]:
        """The files that were added, changed and removed since the session began.

        Or since `commit`. Links, and all that is no regular file, are left out.

        Raises:
            OSError: A file cannot be read.
            RuntimeError: The session is closed, or runs a step.
        """
        with self._exchanges.free():
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
        with self._exchanges.free():
            return self._review.commit(path_of("to", to))

    def discard(self) -> list[Change]:
        """Put the files back to those of the beginning of the session, or of the last `commit`.

        Returns:
            The changes that are no more.

        Raises:
            OSError: A file cannot be written, or one that has changed was not kept, as 100 MB are.
                Nothing is put back then.
            RuntimeError: The session is closed, or runs a step.
        """
        with self._exchanges.free():
            return self._review.discard()

    def _has_ended(self) -> bool:
        return self._exchanges.has_ended()

    def _check_apart(self, place: Place) -> None:
        check_apart(place, self._config.policy, str(self._config.directory))

    def _saved(self) -> bytes:
        with self._exchanges.free():
            answer, body = self._exchanges.ask("save")
        if "failed" in answer:
            raise TypeError(limited(str(answer["failed"]), TOLD))
        with _well_formed("record"):
            parts(body)
        return bytes(body)

    def _loaded(self, body: bytes) -> dict[str, str]:
        with self._exchanges.free():
            exchange = self._exchanges.between()
            exchange.let_call(self._tools, self._loop, self._budget, self._on_ask, self._answers)
            _, told = self._exchanges.ask("load", body, exchange, tools=self._told, given=[])
        with _well_formed("answer"):
            return reasons(unpack(told, arrays=False))

    def reset(self) -> None:
        with (
            names_descriptors(),
            self._exchanges.free() as process,
            contextlib.ExitStack() as failing,
        ):
            # Where no other one starts, this one has ended.
            failing.callback(process.end)
            process.drop_all()
            if process.is_lost or not process.keep_only_copies():
                process.worker.end()
                worker = self._start()
            else:
                worker = process.worker
            process.release()
            self._exchanges.process = self._process_in(worker)
            failing.pop_all()
            self._begin()
            self._reset_at = self._made

    def undo(self) -> None:
        """Go back to the state before the last step, but for files; see `Session.undo`.

        Threads that steps have started do not run there. It works also where the last step has
        ended the process.
        """
        with self._exchanges.free() as process:
            process.has_ended()
            lost = "the state from before is lost: reset() begins anew"
            if not process.copies:
                if process.is_lost and self._undo_depth:
                    raise SandboxError(lost)
                raise RuntimeError(
                    "no state from before the last step is kept: "
                    f"the session keeps {self._undo_depth} (undo_depth=), and each undo() uses one"
                )
            if not process.go_back():
                raise SandboxError(lost)

    def snapshot(self) -> Snapshot:
        """Keep the state that there is now, in a copy of the process; see `Session.snapshot`.

        Threads that steps have started do not run there. The copy is one of the sandbox's
        processes, which `Limits.processes` counts.
        """
        with self._exchanges.free() as process:
            self._check_room(len(process.snapshots))
            number = self._made = self._made + 1
            self._copy(number)
            return Snapshot(self, number, self._steps)

    def restore(self, snapshot: Snapshot) -> None:
        number = self._number_of(snapshot)
        with self._exchanges.free() as process:
            process.has_ended()
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
        self._exchanges.close(self._finish)
        if self._decisions is not None and not self._exchanges.is_foreign:
            self._decisions.close()
        self._release()

    def _step(
        self,
        request: StepRequest,
        loop: Callable[[], asyncio.AbstractEventLoop],
        on_output: Callable[[Output], object] | None,
        cancelled: threading.Event | None = None,
    ) -> Steps[Result]:
        given, code = request.stdin, request.code.encode(errors="surrogatepass")
        for argument, data in (("stdin", given or b""), ("code", code)):
            if len(data) > VALUE:
                size = len(data) >> 20
                raise ValueError(f"{argument} must have at most {VALUE >> 20} MB, not {size} MB")
        limit = self._seconds if request.timeout is None else request.timeout
        with self._exchanges.free() as process:
            exchange = self._exchanges.new(limit)
            if request.tools:
                self._hold(request.tools)
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
            worker = process.worker
            worker.begin_requests(self._host_questions)
            with self._files.changes() as changed:
                exchange.pieces = None if on_output is None else Pieces(on_output)
                exchange.questions = self._host_questions
                exchange.let_call(self._tools, loop, self._budget, self._on_ask, self._answers)
                place = copy = None
                if self._undo_depth:
                    exchange.most_copies = self._undo_depth
                    place, copy = process.copied(exchange.number), process.copies[-1]
                step = encode(
                    "step",
                    request.variables,
                    given or b"",
                    code,
                    stdin=None if given is None else len(given),
                    number=exchange.number,
                    code=len(code),
                    command=request.command,
                    step=self._steps,
                    passes=place is not None,
                    tools=self._told,
                    given=[*request.tools],
                )
                try:
                    yield from self._exchanges.watched(exchange, step, place, cancelled)
                finally:
                    if asked.is_over and process.copies and not exchange.was_undone:
                        exchange.was_undone = process.go_back()
            if copy is not None and copy.process is None and exchange.killed_by is None:
                # It had ended before, and had just not told so.
                process.check()
            if asked.raised is not None:
                raise asked.raised
            result = settled(exchange.result(is_closed=self.is_closed), asked)
            ended, ran = time.monotonic(), exchange.answer and exchange.answer[0].get("ran")
            timings = Timings.between(request.asked, begun, ended, ran)
            result = replace(result, changed=changed, duration=ended - begun, timings=timings)
            result = worker.with_requests(result, are_over=False)
            if self._decisions is not None:
                self._decisions.add(result)
            if self._noted is not None:
                self._noted(request.code, (), began, result)
        return result

    def _copy(self, number: int) -> None:
        """Have the process make a copy of itself that waits, a snapshot of this number."""
        process = self._process
        try:
            self._exchanges.ask("copy")
            copy = process.copies[-1] if process.copies else None
            if copy is None or copy.step != self._exchanges.number or (copy.process or 0) <= 0:
                raise SandboxError("the session's process cannot be copied: no more may be started")
            process.copies.remove(copy)
            process.snapshots[number] = copy
        finally:
            for copy in [one for one in process.copies if one.step == self._exchanges.number]:
                process.drop(copy)

    def _drop(self, number: int) -> None:
        exchanges = self._exchanges
        if not (exchanges.is_closed or exchanges.is_foreign) and number in self._process.snapshots:
            with exchanges.free() as process:
                process.forget(number)


def _finish(process: int, exchanges: Exchanges, loop: HostLoop) -> None:
    # A copy of the host is not the host.
    if os.getpid() == process:
        exchanges.process.close()
        loop.close()


@contextlib.contextmanager
def _well_formed(what: str) -> Iterator[None]:
    """Read what the process gave: errors of many classes say that it is not ours."""
    try:
        yield
    except Exception as error:
        why = limited(str(error), TOLD)
        raise SandboxError(f"the session's process gave a malformed {what}: {why}") from None
