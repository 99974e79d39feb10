"""The processes that this one started, seen from outside, at a moment and while they run."""

import contextlib
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

#: The time between two looks, in seconds.
INTERVAL = 0.02

#: The command line of this process.
OWN = Path("/proc/self/cmdline").read_bytes()

#: The fields of /proc/PID/stat after the name of the program: proc_pid_stat(5).
STATE, PARENT, TASKS, STARTED, PAGES = 0, 1, 17, 19, 21
TIMES = slice(11, 13)


class Process(NamedTuple):
    """A process, as it was at a moment."""

    number: int
    started: int
    tasks: int
    seconds: float
    megabytes: int
    has_ended: bool
    #: Whether it is a copy of this process, with its memory and files, that runs no program yet.
    is_copy: bool

    @property
    def files(self):
        with contextlib.suppress(OSError):
            return len(os.listdir(f"/proc/{self.number}/fd"))
        return 0


def descendants():
    """The processes that this one started, and those that they did; also those that have ended."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            # First: the memory is looked at no earlier.
            is_copy = Path(f"/proc/{name}/cmdline").read_bytes() == OWN
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            one = Process(
                number=int(name),
                started=int(fields[STARTED]),
                tasks=int(fields[TASKS]),
                seconds=sum(map(int, fields[TIMES])) / os.sysconf("SC_CLK_TCK"),
                megabytes=int(fields[PAGES]) * os.sysconf("SC_PAGESIZE") >> 20,
                has_ended=fields[STATE] in "ZX",
                is_copy=is_copy,
            )
            children.setdefault(int(fields[PARENT]), []).append(one)
    found = children.pop(os.getpid(), [])
    for each in found:
        found += children.pop(each.number, [])
    return found


class Watched(threading.Thread):
    """Watches the processes that this one starts from now on, until `told` is called."""

    def __init__(self):
        super().__init__(daemon=True)
        #: Those of other tests, such as a fork server.
        self._before = {(each.number, each.started) for each in descendants()}
        self._over = threading.Event()
        self._most = Counter()
        self._seconds = {}
        #: The moments, and the processor time of all until then.
        self._used = []
        self.start()

    def run(self):
        while not self._over.wait(INTERVAL):
            self._look()

    def told(self):
        """The most that there was.

        Of ``"processes"`` and ``"tasks"``, which are processes and threads, the numbers of all; of
        ``"files"`` and ``"megabytes"`` those of one process; of ``"cores"`` those that all of them
        used together for a second.
        """
        self._over.set()
        self.join()
        self._look()
        cores = 0.0
        for begun, before in self._used:
            for ended, after in self._used:
                if ended - begun >= 1:
                    cores = max(cores, (after - before) / (ended - begun))
                    break
        return {**self._most, "cores": cores}

    def _look(self):
        found = [
            each
            for each in descendants()
            if not each.has_ended and (each.number, each.started) not in self._before
        ]
        self._most |= Counter(
            processes=len(found),
            tasks=sum(each.tasks for each in found),
            megabytes=max((each.megabytes for each in found if not each.is_copy), default=0),
            files=max((each.files for each in found if not each.is_copy), default=0),
        )
        self._seconds |= {(each.number, each.started): each.seconds for each in found}
        self._used.append((time.monotonic(), sum(self._seconds.values())))
