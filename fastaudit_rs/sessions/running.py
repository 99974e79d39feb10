"""A step of a session in this process, from its start to its result."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from queue import Empty, SimpleQueue

from .._waiting import waits_here
from ..results import Error, Result
from . import step
from .guest import Guest, Job
from .values import unpack

#: The message of a step that was given up.
RUNS_ON = "the step could not be interrupted, and runs on: reset() starts another"

#: The seconds between two looks for Ctrl-C: a signal that comes just before a thread begins to wait
#: does not wake it.
LOOK = 0.05


class Running:
    """A step that was started."""

    def __init__(self, guest: Guest, job: Job, changes: Callable[[], list[str]]) -> None:
        """Note it.

        Args:
            guest: The thread that it runs on.
            job: The same for the thread.
            changes: Returns the names of the files that changed meanwhile, and looks no longer.
        """
        self.guest = guest
        self.job = job
        self._changes = changes

    def result(self) -> Result:
        """Return its result, once it has ended or was given up."""
        job = self.job
        if job.failed is not None and not isinstance(job.failed, KeyboardInterrupt):
            raise job.failed
        outcome, denied = job.result or (None, [])
        if outcome is None:
            error = Error("KeyboardInterrupt", "" if job.is_done else RUNS_ON)
            error = replace(error, traceback=f"{error}\n")
            outcome = step.Outcome(step.INTERRUPTED, error)
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
            violations=denied,
            value=None if outcome.value is None else unpack(outcome.value, own=True),
            confined=False,
            changed=changed,
            value_error=outcome.value_error,
            error=outcome.error,
            display=outcome.display,
        )


def wait(guest: Guest, job: Job, signs: "SimpleQueue[None]") -> None:
    """Wait until a job has ended, or is given up."""
    with waits_here():
        while (seconds := job.wait(guest)) is not None:
            with contextlib.suppress(Empty):
                signs.get(timeout=min(seconds, LOOK))


async def awaited(guest: Guest, job: Job, sign: asyncio.Event) -> None:
    """Await what `wait` waits for."""
    while (seconds := job.wait(guest)) is not None:
        waited: Awaitable[object] = sign.wait()
        with contextlib.suppress(asyncio.TimeoutError):
            if seconds < threading.TIMEOUT_MAX:
                waited = asyncio.wait_for(waited, seconds)
            await waited
        sign.clear()
