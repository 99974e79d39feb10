"""Ways into a directory that another one may change meanwhile: no link is followed.

Files are opened name by name, as `src/kernel/beneath.rs` does it for whole files.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager

from ..._native import _remove_directory

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def parts_of(name: str) -> list[str]:
    parts = name.split("/")
    if any(part in ("", os.curdir, os.pardir) for part in parts):
        raise ValueError(f"{name!r} is not in the directory")
    return parts


@contextlib.contextmanager
def opened(path: str, follow: bool = False) -> Iterator[int]:
    descriptor = os.open(path, DIRECTORY & ~os.O_NOFOLLOW if follow else DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def entered(root: int, parts: list[str], makes: bool = False) -> Iterator[int]:
    """Open a directory below another one step by step, and make those that are missing."""
    at = os.dup(root)
    try:
        for step in parts:
            if makes:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(step, dir_fd=at)
            try:
                below = os.open(step, DIRECTORY, dir_fd=at)
            except OSError as error:
                if stat.S_ISLNK(os.lstat(step, dir_fd=at).st_mode):
                    raise ValueError(f"a link leads to {'/'.join(parts)!r}") from error
                raise
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def parent(root: int, parts: list[str], makes: bool) -> AbstractContextManager[int]:
    """The directory that a file is in."""
    return entered(root, parts[:-1], makes)


def remove_directory(at: int, name: str) -> None:
    """Remove a directory with all that is in it, whatever its depth and its modes."""
    # Others may move the directory that it is in.
    _remove_directory(f"/proc/self/fd/{at}/{name}")


def status_of(root: int, name: str) -> os.stat_result | None:
    """The status of a regular file; `None` if there is none, or a link leads there."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError):
        parts = parts_of(name)
        with parent(root, parts, makes=False) as at:
            status = os.lstat(parts[-1], dir_fd=at)
            return status if stat.S_ISREG(status.st_mode) else None
    return None


def check_regular(at: int, name: str) -> None:
    """Raise unless there is a regular file, or nothing: opening a device may have an effect."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(name, dir_fd=at).st_mode
        if stat.S_ISLNK(mode):
            raise ValueError(f"{name!r} is a link there: remove it first")
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file", name)
