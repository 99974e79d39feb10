"""A step of a session in this process, from its start to its result."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any

from .. import AuditDenied
from .._waiting import waits_here
from ..results import Error, Result
from . import step
from .guest import Guest, StepJob
from .values import unpack

#: The message of a step that was given up.
RUNS_ON = "the step could not be interrupted, and runs on: reset() starts another"

#: The seconds between two looks for Ctrl-C: a signal that comes just before a thread begins to wait
#: does not wake it.
LOOK = 0.05


class Running:
    def __init__(
        self,
        guest: Guest,
        job: StepJob,
        changes: Callable[[], list[str]],
        denied: Callable[[], list[AuditDenied]],
    ) -> None:
        self.guest = guest
        self.job = job
        self._changes = changes
        self._denied = denied

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
        changed = self._changes()
        killed_by = job.killed_by
        if killed_by is not None and outcome.error is None and job.is_done:
            # It ended by itself, just before.
            killed_by = killed_by if killed_by == "output" else None
        return Result(
            returncode=outcome.status,
            stdout=texts["stdout"],
            stderr=texts["stderr"],
            duration=(job.ended if job.is_done else time.monotonic()) - job.started,
            killed_by=killed_by,
            violations=self._denied(),
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


def wait(guest: Guest, job: StepJob, signs: "SimpleQueue[None]") -> None:
    with waits_here():
        while (seconds := job.wait(guest)) is not None:
            with contextlib.suppress(Empty):
                signs.get(timeout=min(seconds, LOOK))


async def awaited(guest: Guest, job: StepJob, sign: asyncio.Event) -> None:
    """Await what `wait` waits for."""
    while (seconds := job.wait(guest)) is not None:
        waited: Awaitable[object] = sign.wait()
        with contextlib.suppress(asyncio.TimeoutError):
            if seconds < threading.TIMEOUT_MAX:
                waited = asyncio.wait_for(waited, seconds)
            await waited
        sign.clear()
