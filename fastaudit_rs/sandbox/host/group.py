"""Control groups (cgroups(7)), which count the memory of a process and of all that it starts.

A group is made where the host's own user may make one: as root mostly, else in a part of the tree
that is delegated, as systemd does for the services of a user.
"""

import contextlib
import functools
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: The beginning of the name of each group of ours; the second of its making follows.
PREFIX = "fastaudit-rs-"

#: The age from which on an empty group is one that a killed host left behind, in seconds.
STALE = 60

#: The time for the processes of a group to end, in seconds.
PATIENCE = 2.0


#: The number of processes that were killed for memory.
_KILLS = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class _Place:
    """A group in which groups can be made, and the version of its tree."""

    path: Path
    version: int


class Group:
    """A control group with a limit on memory, without swap.

    Args:
        path: Its directory.
        version: The version of its tree.
    """

    def __init__(self, path: Path, version: int) -> None:
        """Note it.

        Raises:
            OSError: It does not count, or there is no free descriptor.
        """
        self._path = path
        self._kills = 0
        name = "memory.events" if version == 2 else "memory.oom_control"
        # Open for as long as it is there: it is read after each run.
        self._events = os.open(path / name, os.O_RDONLY | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._closed = False

    def add(self, process: int) -> None:
        """Put a process into it; the processes that it starts from now on are in it too.

        Raises:
            OSError: The kernel refuses.
        """
        _write(self._path / "cgroup.procs", str(process))

    def kills(self) -> int:
        """The number of its processes that the kernel has killed for memory so far."""
        with self._lock:
            if not self._closed:
                found = _KILLS.search(os.pread(self._events, 1 << 12, 0))
                self._kills = 0 if found is None else int(found[1])
            return self._kills

    def close(self) -> None:
        """Kill its processes, and remove it as soon as they are gone."""
        self.kills()
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._events)
        deadline = time.monotonic() + PATIENCE
        while not _removed(self._path) and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                for process in (self._path / "cgroup.procs").read_text().split():
                    os.kill(int(process), signal.SIGKILL)
            time.sleep(0.002)


def made(memory: int) -> Group | None:
    """Return a new group with this limit, or `None` where none can be made."""
    for place in _places():
        path = place.path / f"{PREFIX}{int(time.time())}-{secrets.token_hex(8)}"
        try:
            path.mkdir()
        except OSError:
            continue
        try:
            _limit(path, place.version, memory)
            return Group(path, place.version)
        except OSError:
            _removed(path)
    return None


def joined(process: int, memory: int) -> Group | None:
    """Return a new group with a process in it, or `None` where there can be none."""
    group = made(memory)
    if group is not None:
        try:
            group.add(process)
        except OSError:
            group.close()
            return None
    return group


@functools.cache
def are_there() -> bool:
    """True if groups can be made here."""
    group = made(1 << 30)
    if group is None:
        return False
    group.close()
    return True


def _limit(path: Path, version: int, memory: int) -> None:
    """Set the limit of a new group."""
    if version == 2:
        _write(path / "memory.max", str(memory))
        # All of its processes are killed at once.
        _write(path / "memory.oom.group", "1")
        swap = path / "memory.swap.max"
        if swap.exists():
            _write(swap, "0")
        return
    _write(path / "memory.limit_in_bytes", str(memory))
    with_swap = path / "memory.memsw.limit_in_bytes"
    if with_swap.exists():
        _write(with_swap, str(memory))
    else:
        _write(path / "memory.swappiness", "0")


@functools.cache
def _places() -> tuple[_Place, ...]:
    """The places where a group may be made, the best first. Removes groups that were left there."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ()
    found = tuple(place for mount in mounts for place in _of_mount(mount, groups))
    for place in found:
        _sweep(place.path)
    return found


def _of_mount(mount: str, groups: list[str]) -> Iterator[_Place]:
    """The places of one mount: proc_pid_mountinfo(5)."""
    fields, _, rest = mount.partition(" - ")
    kind, _, options = rest.split(" ", 2)
    root, point = fields.split(" ")[3:5]
    for group in groups:
        _, controllers, own = group.split(":", 2)
        is_first = kind == "cgroup" and "memory" in options.split(",")
        if is_first and "memory" in controllers.split(","):
            path = _inside(own, root, point)
            if path is not None and _may(path):
                yield _Place(path, 1)
        elif kind == "cgroup2" and not controllers:
            path = _inside(own, root, point)
            while path is not None and path.is_relative_to(point):
                # A group with processes of its own passes no controllers on: one above it does.
                if _may(path) and "memory" in _words(path / "cgroup.subtree_control"):
                    yield _Place(path, 2)
                path = path.parent


def _inside(group: str, root: str, point: str) -> Path | None:
    """The directory of a group below a mount point that shows the tree from `root` on."""
    if not Path(group).is_relative_to(root):
        return None
    return Path(point, Path(group).relative_to(root))


def _may(path: Path) -> bool:
    """True if this process may make a group there and move a process into it."""
    return os.access(path, os.W_OK) and os.access(path / "cgroup.procs", os.W_OK)


def _sweep(place: Path) -> None:
    """Remove the groups that killed hosts have left behind: those with processes stay."""
    with contextlib.suppress(OSError):
        for path in place.glob(f"{PREFIX}*"):
            with contextlib.suppress(ValueError):
                made = int(path.name.removeprefix(PREFIX).partition("-")[0])
                if time.time() - made > STALE:
                    _removed(path)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _removed(path: Path) -> bool:
    """Remove a group; return false if it has processes."""
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
