"""The thread that hands the lines of a log of decisions to a function of the host."""

import atexit
import sys
import threading
import traceback
from collections.abc import Callable

from ._native import AuditLog

#: The seconds that lines wait for the next look, unless one is urgent.
WAIT = 1.0

#: The seconds that the end of the process waits for the function.
PATIENCE = 5.0


def start(log: AuditLog, take: Callable[[bytes], object]) -> None:
    """Start the thread; it ends when the log is closed, at the end of the process at the latest."""
    begins, ends = threading.Event(), threading.Event()
    thread = threading.Thread(
        target=_hand_over, args=(log, take, begins, ends), name="fastaudit_rs log", daemon=True
    )
    thread.start()
    # The first thread that takes lines is the log's own for good.
    begins.wait(PATIENCE)
    atexit.register(_end, log, thread, ends)


def _hand_over(
    log: AuditLog,
    take: Callable[[bytes], object],
    begins: threading.Event,
    ends: threading.Event,
) -> None:
    was_told = False
    log._take(0)
    begins.set()
    while (lines := log._take(0 if ends.is_set() else WAIT)) is not None:
        if not lines:
            if ends.is_set():
                return
            continue
        try:
            take(lines)
        except Exception:
            # The guarded code goes on, as with a file that cannot be written.
            if not was_told:
                was_told = True
                print("fastaudit_rs: the function of an audit log raised:", file=sys.stderr)
                traceback.print_exc()


def _end(log: AuditLog, thread: threading.Thread, ends: threading.Event) -> None:
    ends.set()
    log._wake()
    thread.join(PATIENCE)
