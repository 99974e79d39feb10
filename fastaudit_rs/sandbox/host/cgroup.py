"""Control groups (cgroups(7)), which limit a process and all that it starts, together.

They count memory (``"memory"``), processes with their threads (``"pids"``), and processor time
(``"cpu"``): the names of their controllers. A group is made where the host's own user may make one:
as root mostly, else in a part of the tree that is delegated, as systemd does for the services of a
user. The packages for this, such as `cgroupspy`, know version 1 alone.
"""

import contextlib
import errno
import functools
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..limits import Limits

#: The beginning of the name of each group of ours; the second of its making follows.
PREFIX = "fastaudit-rs-"

#: The age from which on an empty group is one that a killed host left behind, in seconds.
STALE = 60

#: The time for the processes of a group to end, in seconds.
PATIENCE = 2.0

#: The number of processes that were killed for memory.
_KILLS = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)

#: Limits that tell which controllers there are; a percentage for processor time.
_TRIED = {"memory": 1 << 30, "pids": 1 << 10, "cpu": 100}

#: The threads, and processes that have ended and that nobody has waited for, that there may be in
#: all besides `Limits.processes`: libraries start threads for each core, also of a large machine.
THREADS = 1024

#: The time in which the part of a processor is counted, in microseconds.
_PERIOD = 100_000


@dataclass(frozen=True)
class _Place:
    """A group in which groups can be made, the version of its tree, and controllers for them."""

    path: Path
    version: int
    controllers: frozenset[str]


#: Groups that could not be removed: a guard was in force, or a process does not end.
_left: list[Path] = []


class Cgroup:
    """A control group with limits: a directory, or one in each tree of version 1."""

    def __init__(self, places: Sequence[_Place]) -> None:
        self.paths = [place.path for place in places]
        #: The controllers that limit it.
        self.held = frozenset().union(*(place.controllers for place in places))
        self._kills = 0
        self._events: int | None = None
        for place in places:
            if "memory" in place.controllers:
                name = "memory.events" if place.version == 2 else "memory.oom_control"
                # Open for as long as it is there: it is read after each run.
                self._events = os.open(place.path / name, os.O_RDONLY | os.O_CLOEXEC)
        self._lock = threading.Lock()

    def add(self, process: int) -> None:
        """Put a process into it; the processes that it starts from now on are in it too."""
        for path in self.paths:
            (path / "cgroup.procs").write_text(str(process))

    def kills(self) -> int:
        """The number of its processes that the kernel has killed for memory so far."""
        with self._lock:
            if self._events is not None:
                found = _KILLS.search(os.pread(self._events, 1 << 12, 0))
                self._kills = 0 if found is None else int(found[1])
            return self._kills

    def forget(self) -> None:
        """Close what a copy of the host has of it."""
        events, self._events = self._events, None
        if events is not None:
            os.close(events)

    def close(self) -> None:
        """Kill its processes, and remove it as soon as they are gone."""
        self.kills()
        with self._lock:
            self.forget()
        deadline = time.monotonic() + PATIENCE
        for path in self.paths:
            while not _removed(path) and time.monotonic() < deadline:
                self.kill()
                time.sleep(0.002)
            if path.exists():
                _left.append(path)

    def kill(self) -> None:
        """Kill its processes."""
        for path in self.paths:
            with contextlib.suppress(OSError):
                for process in (path / "cgroup.procs").read_text().split():
                    os.kill(int(process), signal.SIGKILL)


def wanted(limits: Limits, is_confined: bool) -> dict[str, int]:
    """Return the limits for all of a sandbox's processes together, by their controllers."""
    found = {}
    if limits.memory is not None:
        found["memory"] = int(limits.memory)
    if limits.cpu_percent is not None:
        found["cpu"] = limits.cpu_percent
    if is_confined and limits.processes is not None:
        # One more waits for work.
        found["pids"] = limits.processes + 1 + THREADS
    return found


def made(limits: Mapping[str, int]) -> Cgroup | None:
    """Return a new group with those of the limits that can be set here, or `None` if none can."""
    for path in list(_left):
        if _removed(path) and not path.exists():
            with contextlib.suppress(ValueError):
                _left.remove(path)
    found: list[_Place] = []
    missing = dict(limits)
    for place in _places():
        # In a tree of version 2 a process is in one group.
        if place.version == 2 and any(other.version == 2 for other in found):
            continue
        own = _made_in(place, missing)
        if own is not None:
            found.append(own)
            for controller in own.controllers:
                del missing[controller]
    try:
        return Cgroup(found) if found else None
    except OSError:
        for place in found:
            _removed(place.path)
        return None


def joined(process: int, limits: Mapping[str, int]) -> Cgroup | None:
    group = made(limits)
    if group is not None:
        try:
            group.add(process)
        except OSError:
            group.close()
            return None
    return group


@functools.cache
def are_there(controller: str = "memory") -> bool:
    group = made({controller: _TRIED[controller]})
    if group is None:
        return False
    group.close()
    return True


def _made_in(place: _Place, limits: Mapping[str, int]) -> _Place | None:
    """Make a group there; return it with the limits that could be set, if any could."""
    wanted = place.controllers & limits.keys()
    if not wanted:
        return None
    path = place.path / f"{PREFIX}{int(time.time())}-{secrets.token_hex(8)}"
    held = set()
    with contextlib.suppress(OSError):
        path.mkdir()
        for controller in sorted(wanted):
            with contextlib.suppress(OSError):
                settings = _settings(path, controller, place.version, limits[controller])
                for name, value in settings.items():
                    (path / name).write_text(str(value))
                held.add(controller)
        if not held:
            _removed(path)
    return _Place(path, place.version, frozenset(held)) if held else None


def _settings(path: Path, controller: str, version: int, most: int) -> Mapping[str, int | str]:
    """The files of a group that hold a limit, and what is written to them."""
    if controller == "pids":
        return {"pids.max": most}
    if controller == "cpu":
        # A part of one core.
        most = most * _PERIOD // 100
        if version == 2:
            return {"cpu.max": f"{most} {_PERIOD}"}
        return {"cpu.cfs_period_us": _PERIOD, "cpu.cfs_quota_us": most}
    if version == 2:
        # All of its processes are killed at once.
        swap = {"memory.swap.max": 0} if (path / "memory.swap.max").exists() else {}
        return {"memory.max": most, "memory.oom.group": 1, **swap}
    with_swap = "memory.memsw.limit_in_bytes"
    without = {with_swap: most} if (path / with_swap).exists() else {"memory.swappiness": 0}
    return {"memory.limit_in_bytes": most} | without


@functools.cache
def _places() -> tuple[_Place, ...]:
    """The places where a group may be made, the best first. Removes groups that were left there."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ()
    found = [place for mount in mounts for place in _of_mount(mount, groups)]
    for place in found:
        _sweep(place.path)
    # The nearest comes first among those that count as much.
    return tuple(sorted(found, key=lambda place: -len(place.controllers)))


def _of_mount(mount: str, groups: list[str]) -> Iterator[_Place]:
    """The places of one mount: proc_pid_mountinfo(5)."""
    fields, _, rest = mount.partition(" - ")
    kind, _, options = rest.split(" ", 2)
    root, point = fields.split(" ")[3:5]
    for group in groups:
        _, controllers, own = group.split(":", 2)
        if kind == "cgroup":
            counts = _known(set(options.split(",")) & set(controllers.split(",")))
            path = _inside(own, root, point) if counts else None
            if path is not None and _may(path):
                yield _Place(path, 1, counts)
        elif kind == "cgroup2" and not controllers:
            path = _inside(own, root, point)
            while path is not None and path.is_relative_to(point):
                # A group with processes of its own passes no controllers on: one above it does.
                counts = _known(())
                with contextlib.suppress(OSError):
                    counts = _known((path / "cgroup.subtree_control").read_text().split())
                if counts and _may(path):
                    yield _Place(path, 2, counts)
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


def _known(controllers: Iterable[str]) -> frozenset[str]:
    return frozenset(_TRIED).intersection(controllers)


def _removed(path: Path) -> bool:
    """Remove a group, if that can be done; return false if it has processes."""
    try:
        path.rmdir()
    except OSError as error:
        # Under a guard, where garbage is collected, nothing is removed.
        return error.errno != errno.EBUSY
    return True
