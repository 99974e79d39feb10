"""The questions of steps to the host's ``on_ask``, and those that wait for an answer."""

import functools
import secrets
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from .. import AuditDenied
from ..pending import PENDING, Granted, Pending, checked_answer, subject
from ..results import Error, Result
from .arguments import seconds

#: The questions of a session that wait at a time; of more the oldest is dropped.
MOST = 1000

#: The characters of one that waits: code in a sandbox words it, and nobody reads more.
LONGEST = 200_000


class StepEnds(Exception):
    """The step that asks is to end here, without an answer."""


class Thinking:
    """The time in which answers are waited for, which is not that of the step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = 0
        self._since = self._total = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if self._waiting == 0:
                self._since = time.monotonic()
            self._waiting += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._waiting -= 1
            if self._waiting == 0:
                self._total += time.monotonic() - self._since

    @property
    def goes_on(self) -> bool:
        return self._waiting > 0

    def seconds(self) -> float:
        with self._lock:
            now = time.monotonic() - self._since if self._waiting else 0.0
            return self._total + now


@dataclass(eq=False)
class StepQuestions:
    """The questions of one step."""

    code: str
    variables: bytes
    #: What was answered before it began, and is not used yet.
    left: list[tuple[str, str]]
    stdin: bytes | None = None
    #: False for a program: it is not run again.
    may_wait: bool = True
    used: list[tuple[str, str]] = field(default_factory=list)
    thinking: Thinking = field(default_factory=Thinking)
    pending: Pending | None = None
    #: What ``on_ask`` raised, if that is for whoever runs the step.
    raised: Exception | None = None

    @property
    def is_over(self) -> bool:
        return self.pending is not None or self.raised is not None


class Questions:
    """The questions of a session, and those of them that wait."""

    def __init__(self, pending_seconds: float | None, session: str) -> None:
        self._seconds = seconds("pending_seconds", pending_seconds)
        self.session = session
        self._lock = threading.Lock()
        self._waiting: dict[str, Pending] = {}
        #: The names of questions that had their answer, and why another one is refused.
        self._over: dict[str, str] = {}
        #: Answers to operations that were denied before.
        self._standing: dict[str, str] = {}
        self.now = StepQuestions("", b"", [])

    def begin(
        self,
        code: str,
        variables: bytes,
        granted: Granted,
        stdin: bytes | None,
        may_wait: bool = True,
    ) -> StepQuestions:
        """Begin a step, with what was answered before."""
        self.now = StepQuestions(code, variables, list(granted), stdin, may_wait)
        return self.now

    def known(self, denied: AuditDenied) -> object:
        """The answer that a question had before; ``None`` if there was none.

        Raises:
            StepEnds: The step does not go on.
        """
        step = self.now
        if step.is_over:
            raise StepEnds
        if not step.left and not self._standing:
            return None
        about = subject(denied)
        with self._lock:
            for granted in step.left:
                if granted[0] == about:
                    step.left.remove(granted)
                    step.used.append(granted)
                    return granted[1]
            answer = self._standing.get(about)
            if answer in ("once", "step", "deny"):
                del self._standing[about]
            return answer

    def settle(self, denied: AuditDenied, answer: object) -> object:
        """The answer of ``on_ask``, unless the question waits.

        Raises:
            StepEnds: It waits, and the step ends.
        """
        if not (isinstance(answer, str) and answer == PENDING):
            return answer
        step, now = self.now, time.time()
        if not step.may_wait or len(subject(denied)) > LONGEST:
            return None
        until = None if self._seconds is None else now + self._seconds
        name = secrets.token_urlsafe(24)
        # Made anew, without objects of the code.
        copied = AuditDenied.from_dict(denied.to_dict())
        granted = (*step.used, *step.left)
        pending = Pending(
            name, self.session, step.code, copied, now, until, step.variables, granted, step.stdin
        )
        with self._lock:
            if step.is_over:
                raise StepEnds
            step.pending = pending
            self._add(pending)
        raise StepEnds

    def pass_on(self, error: Exception) -> None:
        """End the step where an exception is for whoever runs it.

        Raises:
            StepEnds: It is.
        """
        if is_for_caller(error):
            self.now.raised = self.now.raised or error
            raise StepEnds from None

    def waiting(self) -> list[Pending]:
        now = time.time()
        with self._lock:
            return [one for one in self._waiting.values() if one.until is None or now < one.until]

    def adopt(self, pending: Pending) -> None:
        if not isinstance(pending, Pending):
            raise TypeError(f"pending must be a Pending, not {type(pending).__name__}")
        with self._lock:
            if pending.id in self._over:
                raise ValueError(self._over[pending.id])
            self._add(pending)

    def stand(self, denied: AuditDenied, answer: object) -> None:
        """Answer an operation in advance that was denied before."""
        if not isinstance(denied, AuditDenied):
            raise TypeError(f"denied must be an AuditDenied, not {type(denied).__name__}")
        text = checked_answer(answer)
        _check(text, denied.answers)
        with self._lock:
            self._standing[subject(denied)] = text
            if len(self._standing) > MOST:
                del self._standing[next(iter(self._standing))]

    def take(self, name: object, answer: object) -> Pending:
        """Take a question that has its answer now; it has none more.

        Raises:
            TypeError, ValueError: It does not wait, or cannot have this answer.
        """
        if type(name) is not str:
            kind = type(name).__name__
            raise TypeError(f"pending must be the id of a question, a str, not {kind}")
        text = checked_answer(answer)
        with self._lock:
            pending = self._waiting.get(name)
            if pending is None:
                unknown = f"pending: no question of this session has the id {name[:100]!r}"
                raise ValueError(self._over.get(name, unknown))
            if pending.until is not None and time.time() >= pending.until:
                self._end(name, "the question has expired: run the step again")
                raise ValueError(self._over[name])
            _check(text, pending.answers)
            self._end(name, "the question was answered already")
        return replace(pending, granted=(*pending.granted, (subject(pending.denied), text)))

    def put_back(self, pending: Pending) -> None:
        """Have a question wait again, as its step did not begin."""
        with self._lock:
            self._over.pop(pending.id, None)
            self._add(replace(pending, granted=pending.granted[:-1]))

    def _add(self, pending: Pending) -> None:
        self._waiting[pending.id] = pending
        if len(self._waiting) > MOST:
            self._end(next(iter(self._waiting)), "more questions came than wait at a time")

    def _end(self, name: str, why: str) -> None:
        self._waiting.pop(name, None)
        self._over[name] = why
        if len(self._over) > MOST:
            self._over.pop(next(iter(self._over)))


def _check(answer: str, answers: tuple[str, ...]) -> None:
    if answer not in (*answers, "deny", "never"):
        can_be = ", ".join(map(repr, answers))
        raise ValueError(f"answer must be one of {can_be}, not {answer!r}")


def asking(
    questions: Questions, ask: Callable[[AuditDenied], object]
) -> Callable[[AuditDenied], object]:
    """A plain ``on_ask`` of a session; it raises `StepEnds` where the step is to end."""

    @functools.wraps(ask)
    def asked(denied: AuditDenied) -> object:
        if (known := questions.known(denied)) is not None:
            return known
        try:
            with questions.now.thinking:
                answer = ask(denied)
        except Exception as error:
            questions.pass_on(error)
            raise
        return questions.settle(denied, answer)

    return asked


def asking_async(
    questions: Questions, ask: Callable[[AuditDenied], Awaitable[object]]
) -> Callable[[AuditDenied], Awaitable[object]]:
    """The same of a coroutine function."""

    async def asked(denied: AuditDenied) -> object:
        if (known := questions.known(denied)) is not None:
            return known
        try:
            with questions.now.thinking:
                answer = await ask(denied)
        except Exception as error:
            questions.pass_on(error)
            raise
        return questions.settle(denied, answer)

    return asked


def settled(ran: Result, step: StepQuestions) -> Result:
    """The result of a step that ended as its question waits."""
    pending = step.pending
    if pending is None:
        return ran
    line = None if ran.error is None else ran.error.line
    text = f"a person is asked first, and the step ended here: {pending.denied.message}"
    error = Error("Pending", text, f"Pending: {text}\n", line)
    return replace(ran, killed_by=PENDING, error=error, value=None, pending=pending)


def is_for_caller(error: Exception) -> bool:
    """True for what LangGraph raises to stop a node, such as by its `interrupt()`."""
    found = sys.modules.get("langgraph.errors")
    kind = getattr(found, "GraphBubbleUp", None)
    return isinstance(kind, type) and isinstance(error, kind)
