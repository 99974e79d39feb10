"""The files of a sandbox, as its host lists, copies and removes them.

The code may change the directory meanwhile: no link is followed on its side.
"""

import contextlib
import errno
import itertools
import os
import secrets
import shutil
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Literal, NamedTuple

from ..._native import _remove_directory
from ...sessions.arguments import count, path_of, size
from .beneath import NEW, READ, check_regular, entered, opened, parent, remove_directory
from .files import READ as READ_BYTES, Files

#: The entries of a directory that are listed, and those of one that is copied, at most.
LISTED, COPIED = 10_000, 100_000

#: The bytes of files that are copied out, and how deep directories may be in others.
COPIED_BYTES, DEPTH = "1G", 100

#: The times that a file is looked for again that others make and remove meanwhile.
_ATTEMPTS = 100

_PIECE = 1 << 20

Kind = Literal["file", "directory", "link", "other"]
_KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}

Name = str | os.PathLike[str]


@dataclass(frozen=True)
class FileInfo:
    """A file in the directory of a sandbox, or something else with a name there.

    Attributes:
        name: Its name in the directory: ``"sub/file"``.
        kind: ``"file"``, ``"directory"``, ``"link"`` or ``"other"``, such as a socket.
        size: The bytes of a file.
        modified: The time of its last change, in seconds since 1970; code can set it.
    """

    name: str
    kind: Kind
    size: int
    modified: float


class SandboxFiles:
    """The files in the directory of a sandbox: `Sandbox.files`, `SandboxSession.files`.

    Names are relative to the directory, or paths in it. No link is followed, also one that code
    puts there meanwhile: its name is listed, and can be removed.

    Examples:
        >>> with Sandbox() as sandbox:
        ...     sandbox.files.write("data/numbers.txt", "1 2 3")
        ...     ran = sandbox.run("import os; os.rename('data/numbers.txt', 'data/used.txt')")
        ...     [one.name for one in sandbox.files.list("data")]
        ['data/used.txt']
    """

    def __init__(self, files: Files, check: Callable[[], object]) -> None:
        self._files = files
        self._check = check

    def __repr__(self) -> str:
        return f"<files in {self._files.path!r}>"

    def read(self, name: Name, *, max_bytes: int | str | None = READ_BYTES) -> bytes:
        """Read a file, as `Sandbox.read_file` does.

        Raises:
            OSError: It cannot be read, is no regular file, or has more bytes than it may.
            RuntimeError: The sandbox is closed. All methods raise it.
            TypeError: An argument has another type.
            ValueError: The name leads out of the directory, or through a link. All methods raise
                it.
        """
        self._check()
        return self._files.read(name, max_bytes)

    def write(self, name: Name, data: str | bytes) -> None:
        """Write a file, and make the directories that it is in.

        Raises:
            OSError: It cannot be written, or is no regular file.
            TypeError: An argument has another type.
        """
        self._check()
        self._files.write(name, data)

    def open(self, name: Name, mode: Literal["rb", "wb", "ab"] = "rb") -> IO[bytes]:
        """Open a file, to read or write a large one piece by piece. Close it after use.

        Args:
            name: Its name. The directories that a file for writing is in are made.
            mode: ``"rb"`` to read, ``"wb"`` to write anew, ``"ab"`` to add at its end.

        Examples:
            >>> def save(sandbox, upload):
            ...     with sandbox.files.open("upload.bin", "wb") as file:
            ...         shutil.copyfileobj(upload, file)

        Raises:
            OSError: It cannot be opened, or is no regular file.
            ValueError: `mode` is another one.
        """
        if mode not in ("rb", "wb", "ab"):
            raise ValueError(f"mode must be 'rb', 'wb' or 'ab', not {mode!r}")
        with self._at(name, makes=mode != "rb") as (at, last):
            return _opened(at, last, mode)

    def info(self, name: Name) -> FileInfo:
        """Tell what there is of a name.

        Raises:
            FileNotFoundError: There is nothing.
        """
        parts = self._files.parts(name)
        if not parts:
            with self._root() as root:
                return _info(os.curdir, os.fstat(root))
        with self._at(name) as (at, last):
            return _info("/".join(parts), os.lstat(last, dir_fd=at))

    def exists(self, name: Name) -> bool:
        """Return whether there is a file, a directory or anything else of a name."""
        try:
            self.info(name)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
                return False
            raise
        return True

    def list(self, name: Name = ".", *, max_entries: int = LISTED) -> Sequence[FileInfo]:
        """List a directory, in the order of names; `Sandbox.list_files` lists all files below.

        Args:
            name: Its name; the directory of the sandbox by default.
            max_entries: The number of entries that it may have.

        Raises:
            OSError: It is not there, is no directory, or has more entries.
        """
        most = count("max_entries", max_entries, 1)
        parts = self._files.parts(name)
        with self._root() as root, entered(root, parts) as at:
            found = [_info("/".join((*parts, one)), status) for one, status in _listed(at, most)]
        return sorted(found, key=lambda one: one.name)

    def make_dir(self, name: Name) -> bool:
        """Make a directory, and those that it is in.

        Returns:
            True if it was made, False if it was there.

        Raises:
            OSError: It cannot be made, or something else is there.
        """
        if not self._files.parts(name):
            return not self.exists(name)
        with self._at(name, makes=True) as (at, last):
            try:
                os.mkdir(last, dir_fd=at)
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(last, dir_fd=at).st_mode):
                    raise
                return False
        return True

    def remove(self, name: Name) -> None:
        """Remove a file, a link, or a directory with all that is in it.

        Raises:
            OSError: It is not there, or cannot be removed.
        """
        with self._at(name) as (at, last):
            try:
                os.unlink(last, dir_fd=at)
            except IsADirectoryError:
                # Code cannot add to it there, which could go on for ever.
                aside = os.path.join(os.path.dirname(self._files.path), secrets.token_hex(16))
                with contextlib.suppress(OSError):
                    os.rename(last, aside, src_dir_fd=at)
                    _remove_directory(aside)
                    return
                # Its mode does not let it be moved.
                remove_directory(at, last)
                with contextlib.suppress(FileNotFoundError):
                    os.lstat(last, dir_fd=at)
                    what = "it is not empty: code adds to it, or it has files of another user"
                    raise OSError(errno.ENOTEMPTY, what, os.fspath(name)) from None

    def rename(self, name: Name, to: Name) -> None:
        """Give a file or a directory another name; a file of that name is replaced.

        Raises:
            OSError: It is not there, or a directory that is not empty has that name.
        """
        with self._at(name) as (at, last), self._at(to, makes=True) as (there, new):
            os.rename(last, new, src_dir_fd=at, dst_dir_fd=there)

    def upload(self, source: Name, name: Name | None = None) -> Sequence[str]:
        """Copy a file or a directory of the host into the directory of the sandbox.

        Files that are there are replaced. Links in a directory are left out, and all that is no
        regular file.

        Args:
            source: The file or the directory of the host, or a link to one.
            name: Its name in the sandbox; the last part of `source` by default. ``"."`` puts the
                files of a directory beside those that there are.

        Returns:
            The names of the files that were copied.

        Raises:
            OSError: A file cannot be read or written, or `source` is something else.
            ValueError: `source` would be copied into itself.
        """
        path = path_of("source", source)
        kind = os.stat(path).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            raise OSError(errno.EINVAL, "it is no regular file or directory", path)
        parts = self._files.parts(os.path.basename(os.path.abspath(path)) if name is None else name)
        _check_outside(os.path.realpath(path), os.path.join(self._files.path, *parts))
        copied: deque[str] = deque()
        files = _of_host(path, []) if stat.S_ISDIR(kind) else [(path, list[str]())]
        with self._root() as root:
            for file, below in files:
                to = [*parts, *below]
                if not to:
                    raise IsADirectoryError(errno.EISDIR, "name must be that of a file", ".")
                if file is None:
                    with entered(root, to, makes=True):
                        continue
                with open(file, "rb") as given, parent(root, to, makes=True) as at:
                    runs = os.fstat(given.fileno()).st_mode & stat.S_IXUSR
                    with _opened(at, to[-1], "wb") as made:
                        shutil.copyfileobj(given, made, _PIECE)
                        if runs:
                            os.fchmod(made.fileno(), 0o755)
                copied.append("/".join(to))
        return [*copied]

    def download(
        self, name: Name, to: Name, *, max_bytes: int | str | None = COPIED_BYTES
    ) -> Sequence[str]:
        """Copy a file or a directory of the sandbox to the host.

        Files that are there are replaced. Links are left out, and all that is no regular file.
        Files are everybody's to read, and to run if the sandbox's may be run.

        Args:
            name: The file or the directory; ``"."`` is the whole directory of the sandbox.
            to: The file or the directory of the host to be made.
            max_bytes: The bytes that all files may have together, also as a text such as ``"1G"``;
                ``None`` for any number.

        Returns:
            The names of the files that were copied, below `to`; ``[""]`` for a file.

        Raises:
            OSError: It cannot be read or written, has more bytes, more than 100,000 entries, or
                directories more than 100 deep.
            ValueError: A link is in the place of a file of the host, below `to`; or `to` is in what
                is copied.
        """
        target = os.path.abspath(path_of("to", to))
        room = _Room(None if max_bytes is None else size("max_bytes", max_bytes))
        parts = self._files.parts(name)
        _check_outside(os.path.join(self._files.path, *parts), os.path.realpath(target))
        if parts and self.info(name).kind == "file":
            with self._at(name) as (at, last), opened(os.path.dirname(target), True) as there:
                _copy(at, last, there, os.path.basename(target), room)
            return [""]
        os.makedirs(target, exist_ok=True)
        copied: deque[str] = deque()
        with self._root() as root, opened(target, follow=True) as top:
            waiting = deque([_Place(parts, [])])
            while waiting:
                place = waiting.popleft()
                with entered(root, place.source) as at, entered(top, place.to, True) as there:
                    for one, status in _listed(at, room.entries):
                        room.entries -= 1
                        if stat.S_ISDIR(status.st_mode):
                            if len(place.to) >= DEPTH:
                                why = f"it has directories more than {DEPTH} deep"
                                raise OSError(errno.ELOOP, why, os.fspath(name))
                            waiting.append(_Place([*place.source, one], [*place.to, one]))
                        elif stat.S_ISREG(status.st_mode):
                            _copy(at, one, there, one, room)
                            copied.append("/".join((*place.to, one)))
        return [*copied]

    @contextlib.contextmanager
    def _root(self) -> Iterator[int]:
        self._check()
        with opened(self._files.path) as root:
            yield root

    @contextlib.contextmanager
    def _at(self, name: Name, makes: bool = False) -> Iterator[tuple[int, str]]:
        """The directory that something is in, and its name there."""
        parts = self._files.parts(name)
        if not parts:
            raise ValueError(f"{os.fspath(name)!r} is the directory of the sandbox itself")
        with self._root() as root, parent(root, parts, makes) as at:
            yield at, parts[-1]


class _Place(NamedTuple):
    source: list[str]
    to: list[str]


class _Room:
    """The bytes and the entries that may still be copied."""

    def __init__(self, most: int | None) -> None:
        self._left = self._most = most
        self.entries = COPIED

    def take(self, amount: int) -> None:
        if self._left is not None:
            self._left -= amount
            if self._left < 0:
                why = f"more than {self._most} bytes: pass a greater max_bytes"
                raise OSError(errno.EFBIG, why)


def _info(name: str, status: os.stat_result) -> FileInfo:
    mode = status.st_mode
    kind = _KINDS.get(stat.S_IFMT(mode), "other")
    return FileInfo(name, kind, status.st_size if kind == "file" else 0, status.st_mtime)


def _listed(at: int, most: int) -> Iterator[tuple[str, os.stat_result]]:
    """The entries of a directory; those that go meanwhile are left out."""
    with os.scandir(at) as entries:
        names = [entry.name for entry in itertools.islice(entries, most + 1)]
    if len(names) > most:
        raise OSError(errno.E2BIG, f"it has more than {most} entries")
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            yield name, os.lstat(name, dir_fd=at)


def _opened(at: int, name: str, mode: str) -> IO[bytes]:
    """Open a regular file, or make it; nothing else is opened or waited for."""
    flags = READ if mode == "rb" else READ | os.O_WRONLY
    flags |= os.O_APPEND if mode == "ab" else 0
    for _ in range(_ATTEMPTS):
        check_regular(at, name)
        try:
            descriptor = os.open(name, flags, dir_fd=at)
        except FileNotFoundError:
            if mode == "rb":
                raise
            try:
                descriptor = os.open(name, NEW, 0o666, dir_fd=at)
            except FileExistsError:
                continue
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file", name)
            if mode == "wb":
                os.ftruncate(descriptor, 0)
            return open(descriptor, mode)
        except BaseException:
            os.close(descriptor)
            raise
    raise OSError(errno.EAGAIN, "it is made and removed all the time", name)


def _copy(at: int, name: str, there: int, new: str, room: _Room) -> None:
    """Copy a file of the sandbox to one of the host."""
    with _opened(at, name, "rb") as given:
        status = os.fstat(given.fileno())
        # One that grows meanwhile ends where it ended.
        left = status.st_size
        room.take(left)
        with _opened(there, new, "wb") as made:
            while left and (data := given.read(min(left, _PIECE))):
                left -= len(data)
                made.write(data)
            os.fchmod(made.fileno(), 0o755 if status.st_mode & stat.S_IXUSR else 0o644)


def _check_outside(source: str, to: str) -> None:
    """Raise where something would be copied into itself: without end, or after it was emptied."""
    if os.path.commonpath((source, to)) == source:
        raise ValueError(
            f"{source!r} would be copied into itself, to {to!r}: copy parts of it, or to a place "
            "outside of it"
        )


def _of_host(path: str, below: list[str]) -> Iterator[tuple[str | None, list[str]]]:
    """The files in a directory of the host, or `None` for a directory, and where they go."""
    if below:
        yield None, below
    with os.scandir(path) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from _of_host(entry.path, [*below, entry.name])
        elif entry.is_file(follow_symlinks=False):
            yield entry.path, [*below, entry.name]
