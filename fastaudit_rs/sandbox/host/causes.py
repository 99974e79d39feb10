"""Why a sandbox does not start here, as far as can be told: `sandlock` does not say it."""

import contextlib
import errno
import importlib
import os
import resource
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ... import _landlock
from ..._native import _descriptor_of
from ...sessions.errors import SandboxError

#: The descriptors, and the processes and threads, that a process of a sandbox takes of its host.
DESCRIPTORS, TASKS = 20, 4


#: What the error for a system that cannot confine a sandbox says to authors of Python code.
PREFER = "; confine='prefer' runs without it"


@contextlib.contextmanager
def _some_home() -> Iterator[None]:
    """Have a home directory: `sandlock` asks for one as it is imported, and fails without."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"
        try:
            yield
        finally:
            del os.environ["HOME"]
    else:
        yield


def kernel(confine: str) -> Any:
    """Return the package `sandlock`, if it and the kernel can do what is needed."""
    if getattr(sys, "frozen", False):
        raise SandboxError(
            "a sandbox starts sys.executable, which is this frozen application itself and "
            "no Python: use the sandbox from a program that an installed Python runs"
        )
    if confine == "audit":
        return None
    try:
        with _some_home():
            sandlock: Any = importlib.import_module("sandlock")
    except ImportError:
        why = (
            "it needs sandlock, which is for Linux and Python up to 3.14: "
            "pip install 'fastaudit-rs[sandbox]'"
        )
    else:
        if _landlock.version() > 0:
            return sandlock
        why = "this kernel has no Landlock (Linux 5.13), or it is switched off"
    if confine == "require":
        raise SandboxError(f"this system cannot confine a sandbox: {why}{PREFER}")
    return None


def causes(*, is_confined: bool) -> Iterator[str]:
    """Look at what a start takes, and say what is lacking."""
    checks = [descriptors, _tasks]
    if is_confined:
        checks += [taking_descriptors, _shared_memory, _processes]
    found = [said for check in checks if (said := check()) is not None]
    if not found and is_confined and _is_filtered():
        found.append(
            "a seccomp filter is in force here, as in a container or in another sandbox, and may"
            " deny a system call that a sandbox needs"
        )
    yield from found


def taking_descriptors() -> str | None:
    """Say if the host may not take descriptors of its processes."""
    try:
        os.close(_descriptor_of(threading.get_native_id(), 0))
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOSYS):
            return "pidfd_getfd is denied: in Docker run with --cap-add SYS_PTRACE"
    return None


def descriptors() -> str | None:
    """Say if the host may open too few files for another process."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        # One is that of the list.
        open_now = len(os.listdir("/proc/self/fd")) - 1
    except OSError as error:
        open_now = most if error.errno == errno.EMFILE else 0
    if most == resource.RLIM_INFINITY or open_now + DESCRIPTORS <= most:
        return None
    return (
        f"this process has {open_now} of {most} descriptors open, and a sandbox takes "
        f"some {DESCRIPTORS}: raise the limit (ulimit -n), or close sandboxes"
    )


def _tasks() -> str | None:
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if most == resource.RLIM_INFINITY or not counts_processes():
        return None
    there = tasks()
    if there + TASKS <= most:
        return None
    return f"its user has {there} of {most} processes and threads: raise the limit (ulimit -u)"


def _shared_memory() -> str | None:
    """`sandlock` keeps a segment of System V shared memory for each."""
    with contextlib.suppress(OSError, ValueError):
        there = Path("/proc/sysvipc/shm").read_text().count("\n") - 1
        if there >= (most := int(Path("/proc/sys/kernel/shmmni").read_text())):
            return (
                f"{there} of {most} segments of shared memory are taken: raise kernel.shmmni, "
                "or remove some (ipcs -m, ipcrm)"
            )
    return None


def _processes() -> str | None:
    with contextlib.suppress(OSError):
        if os.readlink("/proc/self") == str(os.getpid()):
            return None
    return "/proc does not show this PID namespace: mount it there (unshare --mount-proc)"


def _is_filtered() -> bool:
    with contextlib.suppress(OSError):
        return "\nSeccomp:\t2\n" in Path("/proc/self/status").read_text()
    return False


def counts_processes() -> bool:
    """True if the kernel limits the processes of this user: not those of root."""
    return os.getuid() != 0


def tasks() -> int:
    """Return the number of the processes and threads of this user."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == os.getuid():
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count
