"""Changes of metadata in a sandbox, which Landlock does not know: modes, owners, times, attributes.

Before version 3 it does not know truncate(2) either.

The kernel asks the host about each such system call (seccomp_unotify(2)), by way of `sandlock`. The
host opens the file itself, judges it by where it is, and changes it: nothing that the caller writes
to its memory meanwhile has an effect. The thread that does it has no privileges, so that the kernel
refuses what the caller's user may not do.
"""

import errno
import importlib
import os
import platform
import resource
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

#: The call that newer versions of Landlock hold.
TRUNCATE = "truncate"

#: System calls that the others here do not need, and that are denied.
DENIED = ("utime", "utimes", "futimesat", "setxattrat", "removexattrat", "file_setattr")

#: The call by which `sandlock` lets blocked files be opened; it is denied where there are any.
CREAT = "creat"

#: Those that newer machines than this one do not have.
OLD = {"chmod", "chown", "lchown", "utime", "utimes", "futimesat", CREAT}
HAS_OLD = platform.machine() == "x86_64"

#: Makes the change that a system call asks for, by its last arguments.
_Change = Callable[[Any, Sequence[int]], Callable[[str], None]]


class Metadata:
    """Answers the kernel's questions about metadata.

    Metadata may be changed in the `roots`; ``None`` has the kernel not ask about them. The blocked
    files and directories exist, and nothing may touch them.
    """

    def __init__(
        self, roots: Sequence[str] | None, blocked: Sequence[str], *, truncates: bool = False
    ) -> None:
        self.roots = ("/",) if roots is None else tuple(roots)
        self._roots = [f"{root.rstrip('/')}/" for root in self.roots]
        self._blocked = {_identity(path) for path in blocked}
        changes = [name for name in CALLS if truncates or name != TRUNCATE]
        names = () if roots is None else (*changes, *DENIED)
        asked = (*names, CREAT) if blocked else names
        #: The names of the system calls that the kernel asks about.
        self.calls = [name for name in asked if HAS_OLD or name not in OLD]

    def answer(self, name: str, ctx: Any) -> int:
        """Do the work of a system call of `sandlock`'s. Return 0, or the number of an error."""
        if name not in CALLS:
            return errno.EPERM
        change_of, where, rest = CALLS[name]
        args = [*ctx.args]
        try:
            change = change_of(ctx, args[rest:])
            self._changed(_opened(ctx, *where(args)), change)
        except OSError as error:
            return error.errno or errno.EPERM
        return 0

    def _changed(self, descriptor: int, change: Callable[[str], None]) -> None:
        """Change the file, by a name that nobody else can give to another one."""
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


def _mode(ctx: Any, args: Sequence[int]) -> Callable[[str], None]:
    mode = args[0]

    def change(name: str) -> None:
        # A program with such a bit gives the rights of the host's user to others.
        if mode & stat.S_ISUID or (mode & stat.S_ISGID and not os.path.isdir(name)):
            raise PermissionError(errno.EPERM, "it would give privileges")
        os.chmod(name, mode & 0o7777)

    return change


def _length(ctx: Any, args: Sequence[int]) -> Callable[[str], None]:
    length = args[0] - (1 << 64) if args[0] >> 63 else args[0]
    # The limit is that of the process, not of the host.
    most, _ = resource.prlimit(ctx.pid, resource.RLIMIT_FSIZE)

    def change(name: str) -> None:
        if most != resource.RLIM_INFINITY and length > max(most, os.stat(name).st_size):
            raise OSError(errno.EFBIG, "it would be larger than a file may be")
        os.truncate(name, length)

    return change


def _owner(ctx: Any, args: Sequence[int]) -> Callable[[str], None]:
    user, group = _signed(args[0]), _signed(args[1])
    return lambda name: os.chown(name, user, group)


def _times(ctx: Any, args: Sequence[int]) -> Callable[[str], None]:
    if not args[0]:
        return os.utime
    times = struct.unpack("=4q", _read(ctx, args[0], 32))

    def change(name: str) -> None:
        status = os.stat(name)
        accessed = _moment(times[0], times[1], status.st_atime_ns)
        modified = _moment(times[2], times[3], status.st_mtime_ns)
        os.utime(name, ns=(accessed, modified))

    return change


def _attribute(ctx: Any, args: Sequence[int]) -> Callable[[str], None]:
    if args[2] > VALUE_MAX:
        raise OSError(errno.E2BIG, "the value is too long")
    attribute = _attribute_name(ctx, args[0])
    value = _read(ctx, args[1], args[2]) if args[2] else b""
    flags = args[3] & 0xFFFFFFFF
    return lambda name: os.setxattr(name, attribute, value, flags)


def _no_attribute(ctx: Any, args: Sequence[int]) -> Callable[[str], None]:
    attribute = _attribute_name(ctx, args[0])
    return lambda name: os.removexattr(name, attribute)


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


#: The file that a system call means: a descriptor, the address of a path from there, and flags.
_Where = tuple[int, int | None, int]


def _opened(ctx: Any, descriptor: int, path: int | None, flags: int) -> int:
    no_follow = os.O_NOFOLLOW if flags & AT_SYMLINK_NOFOLLOW else 0
    how = os.O_PATH | os.O_CLOEXEC | no_follow
    text = b"" if path is None else _text(ctx, path, PATH_MAX, errno.ENAMETOOLONG)
    own = b"/proc/self/"
    if text.startswith(own):
        text = b"/proc/%d/%s" % (ctx.pid, text[len(own) :])
    if text.startswith(b"/"):
        return os.open(text, how)
    if not text and path is not None and not flags & AT_EMPTY_PATH:
        raise FileNotFoundError(errno.ENOENT, "the path is empty")
    number = _signed(descriptor)
    here = "cwd" if number == AT_FDCWD else f"fd/{number}"
    try:
        start = os.open(f"/proc/{ctx.pid}/{here}", os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        raise OSError(errno.EBADF, "there is no such descriptor") from None
    if not text:
        return start
    try:
        return os.open(text, how, dir_fd=start)
    finally:
        os.close(start)


def _path(args: Sequence[int]) -> _Where:
    return AT_FDCWD, args[0], 0


def _link(args: Sequence[int]) -> _Where:
    return AT_FDCWD, args[0], AT_SYMLINK_NOFOLLOW


def _open(args: Sequence[int]) -> _Where:
    return args[0], None, 0


def _from(flags: int | None) -> Callable[[Sequence[int]], _Where]:
    """A path from a descriptor, with the flags in this argument."""
    return lambda args: (args[0], args[1], 0 if flags is None else args[flags])


#: For each call what it changes, where its file is, and the argument from which on it says how.
CALLS: dict[str, tuple[_Change, Callable[[Sequence[int]], _Where], int]] = {
    TRUNCATE: (_length, _path, 1),
    "chmod": (_mode, _path, 1),
    "fchmod": (_mode, _open, 1),
    "fchmodat": (_mode, _from(None), 2),
    "fchmodat2": (_mode, _from(3), 2),
    "chown": (_owner, _path, 1),
    "lchown": (_owner, _link, 1),
    "fchown": (_owner, _open, 1),
    "fchownat": (_owner, _from(4), 2),
    # Without a path it is the descriptor's file.
    "utimensat": (_times, lambda args: (args[0], args[1] or None, args[3]), 2),
    "setxattr": (_attribute, _path, 1),
    "lsetxattr": (_attribute, _link, 1),
    "fsetxattr": (_attribute, _open, 1),
    "removexattr": (_no_attribute, _path, 1),
    "lremovexattr": (_no_attribute, _link, 1),
    "fremovexattr": (_no_attribute, _open, 1),
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


def _attribute_name(ctx: Any, address: int) -> bytes:
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
