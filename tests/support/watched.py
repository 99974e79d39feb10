"""The processes that a host started, watched by the host from outside while they run."""

import contextlib
import os
import threading
import time
from collections import Counter
from typing import NamedTuple

#: The time between two looks, in seconds.
INTERVAL = 0.02

#: The fields of /proc/PID/stat after the name of the program: proc_pid_stat(5).
STATE, PARENT, TASKS, STARTED, PAGES = 0, 1, 17, 19, 21
TIMES = slice(11, 13)


class Process(NamedTuple):
    """A process, as it was at a moment."""

    number: int
    started: int
    parent: int
    tasks: int
    seconds: float
    megabytes: int


class Watched(threading.Thread):
    """Watches the descendants of this process until `told` is called."""

    def __init__(self) -> None:
        """Begin to watch."""
        super().__init__(daemon=True)
        self._over = threading.Event()
        self._most: Counter[str] = Counter()
        self._seconds: dict[tuple[int, int], float] = {}
        #: The moments, and the processor time of all until then.
        self._used: list[tuple[float, float]] = []
        self.start()

    def run(self) -> None:
        """Look, again and again."""
        while not self._over.wait(INTERVAL):
            self._look()

    def told(self) -> dict[str, float]:
        """Return the most that there was.

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

    def _look(self) -> None:
        found = list(_descendants())
        now = {
            "processes": len(found),
            "tasks": sum(each.tasks for each in found),
            "megabytes": max((each.megabytes for each in found), default=0),
            "files": max((_files(each.number) for each in found), default=0),
        }
        self._most |= Counter(now)
        for each in found:
            self._seconds[each.number, each.started] = each.seconds
        self._used.append((time.monotonic(), sum(self._seconds.values())))


def _descendants() -> list[Process]:
    children: dict[int, list[Process]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
                if fields[STATE] not in "ZX":
                    one = Process(
                        number=int(name),
                        started=int(fields[STARTED]),
                        parent=int(fields[PARENT]),
                        tasks=int(fields[TASKS]),
                        seconds=sum(map(int, fields[TIMES])) / os.sysconf("SC_CLK_TCK"),
                        megabytes=int(fields[PAGES]) * os.sysconf("SC_PAGESIZE") >> 20,
                    )
                    children.setdefault(one.parent, []).append(one)
    found = children.pop(os.getpid(), [])
    for each in found:
        found += children.pop(each.number, [])
    return found


def _files(process: int) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{process}/fd"))
    return 0
