"""The limits that each process has by itself: setrlimit(2)."""

import contextlib
import os
import sys

from ..limits import Limits


def of(limits: Limits, *, memory: bool, others: bool) -> dict[int, int]:
    """The limits of each process, by their numbers; memory and others if nothing else does it."""
    # Not on all systems on which this package can be imported.
    import resource

    found = {}
    if memory and limits.memory is not None:
        found[resource.RLIMIT_DATA] = int(limits.memory)
    if not others:
        return found
    if limits.open_files is not None:
        found[resource.RLIMIT_NOFILE] = limits.open_files
    if limits.processes is not None and counts_processes():
        # The kernel counts all of the user's, and one more waits for work.
        found[resource.RLIMIT_NPROC] = tasks() + limits.processes + 1
    return found


def counts_processes() -> bool:
    """True if the kernel limits the processes of this user: not those of root."""
    return sys.platform == "linux" and os.getuid() != 0


def tasks() -> int:
    """Return the number of the processes and threads of this user."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == os.getuid():
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count
