"""The number of processes in each group of one sandbox.

`sandlock` counts all processes of what it confines together. Where sessions share that, the kernel
asks the host about each new process (seccomp_unotify(2)), and the host counts those of the group
that the caller is in (cgroups(7)).
"""

import errno
import re
import struct
from pathlib import Path
from typing import Any

from .cgroup import PREFIX, Cgroup
from .metadata import HAS_OLD

#: Threads are no processes: clone(2).
CLONE_THREAD = 0x10000

#: The name of the group of a process in /proc/PID/cgroup.
_GROUP = re.compile(rf"/({PREFIX}[\w-]+)$", re.MULTILINE)


class Counts:
    """Answers the kernel's questions about new processes."""

    #: The system calls that make one.
    calls = ("clone", "clone3", *(("fork", "vfork") if HAS_OLD else ()))

    def __init__(self) -> None:
        #: The process whose copies are counted; it makes any number.
        self.first: int | None = None
        #: The lists of processes of the groups, and how many there may be.
        self._most: dict[str, tuple[Path, int | None]] = {}

    def add(self, group: Cgroup, most: int | None) -> None:
        """Let so many processes be in a group."""
        for path in group.paths:
            self._most[path.name] = path / "cgroup.procs", most

    def remove(self, group: Cgroup) -> None:
        for path in group.paths:
            self._most.pop(path.name, None)

    def answer(self, name: str, ctx: Any) -> int | None:
        """Return the number of an error, or `None` to leave it to the kernel."""
        if self._flags(name, ctx) & CLONE_THREAD or ctx.pid == self.first:
            return None
        for group in _GROUP.findall(Path(f"/proc/{ctx.pid}/cgroup").read_text()):
            if group in self._most:
                processes, most = self._most[group]
                is_full = most is not None and len(processes.read_text().split()) >= most
                return errno.EAGAIN if is_full else None
        return errno.EPERM

    @staticmethod
    def _flags(name: str, ctx: Any) -> int:
        if name == "clone":
            return int(ctx.args[0])
        if name != "clone3":
            return 0
        found: bytes | None = ctx.read(ctx.args[0], 8)
        return 0 if found is None or len(found) != 8 else struct.unpack("=Q", found)[0]
