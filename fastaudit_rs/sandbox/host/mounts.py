"""The mounts of a sandbox's container: all that it sees of the host, and covers."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ... import Policy
from .setup import existing

#: The place where a container finds its job.
PLACE = "/fastaudit-rs"

#: Places that runtimes let a container write, in memory, though its root is read-only.
SCRATCH = ("/tmp", "/var/tmp", "/run", "/dev/shm")

#: Files of the kernel: a container has its own, and runtimes refuse mounts there.
KERNEL = ("/dev", "/proc", "/sys")


def mounts(mount: Any, policy: Policy, path: Iterable[str], own: str, place: str) -> list[Any]:
    """Return the mounts, each after those that it is in.

    Args:
        mount: The class of a mount, of the package ``docker``.
        policy: The policy, its places with their full paths.
        path: Directories of modules that the code finds.
        own: The directory of the sandbox.
        place: The directory of the job on the host.
    """
    blocked = _outermost(existing(policy.block))
    # In a place that may be written an earlier run may have made a link of any directory, which
    # the runtime would follow: nothing that is in such a place is mounted once more.
    writable = _outermost(_named((*(policy.write or ()), own)))
    readable = [each for each in _named((*(policy.read or ()), *path)) if not _in(each, writable)]
    places = dict.fromkeys(writable, False) | dict.fromkeys(readable, True)
    places = {each: places[each] for each in places if not _in(each, blocked)}
    if _in(own, blocked):
        # Where the code begins is there all the same.
        places[own] = False
    found = {
        each: mount(each, each, type="bind", read_only=is_read_only)
        for each, is_read_only in places.items()
    }
    for number, each in enumerate(blocked):
        if not _in(each, places):
            # Of the host nothing is there. In memory, as files of the runtime may be in it.
            if os.path.isdir(each) and not _in(each, KERNEL):
                found[each] = mount(each, None, type="tmpfs", read_only=True)
            continue
        # Empty, and not in memory: some runtimes fill that with a copy of the files below.
        empty = Path(place, f"empty-{number}")
        if not os.path.isdir(each):
            empty.touch()
        else:
            empty.mkdir()
            if _in(own, [each]):
                (empty / os.path.relpath(own, each)).mkdir(parents=True)
        found[each] = mount(each, str(empty), type="bind", read_only=True)
    for each in SCRATCH:
        if each not in found and not _in(each, places):
            found[each] = mount(each, None, type="tmpfs", read_only=True)
    job = [
        mount(f"{PLACE}/{name}", f"{place}/{name}", type="bind", read_only=name != "report")
        for name in ("input", "job", "report")
    ]
    return [found[each] for each in sorted(found)] + job


def _named(paths: Iterable[str]) -> list[str]:
    """Return the paths that exist. The root is the image's, and read-only, whatever names it."""
    return existing(path for path in paths if path != "/")


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that are in no other of them."""
    found: list[str] = []
    for path in sorted(set(paths)):
        if not _in(path, found):
            found.append(path)
    return found


def _in(path: str, places: Iterable[str]) -> bool:
    """True if a path is one of these places, or in one."""
    return any(Path(path).is_relative_to(place) for place in places)
