"""A step of a session in this process, from its start to its result."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from .. import AuditDenied, _native
from .._waiting import waits_here
from ..results import Error, Result, Timings
from . import step
from .guest import LOOK, Guest, StepJob
from .pieces import Output, Tell
from .questions import StepQuestions
from .values import unpack

#: The denials of a step that are told, as in the log of a guard.
TOLD = 1000

#: The message of a step that was given up.
RUNS_ON = "the step could not be interrupted, and was undone: it runs on without the session"


class Denials:
    """The denials of the step that runs, as data that need no guard to be read."""

    def __init__(self) -> None:
        self._now: list[_native._Denial] = []

    def begin(self) -> Callable[[], list[AuditDenied]]:
        """Begin a step; return a function that tells its denials."""
        now: list[_native._Denial] = []
        self._now = now
        return lambda: [denial.exception() for denial in now[:]]

    def note(self, error: AuditDenied) -> None:
        """Note a denial before the code has it, which may change it."""
        if len(self._now) < TOLD:
            self._now.append(error._denial)


def changes_from_now(directory: _native._Directory | None) -> Callable[[], list[str]]:
    """Return a function that tells which files have changed since then, if there is a directory."""
    if directory is None:
        return list
    first = directory.begin()

    def changed() -> list[str]:
        # The session may be closed.
        with contextlib.suppress(RuntimeError):
            return directory.end(first)
        return []

    return changed


class Running(NamedTuple):
    guest: Guest
    job: StepJob
    changes: Callable[[], list[str]]
    denied: Callable[[], list[AuditDenied]]
    asked: StepQuestions

    def result(self) -> Result:
        job = self.job
        if job.refused is not None:
            raise job.refused
        outcome = job.result or _without_end(job)
        value: Any = None
        if outcome.value is not None:
            try:
                value = unpack(outcome.value, own=True)
            except Exception as bad:
                outcome.value_error = f"it cannot be read: {bad}"
        texts = self.guest.output.end()
        changed = self.changes()
        killed_by = job.killed_by
        is_at_its_end = outcome.error is None and job.is_done and not job.was_interrupted
        if killed_by is not None and is_at_its_end:
            # It ended by itself just before it was stopped.
            killed_by = killed_by if killed_by == "output" else None
        ended = job.ended if job.is_done else time.monotonic()
        return Result(
            returncode=outcome.status,
            stdout=texts["stdout"],
            stderr=texts["stderr"],
            duration=ended - job.started,
            timings=Timings.between(job.asked, job.started, ended, (job.began, job.ended)),
            killed_by=killed_by,
            violations=self.denied(),
            value=value,
            confined=False,
            changed=changed,
            value_error=outcome.value_error,
            error=outcome.error,
            display=outcome.display,
        )


def _without_end(job: StepJob) -> step.Outcome:
    """The outcome of a step that did not tell its own."""
    failed = job.failed
    if failed is None or type(failed) is KeyboardInterrupt:
        status, error = step.INTERRUPTED, Error("KeyboardInterrupt", "" if job.is_done else RUNS_ON)
    else:
        status, error = 1, Error(type(failed).__name__, str(failed))
    return step.Outcome(status, replace(error, traceback=f"{error}\n"))


def wait(
    guest: Guest,
    job: StepJob,
    signs: "SimpleQueue[Output | None]",
    on_output: Tell | None = None,
) -> None:
    """Wait for a job's end, and tell of the output that comes among the signs to look."""
    with waits_here():
        while (seconds := job.wait(guest)) is not None:
            sign = None
            with contextlib.suppress(Empty):
                sign = signs.get(timeout=min(seconds, LOOK))
            if sign is not None and on_output is not None:
                on_output(sign)
        guest.output.end_lines()
        while on_output is not None and not signs.empty():
            sign = signs.get()
            if sign is not None:
                on_output(sign)


async def awaited(guest: Guest, job: StepJob, sign: asyncio.Event) -> None:
    """Await what `wait` waits for."""
    while (seconds := job.wait(guest)) is not None:
        waited: Awaitable[object] = sign.wait()
        with contextlib.suppress(asyncio.TimeoutError):
            if seconds < threading.TIMEOUT_MAX:
                waited = asyncio.wait_for(waited, seconds)
            await waited
        sign.clear()
    guest.output.end_lines()
