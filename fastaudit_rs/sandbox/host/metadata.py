"""Changes of metadata in a sandbox, which Landlock does not know: modes, owners, times, attributes.

The kernel asks the host about each such system call (seccomp_unotify(2)), by way of `sandlock`. The
host opens the file itself, judges it by where it is, and changes it: nothing that the caller writes
to its memory meanwhile has an effect. The thread that does it has no privileges, so that the kernel
refuses what the caller's user may not do.
"""

import errno
import importlib
import os
import platform
import stat
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_EMPTY_PATH = 0x1000
UTIME_NOW = 0x3FFFFFFF
UTIME_OMIT = 0x3FFFFFFE

#: The greatest length of a path, of the name of an attribute and of its value: limits.h(0P),
#: xattr(7).
PATH_MAX, NAME_MAX, VALUE_MAX = 4096, 256, 1 << 16

#: The least size of a page of memory, on all machines.
PAGE = 4096

#: Beginnings of the names of attributes that give privileges, or that need them.
PRIVILEGED = (b"security.", b"trusted.")

#: System calls, by their numbers on each machine. A call with `None` is denied.
_X86_64 = {
    90: "chmod",
    91: "fchmod",
    92: "chown",
    93: "fchown",
    94: "lchown",
    132: None,  # utime
    188: "setxattr",
    189: "lsetxattr",
    190: "fsetxattr",
    197: "removexattr",
    198: "lremovexattr",
    199: "fremovexattr",
    235: None,  # utimes
    260: "fchownat",
    261: None,  # futimesat
    268: "fchmodat",
    280: "utimensat",
}
_GENERIC = {
    5: "setxattr",
    6: "lsetxattr",
    7: "fsetxattr",
    14: "removexattr",
    15: "lremovexattr",
    16: "fremovexattr",
    52: "fchmod",
    53: "fchmodat",
    54: "fchownat",
    55: "fchown",
    88: "utimensat",
}
#: fchmodat2, setxattrat, removexattrat, file_setattr: the same everywhere.
_NEW = {452: "fchmodat2", 463: None, 466: None, 469: None}
NUMBERS = {"x86_64": _X86_64 | _NEW, "aarch64": _GENERIC | _NEW, "riscv64": _GENERIC | _NEW}

#: creat(2), by which `sandlock` lets blocked files be opened; it is denied where there are any.
CREAT = {"x86_64": 85}


class Metadata:
    """Answers the kernel's questions about metadata.

    Metadata may be changed in the `roots`; ``None`` has the kernel not ask about them. The blocked
    files and directories exist, and nothing may touch them.
    """

    def __init__(self, roots: Sequence[str] | None, blocked: Sequence[str]) -> None:
        self.roots = ("/",) if roots is None else tuple(roots)
        self._roots = [f"{root.rstrip('/')}/" for root in self.roots]
        self._blocked = {_identity(path) for path in blocked}
        machine = platform.machine()
        self.numbers: dict[int, str | None] = {}
        if roots is not None:
            self.numbers.update(NUMBERS.get(machine, {}))
        if blocked and machine in CREAT:
            self.numbers[CREAT[machine]] = None

    def answer(self, ctx: Any) -> int:
        """Do the work of a system call of `sandlock`'s. Return 0, or the number of an error."""
        name = self.numbers.get(ctx.syscall_nr)
        if name is None:
            return errno.EPERM
        change, where, rest = CALLS[name]
        args = [*ctx.args]
        try:
            getattr(self, change)(ctx, where(args), args[rest:])
        except OSError as error:
            return error.errno or errno.EPERM
        return 0

    def _changed(self, ctx: Any, where: "_Where", change: Callable[[str], None]) -> None:
        """Change the file, by a name that nobody else can give to another one."""
        descriptor = where.open(ctx)
        try:
            name = f"/proc/self/fd/{descriptor}"
            place = os.readlink(name)
            if not any(f"{place}/".startswith(root) for root in self._roots):
                raise PermissionError(errno.EACCES, "not in a directory that may be written")
            # A blocked directory may be in another place by now.
            around = (name, *map(str, Path(place).parents)) if self._blocked else ()
            if any(_identity(path) in self._blocked for path in around):
                raise PermissionError(errno.EACCES, "it is blocked")
            change(name)
        finally:
            os.close(descriptor)

    def _mode(self, ctx: Any, where: "_Where", args: Sequence[int]) -> None:
        mode = args[0]

        def change(name: str) -> None:
            # A program with such a bit gives the rights of the host's user to others.
            if mode & stat.S_ISUID or (mode & stat.S_ISGID and not os.path.isdir(name)):
                raise PermissionError(errno.EPERM, "it would give privileges")
            os.chmod(name, mode & 0o7777)

        self._changed(ctx, where, change)

    def _owner(self, ctx: Any, where: "_Where", args: Sequence[int]) -> None:
        user, group = _signed(args[0]), _signed(args[1])
        self._changed(ctx, where, lambda name: os.chown(name, user, group))

    def _times(self, ctx: Any, where: "_Where", args: Sequence[int]) -> None:
        times = struct.unpack("=4q", _read(ctx, args[0], 32)) if args[0] else None

        def change(name: str) -> None:
            if times is None:
                os.utime(name)
                return
            status = os.stat(name)
            accessed = _moment(times[0], times[1], status.st_atime_ns)
            modified = _moment(times[2], times[3], status.st_mtime_ns)
            os.utime(name, ns=(accessed, modified))

        self._changed(ctx, where, change)

    def _attribute(self, ctx: Any, where: "_Where", args: Sequence[int]) -> None:
        if args[2] > VALUE_MAX:
            raise OSError(errno.E2BIG, "the value is too long")
        attribute = _attribute(ctx, args[0])
        value = _read(ctx, args[1], args[2]) if args[2] else b""
        flags = args[3] & 0xFFFFFFFF
        self._changed(ctx, where, lambda name: os.setxattr(name, attribute, value, flags))

    def _no_attribute(self, ctx: Any, where: "_Where", args: Sequence[int]) -> None:
        attribute = _attribute(ctx, args[0])
        self._changed(ctx, where, lambda name: os.removexattr(name, attribute))


def answering(answer: Callable[[Any], int | None]) -> Any:
    """Make a handler for `sandlock`; `None` as an answer leaves a call to the kernel."""
    handler: Any = importlib.import_module("sandlock.handler")

    def handle(self: Any, ctx: Any) -> Any:
        error = answer(ctx)
        action = handler.NotifAction
        if error is None:
            return action.continue_()
        return action.errno(error) if error else action.returns(0)

    members = {"handle": handle, "on_exception": handler.ExceptionPolicy.DENY_EPERM}
    return type("Answering", (handler.Handler,), members)()


class _Where:
    """The file that a system call means: a descriptor, a path, or a path from a descriptor."""

    def __init__(self, descriptor: int = AT_FDCWD, path: int | None = None, flags: int = 0) -> None:
        self._descriptor = _signed(descriptor)
        self._path = path
        self._flags = flags & 0xFFFFFFFF

    def open(self, ctx: Any) -> int:
        follow = 0 if self._flags & AT_SYMLINK_NOFOLLOW else 1
        path = b"" if self._path is None else _text(ctx, self._path, PATH_MAX, errno.ENAMETOOLONG)
        own = b"/proc/self/"
        if path.startswith(own):
            path = b"/proc/%d/%s" % (ctx.pid, path[len(own) :])
        if path.startswith(b"/"):
            return os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
        if not path:
            if self._path is not None and not self._flags & AT_EMPTY_PATH:
                raise FileNotFoundError(errno.ENOENT, "the path is empty")
            return self._start(ctx)
        directory = self._start(ctx)
        try:
            flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
            return os.open(path, flags, dir_fd=directory)
        finally:
            os.close(directory)

    def _start(self, ctx: Any) -> int:
        """Open the file of its descriptor, or the current directory."""
        here = "cwd" if self._descriptor == AT_FDCWD else f"fd/{self._descriptor}"
        try:
            return os.open(f"/proc/{ctx.pid}/{here}", os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            raise OSError(errno.EBADF, "there is no such descriptor") from None


def _path(args: Sequence[int]) -> _Where:
    return _Where(path=args[0])


def _link(args: Sequence[int]) -> _Where:
    return _Where(path=args[0], flags=AT_SYMLINK_NOFOLLOW)


def _open(args: Sequence[int]) -> _Where:
    return _Where(args[0])


def _from(flags: int | None) -> Callable[[Sequence[int]], _Where]:
    """A path from a descriptor, with the flags in this argument."""
    return lambda args: _Where(args[0], args[1], 0 if flags is None else args[flags])


#: For each call what it changes, where its file is, and the argument from which on it says how.
CALLS = {
    "chmod": ("_mode", _path, 1),
    "fchmod": ("_mode", _open, 1),
    "fchmodat": ("_mode", _from(None), 2),
    "fchmodat2": ("_mode", _from(3), 2),
    "chown": ("_owner", _path, 1),
    "lchown": ("_owner", _link, 1),
    "fchown": ("_owner", _open, 1),
    "fchownat": ("_owner", _from(4), 2),
    # Without a path it is the descriptor's file.
    "utimensat": ("_times", lambda args: _Where(args[0], args[1] or None, args[3]), 2),
    "setxattr": ("_attribute", _path, 1),
    "lsetxattr": ("_attribute", _link, 1),
    "fsetxattr": ("_attribute", _open, 1),
    "removexattr": ("_no_attribute", _path, 1),
    "lremovexattr": ("_no_attribute", _link, 1),
    "fremovexattr": ("_no_attribute", _open, 1),
}


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _signed(number: int) -> int:
    """A C int from a register."""
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def _moment(seconds: int, nanoseconds: int, now: int) -> int:
    """A time of utimensat(2), in nanoseconds; `now` is the current one."""
    if nanoseconds == UTIME_OMIT:
        return now
    return time.time_ns() if nanoseconds == UTIME_NOW else seconds * 10**9 + nanoseconds


def _text(ctx: Any, address: int, most: int, too_long: int) -> bytes:
    """A text that ends with a NUL, whatever its encoding."""
    found = b""
    while b"\0" not in found and len(found) < most:
        # The next page may not be memory at all.
        start = address + len(found)
        found += _read(ctx, start, PAGE - start % PAGE)
    text = found.partition(b"\0")[0]
    if len(text) >= most:
        raise OSError(too_long, "it is too long")
    return text


def _attribute(ctx: Any, address: int) -> bytes:
    """The name of an extended attribute that may be changed without privileges: xattr(7)."""
    name = _text(ctx, address, NAME_MAX, errno.ERANGE)
    if name.startswith(PRIVILEGED):
        raise PermissionError(errno.EPERM, "it needs privileges, which the sandbox has not")
    return name


def _read(ctx: Any, address: int, count: int) -> bytes:
    found: bytes | None = ctx.read(address, count)
    if found is None or len(found) != count:
        raise OSError(errno.EFAULT, "it cannot be read")
    return found
