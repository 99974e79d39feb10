"""What the host holds for kernels whose Landlock lacks it: those of Linux 5.13 to 6.11.

| Landlock | Linux | first holds |
|---|---|---|
| 1 | 5.13 | opening, making, removing files |
| 2 | 5.19 | renaming between directories, which is denied before |
| 3 | 6.2 | `truncate`: `Metadata` and the filter of system calls hold it before |
| 4 | 6.7 | ports of TCP: before, the host holds connecting, and the filter denies listening |
| 5 | 6.10 | requests for devices: the filter holds them before |
| 6 | 6.12 | signals: `Signals` holds them before |
| 6 | 6.12 | abstract Unix sockets: before, the filter lets none be made but in pairs, unless the \
network is the sandbox's own |

See landlock(7).
"""

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ... import _landlock

#: The version that first holds `truncate`.
TRUNCATE = 3

_FIELDS = re.compile(r"^(Tgid|PPid|NSpgid):\s+(\d+)", re.MULTILINE)


def options(kernel: Any) -> dict[str, Any]:
    """What has `sandlock`, if it is there, go on without the part that the host holds."""
    if kernel is None or _landlock.version() >= _landlock.WHOLE:
        return {}
    return {"allow_degraded": [int(each) for each in kernel.Protection]}


def rings() -> dict[str, str]:
    """The fields that the host holds too, as `Sandbox.explain` names the rings."""
    found = {}
    if _landlock.version() < TRUNCATE:
        found["write"] = "guard, kernel and host"
    if _landlock.version() < _landlock.WHOLE:
        found["other_processes"] = "guard, kernel and host"
    return found


def has_own_network(process: int) -> bool:
    """Whether its network is not ours: its abstract Unix sockets are its own too."""
    try:
        return os.readlink(f"/proc/{process}/ns/net") != os.readlink("/proc/self/ns/net")
    except OSError:
        return False


class _Task(NamedTuple):
    process: int
    parent: int
    group: int


def _task(number: int) -> _Task | None:
    """A process or a thread, if there is one of that number: proc_pid_status(5)."""
    try:
        text = Path(f"/proc/{number}/status").read_text(errors="replace")
    except OSError:
        return None
    found = dict(_FIELDS.findall(text))
    return _Task(*(int(found[name]) for name in ("Tgid", "PPid", "NSpgid")))


class Signals:
    """Answers the kernel's questions about signals: they reach processes of the sandbox alone.

    The process that waits for work gets none from the code that it starts.
    """

    #: The system calls that send one. The filter denies those by a descriptor.
    calls = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")

    #: The process that waits for work, once its number is known.
    first: int | None = None

    def answer(self, name: str, ctx: Any) -> int | None:
        """Return the number of an error, 0 if they are sent, `None` to leave it to the kernel."""
        caller = _task(ctx.pid)
        if caller is None or self.first is None:
            return errno.EPERM
        number = ctx.args[0] & 0xFFFFFFFF
        target = number - (1 << 32) if number >> 31 else number
        if target <= 0 and name == "kill":
            return self._to_many(caller, target, ctx.args[1] & 0xFFFFFFFF)
        numbers = [target]
        if name in ("tgkill", "rt_tgsigqueueinfo"):
            numbers.append(ctx.args[1] & 0xFFFFFFFF)
        tasks = [_task(number) for number in numbers if number > 0]
        if None in tasks or not tasks:
            # As the kernel answers for none.
            return errno.ESRCH
        is_inside = all(self._may_reach(caller, task) for task in tasks if task is not None)
        return None if is_inside else errno.EPERM

    def _may_reach(self, caller: _Task, target: _Task) -> bool:
        if target.process == self.first and caller.process != self.first:
            return False
        number, task = target.process, target
        while number != self.first:
            parent = _task(task.parent) if task.parent else None
            if parent is None:
                return False
            number, task = parent.process, parent
        return True

    def _to_many(self, caller: _Task, target: int, signal: int) -> int:
        """Send to those of a group, or to all, that are of the sandbox: kill(2)."""
        error = errno.ESRCH
        for task in _processes():
            if target == -1:
                is_meant = task.process not in (self.first, caller.process)
            else:
                is_meant = task.group == (-target or caller.group)
            if not is_meant:
                continue
            if not self._may_reach(caller, task):
                error = error and errno.EPERM
                continue
            try:
                os.kill(task.process, signal)
                error = 0
            except OSError as failed:
                error = error and (failed.errno or errno.EPERM)
        return error


def _processes() -> Iterator[_Task]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (task := _task(int(name))) is not None:
            yield task
