"""A place where a program may do what it likes: a root, processes and a network of its own.

The root shows this machine's files, and keeps changes in memory until the program has ended. It
is the only file system that the program sees; its network has only the servers of servers.py.
"""

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import servers

CASE = "/home/lab/case"
TIMEOUT = 20
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: A canary among the variables, and what a host sets otherwise.
ENVIRONMENT = {
    "PATH": PATH,
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TZ": "Pacific/Chatham",
    "LAB_TOKEN": "canary-7e1f",
    **dict.fromkeys(("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"), servers.AUTHORITY),
}
NAMESPACES = ("NS", "PID", "IPC", "NET", "UTS")
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_CAPBSET_DROP = 1, 24
#: Rights that reach beyond the place: modules, ports, restarts, the clock, devices, the log, BPF.
DROPPED = (16, 17, 20, 22, 25, 27, 30, 32, 33, 34, 35, 36, 37, 38, 39)
STREAMS = ("said", "errors")
DEVICES = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}

libc = ctypes.CDLL(None, use_errno=True)


class Run(NamedTuple):
    """A program in a place, and what is looked at when it has ended."""

    command: Sequence[str]
    files: dict[str, str]
    look: Callable[["Ended"], Any]
    processes: Sequence[str] = ()


class Base(NamedTuple):
    """What all places begin with."""

    #: An empty directory to mount them at.
    at: Path
    #: In place of this machine's: their content, mode and owner.
    files: dict[str, tuple[bytes, int, int]]
    site: servers.Site


class Ended(NamedTuple):
    """How a program ended: what it said, what the servers heard, and which processes are left."""

    status: int
    said: str
    errors: str
    heard: list[str]
    left: list[str]


def call(function: Any, *arguments: Any) -> None:
    """Call a function of the C library that returns 0."""
    texts = [each.encode() if isinstance(each, str) else each for each in arguments]
    if function(*texts):
        error = ctypes.get_errno()
        raise OSError(error, f"{function.__name__}{arguments}: {os.strerror(error)}")


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """Mount a file system."""
    call(libc.mount, source, target, kind, ctypes.c_ulong(flags), options)


def write_files(files: dict[str, tuple[bytes, int, int]]) -> None:
    """Write files in place of those that are there, each with its mode and owner."""
    for name, (content, mode, owner) in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
        os.chown(path, owner, owner)


def run(asked: Run, base: Base) -> dict[str, Any]:
    """Run a program in a place: how it ended, and what `look` saw there.

    Raises:
        RuntimeError: There could be no such place.
    """
    reading, writing = os.pipe()
    above = os.fork()
    if not above:
        os.close(reading)
        leave(lambda: begin(asked, base, writing))
    os.close(writing)
    with open(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(above, 0)
    if not text:
        raise RuntimeError(f"no place for {asked.command}")
    return json.loads(text)


def leave(function: Callable[[], int]) -> None:
    """End this copy of the process with what a function returns."""
    status = 70
    try:
        status = function()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def begin(asked: Run, base: Base, writing: int) -> int:
    """Begin the namespaces with another process, the first in them: its end is the end of all."""
    call(libc.prctl, PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    os.unshare(sum(getattr(os, f"CLONE_NEW{name}") for name in NAMESPACES))
    first = os.fork()
    if not first:
        call(libc.prctl, PR_SET_PDEATHSIG, signal.SIGKILL)
        leave(lambda: inside(asked, base, writing))
    os.close(writing)
    return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])


def inside(asked: Run, base: Base, writing: int) -> int:
    """Run a program as the first process of the namespaces, and report."""
    enter_root(base.at)
    write_files(base.files)
    for number in DROPPED:
        call(libc.prctl, PR_CAPBSET_DROP, number)
    os.environ.clear()
    os.environ.update(ENVIRONMENT)
    call(libc.sethostname, "lab-host", 8)
    network = servers.Network(base.site)
    os.makedirs(CASE, exist_ok=True)
    os.chdir(CASE)
    for name, text in asked.files.items():
        Path(name).write_text(text)
    others = {name: begin_process(name) for name in asked.processes}
    status = execute(asked.command)
    left = [name for name, process in others.items() if is_left(process)]
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    said, errors = (Path(f"/run/{name}").read_text(errors="replace") for name in STREAMS)
    ended = Ended(status, said, errors, network.heard_all(), left)
    report = {**ended._asdict(), "seen": asked.look(ended)}
    with open(writing, "w") as pipe:
        json.dump(report, pipe)
    return 0


def begin_process(name: str) -> "subprocess.Popen[bytes]":
    """Begin a process that has this name for all who look, and waits."""
    # The kernel's name of it is that of the link.
    os.symlink("/usr/bin/sleep", f"/run/{name}")
    return subprocess.Popen([name, "infinity"], executable=f"/run/{name}")


def is_left(process: "subprocess.Popen[bytes]") -> bool:
    """If a process has not been killed."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.2)
    return process.returncode is None


def execute(command: Sequence[str]) -> int:
    """Run a program, with its output in files: the status, or -1 for one that took too long."""
    with open("/run/said", "wb") as said, open("/run/errors", "wb") as errors:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=errors)
        try:
            return program.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            return -1


def enter_root(place: Path) -> None:
    """Make a root over this machine's, which alone can be seen from then on."""
    mount("", "/", "", MS_REC | MS_PRIVATE)
    mount("lab", str(place), "tmpfs", 0, "size=1g")
    root = place / "root"
    for name in ("changes", "work", "root"):
        (place / name).mkdir()
    options = f"lowerdir=/,upperdir={place}/changes,workdir={place}/work"
    mount("lab", str(root), "overlay", 0, options)
    for needed in {sys.prefix, sys.base_prefix}:
        # It is on another file system.
        if not (root / needed[1:] / "bin").exists():
            (root / needed[1:]).mkdir(parents=True, exist_ok=True)
            mount(needed, f"{root}{needed}", "", MS_BIND)
            mount("", f"{root}{needed}", "", MS_REMOUNT | MS_BIND | MS_RDONLY)
    mount("lab", f"{root}/run", "tmpfs")
    mount_system(str(root))
    os.chdir(root)
    call(libc.pivot_root, ".", ".")
    call(libc.umount2, ".", MNT_DETACH)
    os.chdir("/")


def mount_system(root: str) -> None:
    """Mount /dev, /proc and /sys, whose settings are those of this machine, to be read alone."""
    mount("lab", f"{root}/dev", "tmpfs")
    os.umask(0)
    for name, minor in DEVICES.items():
        os.mknod(f"{root}/dev/{name}", 0o666 | stat.S_IFCHR, os.makedev(1, minor))
    os.umask(0o022)
    os.mkdir(f"{root}/dev/shm", 0o777)
    for name, target in {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}.items():
        os.symlink(f"/proc/self/fd{target}", f"{root}/dev/{name}")
    mount("lab", f"{root}/proc", "proc")
    for name in ("sys", "irq", "bus", "sysrq-trigger"):
        path = f"{root}/proc/{name}"
        if os.path.exists(path):
            mount(path, path, "", MS_BIND)
            mount("", path, "", MS_REMOUNT | MS_BIND | MS_RDONLY)
    mount("lab", f"{root}/sys", "sysfs", MS_RDONLY)
    # Virtual machines have no sensors.
    sensors = f"{root}/sys/class/thermal"
    if os.path.exists(sensors):
        mount("lab", sensors, "tmpfs")
        os.mkdir(f"{sensors}/thermal_zone0")
        Path(f"{sensors}/thermal_zone0/temp").write_text("42123\n")


def missing() -> list[str]:
    """What this machine lacks for such places, in words."""
    wants = {
        "Linux": sys.platform == "linux",
        "Python 3.12 or newer": sys.version_info >= (3, 12),
        "root with CAP_SYS_ADMIN": may_mount(),
        "bash, curl and wget": all(map(shutil.which, ("bash", "curl", "wget"))),
    }
    return [name for name, there in wants.items() if not there]


def may_mount() -> bool:
    """If this process may make namespaces and mount file systems."""
    status = Path("/proc/self/status")
    found = re.search("CapEff:\\s*(\\w+)", status.read_text()) if status.exists() else None
    return bool(found) and os.geteuid() == 0 and bool(int(found[1], 16) >> 21 & 1)
