"""One run in a sandbox: a process that is watched until it ends."""

import contextlib
import io
import json
import marshal
import math
import os
import selectors
import signal
import time
from dataclasses import replace
from typing import Any, cast

from ... import AuditDenied
from ..._native import _json_extent
from ...results import Error, Result
from ..limits import keep
from ..wire import DENIALS, REPORT, Job, receive, send
from . import copies
from .calls import Questions
from .decisions import Decisions
from .files import Disk
from .process import SandboxError, Worker
from .runner import CancelToken, SandboxConfig
from .setup import WorkerSource

#: The time between looks at a run, in seconds.
INTERVAL = 0.05

#: The time for a worker to end by itself, in seconds.
PATIENCE = 1.0

#: The lines of a report that are read besides its last one.
LINES = 10_000

#: The number of values in a report, and how deep one may be in others: each takes memory of the
#: host.
VALUES, DEPTH = 1 << 20, 100


class Run:
    def __init__(
        self, config: SandboxConfig, cancel: CancelToken, questions: Questions | None = None
    ) -> None:
        self._decisions = None if config.log is None else Decisions(config.log)
        self._cancel = cancel
        self._questions = questions
        self._limits = config.limits
        self._disk = Disk(config.base, config.limits.disk)
        self._killed_by: str | None = None
        self._status: int | None = None
        self._found = {name: bytearray() for name in ("stdout", "stderr", "report")}
        #: True if the worker can be used again.
        self._is_clean = False

    def result(self, workers: WorkerSource, job: Job, given: bytes) -> Result:
        """Run a job in a child of a worker, to its end. An error ends the worker."""
        decisions = self._decisions
        with contextlib.ExitStack() as stack:
            for reader in (self._questions, decisions):
                if reader is not None:
                    stack.callback(reader.close)
            worker = stack.enter_context(workers(self._cancel))
            result = self._ran(worker, marshal.dumps(cast(Any, job)), given)
            if not self._is_clean:
                worker.end()
        if decisions is None:
            return result
        decisions.add(result)
        return replace(result, decisions=decisions.kept)

    def _ran(self, worker: Worker, job: bytes, given: bytes) -> Result:
        begun = time.monotonic()
        worker.begin_requests()
        try:
            self._cancel.check()
            with _Pipes() as pipes, selectors.PollSelector() as selector:
                self._begin(worker, job, given, pipes, selector)
                self._watch(worker, selector, begun)
        except BaseException:
            worker.end()
            raise
        finally:
            self._disk.close()
        returncode = self._status
        if returncode is None or self._killed_by is not None:
            ended = worker.end(PATIENCE if self._killed_by is None else 0)
            if self._killed_by is None and not ended.was_killed:
                raise SandboxError(f"the process of the sandbox ended: {ended}")
            returncode = -signal.SIGKILL
        if self._killed_by is None:
            self._killed_by = worker.limit_of(returncode)
        result = Result(
            returncode=returncode,
            stdout=self._found["stdout"].decode(errors="replace"),
            stderr=self._found["stderr"].decode(errors="replace"),
            duration=time.monotonic() - begun,
            killed_by=self._killed_by,
            confined=worker.is_confined,
            **told(self._found["report"]),
        )
        return worker.with_requests(result, are_over=True)

    def _begin(
        self,
        worker: Worker,
        job: bytes,
        given: bytes,
        pipes: contextlib.ExitStack,
        selector: selectors.BaseSelector,
    ) -> None:
        """Hand the job to the worker, with the other ends of the watched descriptors."""
        with contextlib.ExitStack() as theirs:

            def pipe(mine: int) -> tuple[io.FileIO, int]:
                ends = os.pipe()
                stream = io.FileIO(ends[mine], "wb" if mine else "rb")
                pipes.callback(stream.close)
                theirs.callback(os.close, ends[1 - mine])
                os.set_blocking(ends[mine], False)
                return stream, ends[1 - mine]

            stdin, reading = pipe(1)
            passed = [reading]
            for name in self._found:
                stream, writing = pipe(0)
                selector.register(stream, selectors.EVENT_READ, name)
                passed.append(writing)
            selector.register(stdin, selectors.EVENT_WRITE, memoryview(given))
            self._write(selector, selector.get_key(stdin))
            selector.register(worker.control, selectors.EVENT_READ, None)
            if self._questions is not None:
                passed.append(self._questions.passed())
                theirs.callback(self._questions.sent)
                selector.register(self._questions, selectors.EVENT_READ)
            if self._decisions is not None:
                passed.append(self._decisions.descriptor())
                theirs.callback(os.close, passed[-1])
            with contextlib.suppress(OSError):
                # A worker that is gone shows in the descriptors that are watched.
                send(worker.control, job, passed)

    def _watch(self, worker: Worker, selector: selectors.BaseSelector, begun: float) -> None:
        limits = self._limits
        wait = INTERVAL
        questions = self._questions
        while True:
            if questions is not None:
                questions.flush()
            ready = selector.select(wait)
            for key, _ in ready:
                if key.fileobj is worker.control:
                    self._hear(worker)
                    selector.unregister(worker.control)
                    # All of its output is there: nothing of it runs any more.
                    wait = 0
                elif key.fileobj is questions and questions is not None:
                    if not questions.hear():
                        selector.unregister(questions)
                        questions.close()
                elif key.events == selectors.EVENT_WRITE:
                    self._write(selector, key)
                else:
                    self._read(worker, selector, key)
            readable = any(key.events == selectors.EVENT_READ for key, _ in ready)
            if wait == 0 and not readable:
                return
            self._cancel.check()
            now = time.monotonic()
            if now - begun > (limits.wall_seconds or math.inf):
                self._end(worker, "wall_seconds")
            if now - begun > INTERVAL and self._disk.is_over(worker.pid):
                self._end(worker, "disk")

    def _hear(self, worker: Worker) -> None:
        with contextlib.suppress(EOFError, OSError, ValueError):
            status, is_clean = map(int, receive(worker.control)[0].split())
            self._status, self._is_clean = status, bool(is_clean)

    def _write(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        rest: memoryview = key.data
        try:
            while rest:
                rest = rest[os.write(key.fd, rest) :]
        except BlockingIOError:
            selector.modify(key.fileobj, selectors.EVENT_WRITE, rest)
            return
        except OSError:
            # Nobody reads it.
            pass
        stream = selector.unregister(key.fileobj).fileobj
        assert isinstance(stream, io.FileIO)
        stream.close()

    def _read(
        self, worker: Worker, selector: selectors.BaseSelector, key: selectors.SelectorKey
    ) -> None:
        data = os.read(key.fd, 1 << 16)
        if not data:
            selector.unregister(key.fileobj)
            return
        most = REPORT if key.data == "report" else self._limits.output
        kept = keep(self._found[key.data], data, most)
        if len(kept) < len(data) and key.data != "report":
            self._end(worker, "output")

    def _end(self, worker: Worker, limit: str) -> None:
        if self._killed_by is None:
            self._killed_by = limit
            worker.kill()


class _Pipes(contextlib.ExitStack):
    """The ends of pipes to a run. A copy of the host closes its own: the run reads to the end."""

    def __init__(self) -> None:
        super().__init__()
        copies.note(self)

    def begin_anew(self) -> None:
        self.close()


def told(report: bytes | bytearray) -> dict[str, Any]:
    """Return the fields of a result that a run reported: denials, its value and its exception.

    Malformed lines are left out, and those that could cost the host much: they need not be ours.
    """
    violations: list[AuditDenied] = []
    value = value_error = error = None
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
            elif "denied" not in told:
                value = told["value"]
            elif len(violations) < DENIALS:
                violations.append(AuditDenied.from_dict(told["denied"]))
    if value is None and value_error is None and error is None and len(report) >= REPORT:
        value_error = f"its report is longer than {REPORT >> 20} MB"
    return {
        "violations": violations,
        "value": value,
        "value_error": value_error,
        "error": error,
    }


def error_told(given: Any) -> Error | None:
    """Return an exception as code told of it; `None` if it told of nothing such."""
    if type(given) is not dict:
        return None
    texts = (given.get(name) for name in ("kind", "message", "traceback"))
    kind, message, traceback = (text if type(text) is str else "" for text in texts)
    line = given.get("line")
    return Error(kind, message, traceback, line if type(line) is int else None)
