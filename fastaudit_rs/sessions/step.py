"""A step of a session, where its code runs: in this process, or in a sandbox."""

import __future__

import ast
import asyncio
import contextlib
import inspect
import linecache
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import dropwhile
from operator import or_
from types import CodeType
from typing import Any

from .. import AuditDenied, Policy
from ..programs import DENIED, exit_status, explain_semaphores, line_of, parts
from ..results import Error
from . import kept
from .cells import INSTALL, starts_tasks, without_commands
from .forms import NotData, TooLarge, class_name, limited, message, told
from .shown import Shown
from .stdin import Input
from .values import pack

#: The flags that statements of ``__future__`` set.
FUTURE = reduce(
    or_,
    (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names),
)

#: The number of steps of a session whose lines tracebacks show.
REMEMBERED = 100

#: The seconds between two looks for a message that another thread may have read.
LOOK = 0.05

#: The status of a step that `KeyboardInterrupt` ended: that of a program that it ends.
INTERRUPTED = -signal.SIGINT

#: Code of no file that calls ``free``.
_FREE = compile("free()", "<session>", "eval")

#: The directory of the package, whose frames are left out of tracebacks.
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

#: Held while lines of tracebacks are looked up: each session in the process has a step 1.
_LINES = threading.Lock()


@dataclass
class Outcome:
    #: 0, 1, 77 for a denial, `INTERRUPTED`, or that of ``SystemExit``.
    status: int = 0
    error: Error | None = None
    #: The value of its last expression, packed.
    value: bytes | None = None
    value_error: str | None = None
    display: list[dict[str, str | bytes]] = field(default_factory=list)


class Loop:
    """The event loop of a session, which is made when a step first awaits something."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def __bool__(self) -> bool:
        """True if there is one, whose tasks may go on between steps."""
        return self._loop is not None and not self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end, and the tasks that steps have started meanwhile."""
        loop = self._loop
        if loop is None or loop.is_closed():
            self._loop = loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
        task = loop.create_task(coroutine)
        try:
            return loop.run_until_complete(task)
        except BaseException as error:
            with contextlib.suppress(BaseException):
                if not task.done():
                    # The step was interrupted: let its `finally` clauses run.
                    task.cancel()
                    loop.run_until_complete(task)
                elif task.cancelled() or task.exception() is not error:
                    # An interrupt hit another task as this one ended: let the loop stop.
                    loop.call_soon(loop.stop)
                    loop.run_forever()
            raise

    def run_until(self, descriptor: int, is_over: Callable[[], bool]) -> None:
        """Let the tasks of steps go on; look whether that is over once a descriptor can be read."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return

        def look() -> None:
            if is_over():
                loop.stop()

        def look_again() -> None:
            # Another thread may read the message first, so that no event comes.
            look()
            if threading.active_count() > 1 or asyncio.all_tasks(loop):
                loop.call_later(LOOK, look_again)

        # A duplicate: an awaited tool registers the descriptor itself with the loop.
        own, process = os.dup(descriptor), os.getpid()
        try:
            loop.add_reader(own, look)
            loop.call_soon(look_again)
            loop.run_forever()
        finally:
            # A forked child shares the loop's selector, and must leave it alone.
            if os.getpid() == process:
                with contextlib.suppress(Exception):
                    loop.remove_reader(own)
            os.close(own)

    def close(self) -> None:
        """Cancel the tasks that are left, and close the loop."""
        loop, self._loop = self._loop, None
        if loop is None or loop.is_closed():
            return
        try:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=1))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


class Sources:
    """The lines of the last steps of a session, for tracebacks."""

    def __init__(self, policy: Policy) -> None:
        self._steps: deque[tuple[str, Any]] = deque()
        self._policy = policy

    def may_show(self, file: str) -> bool:
        """Tell whether lines of a file may be looked up, which is no act of the step."""
        if file in linecache.cache or not os.path.isfile(file):
            return True
        return self._policy.explain("open", file, "r", 0).allowed

    def add(self, name: str, code: str) -> None:
        entry = (len(code), None, code.splitlines(keepends=True), name)
        self._steps.append((name, entry))
        linecache.cache[name] = entry
        if len(self._steps) > REMEMBERED:
            self._drop(*self._steps.popleft())

    def clear(self) -> None:
        while self._steps:
            self._drop(*self._steps.pop())

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Have these lines looked up, and not those of another session."""
        with _LINES:
            linecache.cache.update(self._steps)
            yield

    @staticmethod
    def _drop(name: str, entry: Any) -> None:
        if linecache.cache.get(name) is entry:
            linecache.cache.pop(name, None)


class StepContext:
    """What the steps of a session share, where their code runs."""

    def __init__(self, policy: Policy, names: dict[str, Any], shown: Shown) -> None:
        self.names = names
        #: What the session has given, by its names.
        self.own: dict[str, Any] = {}
        self.shown = shown
        self.input = Input()
        self.loop = Loop()
        self.sources = Sources(policy)
        self.definitions = kept.Definitions()
        #: The flags of the compiler that steps have set.
        self._future = 0

    def named(self) -> list[str]:
        """The names that steps have given values: another one than the session's."""
        return [
            name
            for name, value in self.names.items()
            if type(name) is str
            and not (name in self.own and self.own[name] is value)
            and not (name.startswith("__") and name.endswith("__"))
        ]

    def get(self, name: str) -> bytes | None:
        """The value of one of these names, packed; ``None`` if there is no such name."""
        return pack(self.names[name], place=name) if name in self.named() else None

    def outcome(self, code: str, number: int) -> Outcome:
        """Run a step, which tracebacks name by its number: ``<step 1>``.

        There is an outcome whatever the code does: only an exception that arrives from outside
        while it is made can be raised.
        """
        name = f"<step {number}>"
        outcome = Outcome()
        shown = self.shown
        shown.begin()
        before = kept.before(self.names)
        try:
            value = self._evaluate(code, name)
            if value is not None:
                _tell_value(outcome, value, shown)
                self._remember(value)
            del value
            shown.figures()
        except BaseException as error:
            _tell_error(outcome, error, name, self.sources)
            # Drops the frames, which would keep objects of the step alive. It runs in code without
            # a file, so that warnings, as of a coroutine never awaited, name no file of ours.
            eval(_FREE, {"free": partial(BaseException.with_traceback, error, None)})
            with contextlib.suppress(BaseException):
                shown.figures()
        outcome.display = shown.end()
        try:
            self.definitions.note(code, name, before, self.names)
        except KeyboardInterrupt:
            raise
        except BaseException:
            # Its code is none, or modules of the step's own raise something.
            pass
        return outcome

    def ended(self, work: Callable[[], int]) -> Outcome:
        """Do something in the place of a step's code, which returns its status."""
        outcome = Outcome()
        try:
            outcome.status = work()
        except BaseException as error:
            _tell_error(outcome, error, "", self.sources)
        return outcome

    def _remember(self, value: object) -> None:
        """Give the value the name ``_``, unless a step has given that another one."""
        if "_" not in self.names or self.names["_"] is self.own.get("_", self):
            self.own["_"] = self.names["_"] = value

    def record(self) -> bytes:
        """What lasts of the names, for a record."""
        return kept.record(self.names, self.named(), self.own, self.definitions)

    def revive(self, body: bytes | memoryview) -> dict[str, str]:
        """Give names what a record has; return what is lost."""
        names, own, show = self.names, self.own, self.sources.add
        return kept.restore(body, names, own, self.definitions, show)

    def _compiled(self, code: str, name: str) -> list[CodeType]:
        """Compile a step; what it imports from ``__future__`` lasts, as in a notebook."""
        compiled = parts(
            code,
            name,
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | self._future,
            wanted=lambda last: not _ends_in_semicolon(code, last),
        )
        for part in compiled:
            self._future |= part.co_flags & FUTURE
        return compiled

    def _evaluate(self, code: str, name: str) -> object:
        """Run code; return the value of its last expression, unless a semicolon ends it."""
        self.sources.add(name, code)
        try:
            compiled = self._compiled(code, name)
        except SyntaxError as error:
            if error.filename != name:
                raise
            meant = without_commands(code, error, INSTALL in self.own)
            if meant is None:
                raise
            compiled = self._compiled(meant, name)
        if any(map(_awaits, compiled)) or starts_tasks(compiled, self.names):
            return self.loop.run(awaited(compiled, self.names))
        result = None
        for part in compiled:
            result = eval(part, self.names)
        return result


async def awaited(parts: list[CodeType], namespace: dict[str, Any]) -> object:
    """Run the parts of a step in its event loop, also those that await nothing."""
    result = None
    for part in parts:
        result = eval(part, namespace)
        if _awaits(part):
            result = await result
    return result


def _awaits(part: CodeType) -> bool:
    return bool(part.co_flags & inspect.CO_COROUTINE)


def _ends_in_semicolon(code: str, last: ast.Expr) -> bool:
    lines = code.encode(errors="surrogatepass").splitlines()
    rest = lines[(last.end_lineno or 1) - 1][last.end_col_offset :]
    return rest.lstrip(b" \t\f)").startswith(b";")


def _tell_value(outcome: Outcome, value: object, shown: Shown) -> None:
    shown.add(value)
    try:
        try:
            outcome.value = pack(value)
        except TooLarge as error:
            outcome.value_error = str(error)
        except (NotData, ValueError, RecursionError):
            outcome.value = pack(limited(repr(value)))
    except KeyboardInterrupt:
        raise
    except BaseException as failed:
        outcome.value_error = told(failed)


def _tell_error(outcome: Outcome, error: BaseException, name: str, sources: Sources) -> None:
    # Only its type is trusted: attributes of the code's exceptions can be anything.
    ended_by = type(error)
    if issubclass(ended_by, SystemExit):
        outcome.status = exit_status(vars(SystemExit)["code"].__get__(error))
        if outcome.status == 0:
            return
    elif issubclass(ended_by, KeyboardInterrupt):
        outcome.status = INTERRUPTED
    else:
        outcome.status = DENIED if issubclass(ended_by, AuditDenied) else 1
    explain_semaphores(error)
    kind, text = class_name(ended_by), message(error)
    line, whole = line_of(error, name), f"{kind}: {text}\n"
    for _ in range(2):
        try:
            whole = _traceback(error, sources)
            break
        except KeyboardInterrupt:
            # The host repeats an interrupt, and this can take longer on a busy machine.
            continue
        except BaseException:
            # An exception's class can make formatting fail.
            break
    outcome.error = Error(kind, text, limited(whole), line)


def _traceback(error: BaseException, sources: Sources) -> str:
    """The traceback as Python prints it, without frames of this package."""
    whole = traceback.TracebackException.from_exception(error, lookup_lines=False)
    whole.stack[:] = dropwhile(lambda one: not one.filename.startswith("<step "), whole.stack)
    with sources.shown():
        for part in _parts(whole):
            part.stack[:] = [
                frame if sources.may_show(frame.filename) else _without_line(frame)
                for frame in part.stack
                if not frame.filename.startswith(_OWN)
            ]
            for frame in part.stack:
                _ = frame.line
    return "".join(whole.format())


def _without_line(frame: traceback.FrameSummary) -> traceback.FrameSummary:
    return traceback.FrameSummary(
        frame.filename, frame.lineno, frame.name, lookup_line=False, line=""
    )


def _parts(whole: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    rest: list[traceback.TracebackException | None] = [whole]
    while rest:
        part = rest.pop()
        if part is not None:
            yield part
            rest += [part.__cause__, part.__context__, *(getattr(part, "exceptions", None) or ())]
