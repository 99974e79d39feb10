"""The machine's resources that a sandbox may use, and which of them ended a run.

Control groups (``host/cgroup.py``) and the kernel part (``host/setup.py``) hold memory, processes
and processor time of all processes together; ``host/process.py`` and ``inside/worker.py`` what
each has by itself. The host watches time, disk and output: ``host/run.py``, ``host/exchange.py``.
"""

import signal
from dataclasses import dataclass, fields

from .._keywords import checked
from ..sessions.arguments import count, seconds, size

_SIZES = ("memory", "disk", "output")

#: The bytes and the descriptors without which no process of Python starts here.
MEMORY, OPEN_FILES = 16 << 20, 16

#: The greatest that the system counts, or more than any machine has.
_MOST = {"cpu_seconds": 1 << 30, "cpu_percent": 100, "processes": 1 << 22, "open_files": 1 << 22}
_MOST |= dict.fromkeys(_SIZES, 1 << 50)

#: What ends a step by killing its process: the name and the message of the step's error.
KILLED = {
    "wall_seconds": ("TimeoutError", "the step took longer than it may, and did not end"),
    "interrupt": ("KeyboardInterrupt", "the step was interrupted, and did not end"),
    "pending": ("Pending", "the step was to wait for an answer, and did not end"),
    "output": ("OSError", "the step wrote more output than it may, and did not end"),
    "disk": ("OSError", "the files of the sandbox take more bytes than they may: remove some"),
    "memory": ("MemoryError", "the step took more memory than there may be"),
    "cpu_seconds": ("TimeoutError", "the steps took more processor time than they may"),
}


@checked("Limits")
@dataclass(frozen=True)
class Limits:
    """The limits of a run in a sandbox; ``None`` for no limit.

    Sizes are bytes, or texts such as ``"512M"``; M is 1,048,576.

    Attributes:
        memory: The memory of all processes together, at least ``"16M"``; of each process by itself
            if the kernel cannot count them together (`Sandbox.explain` says so).
        wall_seconds: The seconds that it may take.
        cpu_seconds: The seconds of processor time of each process.
        cpu_percent: The percentage of one core that all processes may use together, 1 to 100; of
            each core if the kernel cannot count them together.
        processes: How many processes it may have at a time; one more in a session with
            ``undo_depth``. It may have many more threads.
        open_files: How many descriptors each process may have, at least 16.
        disk: The bytes of the files in its directory. If there are more, later runs and steps can
            remove files but add nothing.
        output: The bytes that it may write to standard output and to standard error.

    Raises:
        TypeError: A limit has another type.
        ValueError: A limit is not positive, not a size, too small for any process, or greater than
            the system can count.

    Examples:
        >>> Limits(memory="512M", wall_seconds=5).memory
        536870912
    """

    memory: int | str | None = "2G"
    wall_seconds: float | None = 60
    cpu_seconds: int | None = None
    cpu_percent: int | None = None
    processes: int | None = 64
    open_files: int | None = 256
    disk: int | str | None = "1G"
    output: int | str | None = "10M"

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if name in _SIZES:
                object.__setattr__(self, name, value if value is None else size(name, value))
            elif name == "wall_seconds":
                seconds(name, value)
            elif value is not None:
                count(name, value, 1)
        for name, least in (("memory", MEMORY), ("open_files", OPEN_FILES)):
            value = getattr(self, name)
            if value is not None and value < least:
                why = "a process of Python takes that to start"
                raise ValueError(f"{name} must be at least {least}, not {value}: {why}")
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and value > most:
                raise ValueError(f"{name} must be at most {most}, not {value}: None is no limit")


def limit_of(
    status: int,
    limits: Limits,
    *,
    was_short: bool,
    counts_memory: bool = True,
    computed: float = 0,
) -> str | None:
    """The limit that ended a run, of those that its own process or the kernel holds.

    The kernel told that memory `was_short`, or may have killed it without telling where it
    `counts_memory`. The seconds that it has `computed` are 0 without a limit.
    """
    if status == -signal.SIGXCPU and limits.cpu_seconds is not None:
        return "cpu_seconds"
    if status == -signal.SIGXFSZ and limits.disk is not None:
        return "disk"
    if status < 0 and status != -signal.SIGKILL:
        return None
    if was_short:
        return "memory"
    if status >= 0:
        return None
    # Code that ignores the signal is killed a second later, by a less exact count.
    if limits.cpu_seconds is not None and computed > limits.cpu_seconds:
        return "cpu_seconds"
    return "memory" if counts_memory and limits.memory is not None else None


def keep(found: bytearray, data: bytes, most: int | str | None) -> bytes:
    """Add as much output to what was found as there is room for; return that."""
    kept = data if most is None else data[: max(int(most) - len(found), 0)]
    found += kept
    return kept
