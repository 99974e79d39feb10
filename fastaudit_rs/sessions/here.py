"""A session in this process: steps on a thread of their own, under a guard."""

import asyncio
import contextlib
import contextvars
import functools
import itertools
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from .. import AuditDenied, Policy, _native
from .._rules import rules_for_model
from .._threads import in_thread, submit
from .._waiting import Waiting
from ..approvals import Approvals
from ..pending import PENDING
from ..results import Result
from . import step
from .arguments import (
    BETWEEN,
    CALLS,
    SNAPSHOTS,
    StepRequest,
    Tools,
    count,
    current_directory,
    id_of,
    identifier,
    is_async,
    parts_in,
    path_of,
    seconds,
    size,
    tools_of,
)
from .base import Session, Snapshot
from .coroutines import Caller, Coroutines
from .errors import BUSY, CLOSED, FOREIGN, GIVEN_UP
from .guest import Guest, StepJob
from .output import Capture, of_host
from .pieces import Lines, Output, Tell
from .questions import Questions, StepEnds, StepQuestions, asking, settled
from .running import Denials, Running, awaited, changes_from_now, wait
from .server_tools import ServerTool, ToolAnswers
from .state import StepQueue
from .store import Place, check_apart
from .tool_values import Budget
from .values import unpack

#: The arguments of `Policy.guard` that are handed on to it as they are.
OPTIONS = frozenset(
    (
        "before_deny",
        "on_call",
        "data",
        "tool_id",
        "calls",
        "retire_sites",
        "on_ask",
        "ask_seconds",
        "log",
    )
)

_numbers = itertools.count(1)


class HereSession(Session):
    def __init__(
        self,
        policy: Policy,
        *,
        id: str | None = None,
        tools: Tools | None = None,
        directory: "str | os.PathLike[str] | None" = None,
        timeout: float | None = None,
        output: int | str | None = "10M",
        snapshots: int = SNAPSHOTS,
        tool_calls: int = CALLS,
        pending_seconds: float | None = None,
        monitor_calls: bool = True,
        on_denied: Callable[[AuditDenied], object] | None = None,
        **options: Any,
    ) -> None:
        for wrong in options.keys() - OPTIONS:
            from .._near import unknown

            raise TypeError(unknown("Policy.session", wrong))
        self.id = id_of(id)
        self._policy = policy
        self._timeout = seconds("timeout", timeout)
        self._most = None if output is None else size("output", output)
        self._most_snapshots = count("snapshots", snapshots)
        self._snapshots = itertools.count()
        self._budget = Budget(count("tool_calls", tool_calls, 1))
        self._caller = Caller()
        self._denials = denials = Denials()

        def note(error: AuditDenied) -> None:
            denials.note(error)
            if tell is not None:
                tell(error)

        tell = None if on_denied is None else self._held(on_denied)
        self._servers, self._streams = [], {}
        self._answers = ToolAnswers()
        self._questions = Questions(pending_seconds, self.id)
        ask = options.get("on_ask")
        self._asks = ask is not None
        if ask is not None:
            asked = self._asking(ask, options.get("ask_seconds"))
            options["on_ask"] = asked
            if is_async(ask.ask if type(ask) is Approvals else ask):
                options.pop("ask_seconds", None)
            # A file of answers has none about tools.
            ask = asked.ask if type(asked) is Approvals else asked
        self._gate = self._answers.gate(ask, note)
        begins = current_directory() if directory is None else path_of("directory", directory)
        self._directory = os.path.abspath(begins)
        if not os.path.isdir(self._directory):
            raise NotADirectoryError(20, "directory must be a directory", self._directory)
        held = policy if directory is None else policy._begun_in(self._directory)
        self._perms = held.guard(monitor_calls=monitor_calls, on_denied=note, **options)
        self._perms._share(_native._TemporaryFiles())
        self._changes = None if directory is None else _native._Directory(self._directory)
        self._coroutines: Coroutines | None = None
        self._is_closed = False
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._name = f"fastaudit_rs session {next(_numbers)}"
        self._tools = self._made(tools)
        self._begin()

    def _begin(self) -> None:
        is_here = self._perms._in_force if self._policy.threads != "deny" else None
        self._guest = Guest(self._perms, self._directory, Capture(self._most, is_here), self._name)
        self._steps = StepQueue(self._policy, self._tools, self._most, self._directory)
        self._end = weakref.finalize(self, _end, self._guest, self._steps)
        self._end.atexit = False

    def _made(self, tools: Tools | None) -> dict[str, Callable[..., Any]]:
        made: dict[str, Callable[..., Any]] = {}
        given = tools_of(tools)
        self._hold(given)
        for name, function in given.items():
            if isinstance(function, ServerTool):
                function = function.gated(self._gate)
            if is_async(function):
                if self._coroutines is None:
                    self._coroutines = Coroutines(self._caller)
                    weakref.finalize(self, self._coroutines.close).atexit = False
                called = self._coroutines.in_host(self._budget.counted(function))
            else:
                called = self._caller.run(self._budget.counted(function))
            made[name] = self._policy.tool(called, name=name)
        return made

    def _held(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of the host that no interrupt breaks off, with output of the host's."""
        session = weakref.ref(self)
        called = self._caller.run(of_host(function))

        @functools.wraps(function)
        def held(*args: Any, **kwargs: Any) -> Any:
            here = session()
            interrupts = _native._Interrupts() if here is None else here._guest.interrupts
            del here
            interrupts.hold()
            try:
                return called(*args, **kwargs)
            finally:
                interrupts.release()

        return held

    def _asking(self, ask: Any, ask_seconds: float | None) -> Any:
        """Return the ``on_ask`` of the session, which may end the step that asks."""
        if type(ask) is Approvals:
            # The native part looks into it: it stays what it is, around another function.
            inner = ask.ask and self._asking(ask.ask, ask_seconds)
            return Approvals(ask.path, inner)
        if not callable(ask):
            return ask
        if is_async(ask):
            # An interrupt ends the wait.
            caller = self._caller
            given: Any = ask
            waiting = Waiting(given, ask_seconds, lambda: caller.context)
            asked = asking(self._questions, waiting)
        else:
            asked = self._held(asking(self._questions, ask))
        session = weakref.ref(self)

        @functools.wraps(asked)
        def ending(denied: AuditDenied) -> object:
            try:
                return asked(denied)
            except StepEnds:
                here = session()
                job = None if here is None else here._guest.job
                if job is not None and here is not None:
                    job.end_here(PENDING if here._questions.now.pending else "interrupt")
                raise KeyboardInterrupt from None

        return ending

    def _start(
        self,
        request: StepRequest,
        notify: Callable[[], object],
        serve: Callable[[Coroutines], object],
        on_output: Tell | None = None,
        changes: Callable[[], list[str]] | None = None,
    ) -> Running:
        """Start a step: `notify` is called at its end, `serve` has coroutines served meanwhile.

        `on_output` is called in the threads that write, `changes` to tell which files changed.
        """
        self._check()
        variables = unpack(request.variables, own=True) if request.variables else {}
        tools = self._made(request.tools)
        limit = self._timeout if request.timeout is None else request.timeout
        with self._lock:
            self._check()
            # Not before the check: another step may be using them.
            if self._coroutines is not None:
                serve(self._coroutines)
            self._caller.context = contextvars.copy_context()
            self._budget.begin()
            self._answers.begin()
            guest, steps = self._guest, self._steps

            def work() -> step.Outcome:
                try:
                    return steps.run(guest.output, request.code, request.stdin, variables, tools)
                except BaseException:
                    steps.shown.end()
                    raise

            request.has_begun = True
            asked = self._questions.begin(
                request.code, request.variables, request.granted, request.stdin
            )
            job = StepJob(work, notify, limit, request.asked, thinking=asked.thinking)
            guest.output.on_full = lambda: job.stop("output")
            guest.output.lines = on_output and Lines(on_output, guest.interrupts)
            changes = changes or changes_from_now(self._changes)
            denied = self._denials.begin()
            guest.start(job)
            return Running(guest, job, changes, denied, asked)

    def _check(self) -> None:
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the session is closed")
            if os.getpid() != self._process:
                raise RuntimeError(FOREIGN)
            if self._guest.job is not None:
                raise RuntimeError(GIVEN_UP if self._guest.is_given_up else BUSY)

    def _run(self, request: StepRequest, on_output: Tell | None = None) -> Result:
        signs: SimpleQueue[Output | None] = SimpleQueue()
        guest = self._guest

        def notify() -> None:
            signs.put(None)

        try:
            heard = None if on_output is None else signs.put
            running = self._start(request, notify, Coroutines.serve_alone, heard)
            wait(running.guest, running.job, signs, on_output)
        except BaseException:
            # Ctrl-C, maybe while the step was being started: the step gets it too.
            job = guest.job
            if job is not None and job.notify is notify:
                job.stop("interrupt")
                wait(guest, job, signs)
                self._leave(guest, job)
            raise
        ran = self._ended(running)
        return self._settled(ran, running.asked) if running.asked.is_over else ran

    def _settled(self, ran: Result, asked: StepQuestions) -> Result:
        """Go back to the state from before a step that ended as it asked."""
        with contextlib.suppress(RuntimeError):
            self.undo()
        if asked.raised is not None:
            raise asked.raised
        return settled(ran, asked)

    async def _arun(
        self,
        request: StepRequest,
        on_output: Tell | None = None,
        stopped: threading.Event | None = None,
    ) -> Result:
        loop = asyncio.get_running_loop()
        sign = asyncio.Event()

        def notify() -> None:
            # The loop may be closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(sign.set)

        def serve(coroutines: Coroutines) -> None:
            coroutines.leave_alone()
            coroutines.serve(loop)

        self._check()
        # Code chooses how many files there are.
        before = self._changes
        changes: Callable[[], list[str]] = list

        def look() -> None:
            nonlocal changes
            changes = changes_from_now(before)

        try:
            if before is not None:
                await in_thread(look)
            running = self._start(request, notify, serve, on_output, list)
            try:
                ran = await self._awaited(running, sign)
            finally:
                if self._coroutines is not None:
                    self._coroutines.leave(loop)
        except BaseException:
            submit(changes)
            raise
        if before is not None:
            ran = replace(ran, changed=await in_thread(changes))
        asked = running.asked
        return await in_thread(self._settled, ran, asked) if asked.is_over else ran

    async def _awaited(self, running: Running, sign: asyncio.Event) -> Result:
        try:
            await awaited(running.guest, running.job, sign)
        except BaseException:
            running.job.stop("interrupt")
            await awaited(running.guest, running.job, sign)
            self._leave(running.guest, running.job)
            raise
        return self._ended(running)

    @property
    def timeout(self) -> float | None:
        return self._timeout

    def rules_for_model(self) -> str:
        return rules_for_model(self._policy, directory=self._directory, seconds=self._timeout)

    def _read_file(self, name: str, max_bytes: int) -> bytes:
        if self._changes is None:
            raise FileNotFoundError(2, "the session has no directory=, whose files are noted", name)
        return self._changes.read(parts_in(self._directory, name, "session"), max_bytes)

    def _ended(self, running: Running) -> Result:
        has_ended = running.job.is_done
        result = running.result()
        if not has_ended:
            self._leave(running.guest, running.job)
        return result

    def _leave(self, guest: Guest, job: StepJob) -> None:
        """Go on without a step that cannot be ended, and that keeps its thread."""
        with self._lock:
            if self._is_closed or self._guest is not guest or guest.job is not job:
                return
            steps = self._steps
            self._end.detach()
            _end(guest, steps, is_left=True)
            self._begin()
            self._guest.first = self._steps.going_on(steps)

    def interrupt(self) -> bool:
        job = self._guest.job
        if job is None:
            return False
        job.stop("interrupt")
        # At once: the step may do nothing more if one of its tools called this.
        job.interrupt(self._guest)
        return True

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self._steps.number} steps"
        return f"<session in this process, {state}>"

    @property
    def names(self) -> list[str]:
        names: list[str] = self._between(self._steps.named)
        return names

    def get(self, name: str) -> Any:
        identifier("name", name)
        steps = self._steps
        packed = self._between(lambda: steps.get(name))
        if packed is None:
            raise KeyError(name)
        return unpack(packed, own=True)

    def undo(self) -> None:
        steps = self._steps
        if steps.before is None:
            self._check()
            raise RuntimeError("there is no step to undo: undo() reverts the last step, once")
        self._between(steps.undo)

    def snapshot(self) -> Snapshot:
        self._check()
        steps, number = self._steps, next(self._snapshots)
        self._check_room(len(steps.snapshots))
        self._between(lambda: steps.keep(number))
        return Snapshot(self, number, steps.number)

    def restore(self, snapshot: Snapshot) -> None:
        number, steps = self._number_of(snapshot), self._steps
        self._check()
        if number not in steps.snapshots:
            raise RuntimeError(CLOSED)
        self._between(lambda: steps.restore(number))

    def _drop(self, number: int) -> None:
        steps = self._steps
        if not self._is_closed and number in steps.snapshots:
            # Finalizers of objects that nothing else holds run under the guard.
            self._between(lambda: steps.drop(number))

    def _check_apart(self, place: Place) -> None:
        check_apart(place, self._policy, self._directory)

    def _saved(self) -> bytes:
        body: bytes = self._between(self._steps.record)
        return body

    def _loaded(self, body: bytes) -> dict[str, str]:
        steps, output = self._steps, self._guest.output
        try:
            lost: dict[str, str] = self._between(lambda: steps.load(output, body))
        finally:
            output.end()
        return lost

    def reset(self) -> None:
        """Begin anew; a thread that cannot be interrupted is left alone."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the session is closed")
        self._stop()
        steps, guest = self._steps, self._guest
        if guest.job is None:
            with contextlib.suppress(RuntimeError):
                self._between(steps.reset)
                guest.begin_again()
        if guest.job is not None:
            self._end()
            self._begin()

    def close(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._stop()
        self._end()
        if not self._guest.is_given_up:
            self._guest.join(1)
        if self._coroutines is not None:
            self._coroutines.close()
        if self._changes is not None:
            self._changes.close()
        self._release()

    def _stop(self) -> None:
        job = self._guest.job
        if job is None or self._guest.is_given_up:
            return
        job.stop("interrupt")
        # Waits for the job itself: an `arun` of it may be in the event loop that this holds up.
        wait(self._guest, job, SimpleQueue())

    def _between(self, work: Callable[[], Any]) -> Any:
        """Call a function in the guest's thread."""
        signs: SimpleQueue[Output | None] = SimpleQueue()
        with self._lock:
            self._check()
            job = StepJob(work, lambda: signs.put(None), BETWEEN)
            self._guest.start(job)
        wait(self._guest, job, signs)
        failed = job.failed or job.refused
        # A KeyboardInterrupt here comes from the code or from the time limit, not from the host.
        if failed is not None and type(failed) is not KeyboardInterrupt:
            raise failed
        has_no_result = job.result is None and (failed is not None or job.killed_by is not None)
        if has_no_result or not job.is_done:
            raise RuntimeError("the session did not answer: reset() starts anew")
        return job.result


def _end(guest: Guest, steps: StepQueue, is_left: bool = False) -> None:
    """End a session: what its steps made goes in its own thread, under its guard."""
    if guest.job is not None:
        # The step may run for ever.
        guest.output.close()
    guest.end(steps.leave if is_left else steps.end, guest.output.close)
