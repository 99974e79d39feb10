"""A process that runs code of a sandbox, watched until it ends or answers; and one run."""

import asyncio
import base64
import contextlib
import functools
import json
import math
import selectors
import signal
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ... import AuditDenied
from ..._native import _json_extent
from ...results import Error, Result, Timings
from ...sessions.coroutines import HostLoop
from ...sessions.errors import SandboxError
from ...sessions.pieces import Pieces
from ...sessions.server_tools import ToolAnswers
from ...sessions.tool_values import Budget
from ..limits import keep
from ..wire import DENIALS, REPORT, Job, Malformed, decode
from .calls import Ask, Calls
from .channel import Broken, Message
from .decisions import Decisions
from .egress.asking import HostQuestions
from .files import Disk
from .pool import WorkerSource
from .runner import CancelToken, RunRequest, SandboxConfig
from .session_process import Process
from .watcher import INTERVAL, Steps

#: The time for a worker to end by itself, in seconds.
PATIENCE = 1.0

#: The lines of a report that are read besides its last one.
LINES = 10_000

#: The questions that a run may ask with its calls of tools, and the messages that it may send.
QUESTIONS, MESSAGES = 1000, 10_000

#: The number of values in a report, and how deep one may be in others: each takes memory of the
#: host.
VALUES, DEPTH = 1 << 20, 100


class ProcessWatch(ABC):
    #: The messages that it may send.
    most_messages: int

    def __init__(
        self, process: Process, config: SandboxConfig, seconds: float | None, cancel: CancelToken
    ) -> None:
        self.process = process
        self._config = config
        self._seconds = math.inf if seconds is None else seconds
        self.cancel = cancel
        self.calls: Calls | None = None
        #: The questions about hosts, besides those of the process.
        self.questions: HostQuestions | None = None
        self.pieces: Pieces | None = None
        self._messages = 0
        self.found = {name: bytearray() for name in process.pipes.values()}
        self.answer: tuple[dict[str, Any], memoryview] | None = None
        #: The limit that ended it, or ``"interrupt"``.
        self.killed_by: str | None = None
        #: The reason, if the process sent what is no message.
        self.broken = ""
        self._heard_last: deque[Message] = deque()
        #: A function of the host that the code waits for.
        self._call: Callable[[], None] | None = None
        self._error: BaseException | None = None

    def let_call(
        self,
        tools: Mapping[str, Callable[..., Any]],
        loop: Callable[[], asyncio.AbstractEventLoop],
        budget: Budget,
        on_ask: Ask | None,
        answers: ToolAnswers | None = None,
    ) -> None:
        """Let the code call these tools, and ask; coroutine functions run in this loop."""
        channel, is_stopped = self.process.channel, self.is_stopped
        self.calls = Calls(channel, tools, loop, budget, on_ask, self.stop, is_stopped, answers)

    def is_stopped(self) -> bool:
        return self.killed_by is not None

    @abstractmethod
    def stop(self, why: str, grace: float = 0) -> bool:
        """End it for a limit, or for another reason. False if it is over."""

    @abstractmethod
    def _obey(self, head: dict[str, Any], body: memoryview, size: int) -> Callable[[], None] | None:
        """Do what a message asks for; return what takes as long as a function of the host does."""

    def _on_broken(self) -> None:
        """Read no more messages, after something that is none."""
        self.process.channel.close()

    def begin(self, *, is_apart: bool) -> None:
        process = self.process
        self._is_apart = is_apart
        self._begun = time.monotonic()
        if self.questions is not None:
            self.questions.begin()
        self._disk = Disk(self._config.base, self._config.limits.disk, self._config.disk_use)
        # Whoever watches many looks at the one descriptor of this.
        self._selector = selector = selectors.DefaultSelector()
        for descriptor in process.pipes:
            selector.register(descriptor, selectors.EVENT_READ)
        selector.register(process.worker.control, selectors.EVENT_READ)
        if process.stdin is not None:
            selector.register(process.stdin, selectors.EVENT_WRITE)
        if process.speaks:
            selector.register(process.channel, selectors.EVENT_READ)

    def fileno(self) -> int:
        found = getattr(self._selector, "fileno", None)
        return -1 if found is None else int(found())

    @property
    def is_over(self) -> bool:
        """True if there is an answer, or the process has ended."""
        return self.answer is not None or self.process.status is not None

    def look(self, seconds: float) -> None:
        with self._caught():
            self._look(seconds)
            self._ask_about_hosts()
            self.cancel.check()
            self._check_time()
            is_late = time.monotonic() - self._begun > INTERVAL
            if is_late and self._disk.is_over(self.process.worker.pid):
                self.stop("disk", 0)

    def _check_time(self) -> None:
        if time.monotonic() - self._begun - self._thought() > self._seconds:
            self.stop("wall_seconds")

    def _ask_about_hosts(self) -> None:
        if self.questions is None or self.calls is None:
            return
        while self._call is None and (question := self.questions.take()) is not None:
            told = functools.partial(self.questions.answer, question)
            self._call_or_leave(self.calls.ask(question.denied(), told))

    def _call_or_leave(self, call: Callable[[], None] | None) -> None:
        """Call a function of the host here, or leave it to `call`."""
        if self._is_apart:
            self._call = call
        elif call is not None:
            call()

    @property
    def is_called(self) -> bool:
        return self._call is not None

    def call(self) -> None:
        with self._caught():
            while (call := self._call) is not None:
                self._call = None
                call()
                self._obey_all()

    @contextlib.contextmanager
    def _caught(self) -> Iterator[None]:
        """End it by an error of the host's own, which is raised at the end."""
        try:
            yield
        except BaseException as error:
            # A function of the host, or its user.
            if self._error is not None:
                self.process.end()
            self._error = self._error or error
            self.stop("interrupt")

    def end(self) -> None:
        process = self.process
        self._selector.close()
        was_over = self.killed_by == "disk" or process.status == -signal.SIGXFSZ
        self._disk.close(was_over=was_over)
        if self.questions is not None:
            self.questions.end()
        if self.calls is not None:
            self.calls.end()
            self._error = self._error or self.calls.raised
        if process.status is not None and not process.is_lost:
            process.settle()
        for name, data in process.drained():
            self._take(name, data)
        if self.pieces is not None:
            self.pieces.end()
        if self._error is not None:
            raise self._error

    def _result(self, returncode: int, duration: float = 0, **told: Any) -> Result:
        """The result, with what its process told."""
        about_hosts = [] if self.questions is None else self.questions.taken()
        about_tools = [] if self.calls is None else self.calls.answers.denied
        return Result(
            returncode=returncode,
            stdout=self.found["stdout"].decode(errors="replace"),
            stderr=self.found["stderr"].decode(errors="replace"),
            duration=duration,
            killed_by=self.killed_by,
            confined=self.process.worker.is_confined,
            violations=[*told.pop("violations"), *about_hosts, *about_tools],
            **told,
        )

    def _thought(self) -> float:
        """The seconds in which answers were waited for."""
        return 0.0 if self.calls is None else self.calls.thinking.seconds()

    def _look(self, seconds: float) -> None:
        process, selector = self.process, self._selector
        if process.speaks and not self.broken:
            is_pending = process.channel.flush()
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_pending else 0)
            if selector.get_key(process.channel).events != wanted:
                selector.modify(process.channel, wanted)
        for key, events in selector.select(seconds):
            if key.fileobj is process.channel:
                if events & selectors.EVENT_READ and not self._heard():
                    selector.unregister(process.channel)
                    self._on_broken()
            elif key.fileobj is process.worker.control:
                process.hear()
            elif key.fileobj is process.stdin:
                if process.has_fed():
                    selector.unregister(key.fileobj)
            else:
                data = process.read(key.fd)
                self._take(process.pipes[key.fd], data)
                if not data:
                    selector.unregister(key.fd)

    def _heard(self) -> bool:
        """Obey what is there. False if nothing more can come."""
        try:
            for message in self.process.channel.messages():
                self._messages += 1
                if self._messages > self.most_messages:
                    raise Broken(f"it sent more than {self.most_messages} messages in a step")
                self._heard_last.append(message)
                self._obey_all()
        except Broken as error:
            self.broken = str(error)
            return False
        return True

    def _obey_all(self) -> None:
        """Obey what was heard, up to a call that may take long, if that is not for this thread."""
        while self._heard_last and self._call is None:
            message = self._heard_last.popleft()
            if self.answer is None:
                call = None
                with contextlib.suppress(Malformed):
                    call = self._obey(*decode(message), len(message))
                self._call_or_leave(call)

    def _take(self, name: Any, data: bytes) -> None:
        is_report = name == "report"
        kept = keep(self.found[name], data, REPORT if is_report else self._config.limits.output)
        if self.pieces is not None:
            self.pieces.add(name, kept)
        if len(kept) < len(data) and not is_report:
            self.stop("output")


class Run(ProcessWatch):
    """A run, until its process has ended."""

    most_messages = MESSAGES

    def is_stopped(self) -> bool:
        # A tool may have taken the time that was left: the code does nothing after it.
        self._check_time()
        return super().is_stopped()

    def stop(self, why: str, grace: float = 0) -> bool:
        if self.killed_by is None:
            self.killed_by = why
            self.process.worker.kill()
        return True

    def _obey(self, head: dict[str, Any], body: memoryview, size: int) -> Callable[[], None] | None:
        if head["kind"] in ("ask", "call") and self.calls is not None:
            return self.calls.obey(head, body)
        return None

    def result(self, asked: float, begun: float) -> Steps[Result]:
        """Watch it to its end. The worker is ended if it cannot be used again.

        It was asked for before it began.
        """
        process, worker = self.process, self.process.worker
        yield self
        returncode = -signal.SIGKILL if process.status is None else process.status
        if process.is_lost or self.killed_by is not None:
            ended = worker.end(PATIENCE if self.killed_by is None else 0)
            if self.killed_by is None and not ended.was_killed:
                said = f"the process of the sandbox ended {ended}"
                raise SandboxError(f"{said}: no copy of it (os.fork) ran the code")
            returncode = -signal.SIGKILL
        if self.killed_by is None:
            self.killed_by = worker.limit_of(returncode)
        now = time.monotonic()
        reported, ran = told(self.found["report"])
        timings = Timings.between(asked, begun, now, ran)
        result = self._result(returncode, now - begun, timings=timings, **reported)
        if not process.is_clean:
            worker.end()
        return worker.with_requests(result, are_over=True)


def run(
    config: SandboxConfig,
    workers: WorkerSource,
    job: Job,
    request: RunRequest,
    on_ask: Ask | None,
) -> Steps[Result]:
    """Run a job in a child of a worker, to its end. An error ends the worker."""
    decisions = None if config.log is None else Decisions(config.log)
    with contextlib.ExitStack() as stack:
        if decisions is not None:
            stack.callback(decisions.close)
        worker = stack.enter_context(workers())
        begun = time.monotonic()
        questions = None if on_ask is None else HostQuestions()
        worker.begin_requests(questions)
        try:
            request.cancel.check()
            process = Process(worker, job, decisions, request.stdin)
            stack.callback(process.release)
            watched = Run(process, config, config.seconds(request), request.cancel)
            if process.speaks:
                own = HostLoop()
                stack.callback(own.close)
                loop = request.loop
                made = own if loop is None else lambda: loop
                watched.let_call(request.tools, made, Budget(QUESTIONS), on_ask)
                watched.questions = questions
            result = yield from watched.result(request.asked, begun)
        except BaseException:
            worker.end()
            raise
    if decisions is None:
        return result
    decisions.add(result)
    return replace(result, decisions=decisions.kept)


def told(report: bytes | bytearray) -> tuple[dict[str, Any], object]:
    """Return the fields of a result that a run reported, and when its code ran.

    The fields are its denials, its value and its exception. Malformed lines are left out, and those
    that could cost the host much: they need not be ours.
    """
    violations: list[AuditDenied] = []
    display: list[dict[str, str | bytes]] = []
    value = value_error = error = ran = None
    room = VALUES
    *lines, rest = bytes(report[:REPORT]).split(b"\n", LINES)
    # The value or the exception comes last, whatever its process reported before.
    for line in (*lines, rest.removesuffix(b"\n").rpartition(b"\n")[2]):
        values, depth = _json_extent(line)
        if depth > DEPTH or values > room:
            if line.startswith(b'{"value"'):
                why = f"more than {VALUES} values, or nested more than {DEPTH} deep"
                value_error = f"too large: {why}"
            continue
        room -= values
        with contextlib.suppress(
            ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError
        ):
            told = json.loads(line)
            if "value_error" in told:
                value_error = str(told["value_error"])
            elif "error" in told:
                error = error_told(told["error"])
            elif "display" in told:
                display = displays_told(told["display"])
            elif "ran" in told:
                ran = told["ran"]
            elif "denied" not in told:
                value = told["value"]
            elif len(violations) < DENIALS:
                violations.append(AuditDenied.from_dict(told["denied"]))
    if value is None and value_error is None and error is None and len(report) >= REPORT:
        value_error = f"its report is longer than {REPORT >> 20} MB"
    found = {
        "violations": violations,
        "value": value,
        "value_error": value_error,
        "error": error,
        "display": display,
    }
    return found, ran


def displays_told(given: Any) -> list[dict[str, str | bytes]]:
    """Return what code says that it has shown; in JSON, bytes are in base64, in a list."""
    found: list[dict[str, str | bytes]] = []
    for thing in given if type(given) is list else ():
        shown: dict[str, str | bytes] = {}
        for mime, data in thing.items() if type(thing) is dict else ():
            if type(mime) is str and type(data) in (str, bytes):
                shown[mime] = data
            elif type(data) is list and len(data) == 1 and type(data[0]) is str:
                with contextlib.suppress(ValueError):
                    shown[mime] = base64.b64decode(data[0], validate=True)
        found.append(shown)
    return found


def error_told(given: Any) -> Error | None:
    """Return an exception as code told of it; `None` if it told of nothing such."""
    if type(given) is not dict:
        return None
    texts = (given.get(name) for name in ("kind", "message", "traceback"))
    kind, message, traceback = (text if type(text) is str else "" for text in texts)
    line = given.get("line")
    return Error(kind, message, traceback, line if type(line) is int else None)
