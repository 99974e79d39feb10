"""Bounds of a program: its time, its memory, and the place of its temporary files."""

import argparse
import contextlib
import math
import os
import signal
import sys
import tempfile
import time

from ..sandbox.limits import Limits

#: The exit status for a program that took too long: that of timeout(1).
TIMED_OUT = 124

#: The time for a program that took too long to end by itself, in seconds.
PATIENCE = 1.0

#: The time between looks at it, in seconds: longer once it has run for a while.
SOON, LATER = 0.001, 0.05

#: Signals that are passed on to the program.
PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")


def add_bounds(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    parser.add_argument(
        "--timeout", metavar="SECONDS", help=f"end it after this time; the status is {TIMED_OUT}"
    )
    parser.add_argument("--memory", metavar="SIZE", help="address space of each of its processes")
    parser.add_argument("--tmp", metavar="DIR", help="directory for its temporary files")


def limits_of(options: argparse.Namespace) -> Limits:
    """Return the limits of the options; no limit for those that they do not name.

    Raises:
        ValueError: A value is not accepted.
    """
    seconds = None
    if options.timeout is not None:
        try:
            seconds = float(options.timeout)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            raise ValueError(f"--timeout takes seconds, such as 30 or 0.5, not {options.timeout}")
    try:
        return Limits(memory=options.memory, wall_seconds=seconds)
    except ValueError:
        raise ValueError(f"--memory takes a size such as 512M, not {options.memory}") from None


def enter(limits: Limits, tmp: str | None) -> None:
    """Bound this process, and its children.

    Args:
        limits: The limits; only that of memory counts here.
        tmp: The directory for temporary files.
    """
    if limits.memory is not None:
        import resource

        size = int(limits.memory)
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard != resource.RLIM_INFINITY:
            size = min(size, hard)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
    if tmp is not None:
        os.environ["TMPDIR"] = tempfile.tempdir = os.path.abspath(tmp)


def run_until(seconds: float) -> None:
    """Go on in a copy of this process; the process itself waits, and exits as the copy does.

    After this time it ends the copy, whatever it is doing.

    Args:
        seconds: The time that the copy may take.
    """
    child = os.fork()
    if child == 0:
        return
    _pass_on(child)
    status = _status_after(child, seconds)
    if status is None:
        tell_of_timeout(seconds)
        os.kill(child, signal.SIGTERM)
        if _status_after(child, PATIENCE) is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os._exit(TIMED_OUT)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        # The parent of this process sees the outcome of the program.
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def tell_of_timeout(seconds: float) -> None:
    """Say on standard error that a program took too long."""
    print(f"fastaudit-rs: ended after {seconds:g} s (--timeout)", file=sys.stderr, flush=True)


def _status_after(child: int, seconds: float) -> int | None:
    """Return the status that a process ended with, ``None`` if it has not ended by then."""
    begun = time.monotonic()
    wait = SOON
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        left = begun + seconds - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(wait, left))
        wait = min(wait * 2, LATER)


def _pass_on(child: int) -> None:
    """Pass signals on from now. A terminal sends its keys' signals to both."""

    def pass_on(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for name in PASSED_ON:
        signal.signal(getattr(signal, name), pass_on)
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
