"""The files of a sandbox, reviewed before they count: what changed, and where it goes.

No link is followed on either side, and regular files alone are read and written. sandlock's own
copy-on-write (0.9) keeps the changes of a run, not of a step, splits hard links and lets a run
write beyond its ``max_disk``.
"""

import contextlib
import difflib
import itertools
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from ..._native import _remove_directory
from ..._text import printable

#: The bytes of the files that are kept to compare with.
KEPT = 100 << 20

#: The bytes of a text whose changes are shown line by line.
TEXT = 1 << 20

#: The steps for comparing the texts of a directory line by line, some 0.1 µs each. Code chooses how
#: often lines repeat: without a bound 60,000 lines take minutes.
STEPS = 10_000_000

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Change:
    """A change of a file in the directory of a sandbox.

    Attributes:
        name: Its name in the directory.
        kind: ``"added"``, ``"changed"`` or ``"removed"``.
        before: The bytes that it had; ``None`` for a new file.
        after: The bytes that it has; ``None`` for one that is gone.
        diff: The change line by line, as ``diff -u`` shows it; ``None`` unless both are text of at
            most 1 MB, and in what ``commit`` and ``discard`` return. Texts whose lines repeat so
            often that comparing them takes long are shown as a whole, the old one and the new one.
    """

    name: str
    kind: Literal["added", "changed", "removed"]
    before: int | None
    after: int | None
    diff: str | None = None


@dataclass(frozen=True)
class _File:
    data: bytes
    runs: bool


class Review:
    """The files of a directory beside those that it had."""

    def __init__(self, directory: str, names: Callable[[], list[str]]) -> None:
        self._directory = directory
        self._names = names
        #: The files that there were; `None` if they are too many bytes to keep.
        self._before: dict[str, _File] | None = self._now()

    def changes(self, steps: int = STEPS) -> list[Change]:
        """The changes, by name. Comparing texts takes so many steps at most; 0 compares none."""
        before = self._kept()
        diffs = _Diffs(steps)
        with _opened(self._directory) as root:
            names = sorted({*self._names(), *before})
            found = [_change(root, name, before.get(name), diffs) for name in names]
        return [change for change in found if change is not None]

    def commit(self, to: str) -> list[Change]:
        """Copy what was added and changed to a directory, and remove there what was removed.

        Each file is whole at any moment. All are written before the first one takes its place.
        """
        changes = self.changes(steps=0)
        os.makedirs(to, exist_ok=True)
        with contextlib.ExitStack() as stack:
            root = stack.enter_context(_opened(self._directory))
            target = stack.enter_context(_opened(to, follow=True))
            waiting: list[tuple[int, str, str]] = []
            removed: list[tuple[int, str]] = []
            try:
                for change in changes:
                    if change.kind == "removed":
                        with contextlib.suppress(FileNotFoundError):
                            removed.append(_place(target, change.name, stack, makes=False))
                    elif (file := _read(root, change.name, KEPT)) is not None:
                        parent, name = _place(target, change.name, stack, makes=True)
                        temporary = f".{secrets.token_hex(8)}.tmp"
                        waiting.append((parent, temporary, name))
                        _write(parent, temporary, file)
                while waiting:
                    parent, temporary, name = waiting[0]
                    os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
                    waiting.pop(0)
            finally:
                for parent, temporary, _ in waiting:
                    with contextlib.suppress(OSError):
                        os.unlink(temporary, dir_fd=parent)
            for parent, name in removed:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=parent)
        self._before = self._now()
        return changes

    def discard(self) -> list[Change]:
        """Put the directory back to the files that it had. Return the changes that are no more."""
        changes = self.changes(steps=0)
        before = self._kept()
        with _opened(self._directory) as root:
            for name in {*self._names(), *before}:
                if name not in before or _status(root, name) is None:
                    self._remove(root, _parts(name))
            for name, file in before.items():
                with contextlib.suppress(_TooLarge):
                    if _read(root, name, len(file.data)) == file:
                        continue
                parts = _parts(name)
                self._remove(root, parts)
                with _parent(root, parts, makes=True) as parent:
                    _write(parent, parts[-1], file)
        return changes

    def _remove(self, root: int, parts: list[str]) -> None:
        """Remove a file, a link or a directory, and the directories that are empty then."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError):
            with _parent(root, parts, makes=False) as parent:
                try:
                    os.unlink(parts[-1], dir_fd=parent)
                except IsADirectoryError:
                    # Its directories may be of any depth, and their modes too.
                    _remove_directory(os.path.join(self._directory, parts[0]))
        with contextlib.suppress(OSError, ValueError):
            for end in range(len(parts) - 1, 0, -1):
                with _parent(root, parts[:end], makes=False) as parent:
                    os.rmdir(parts[end - 1], dir_fd=parent)

    def _now(self) -> "dict[str, _File] | None":
        found: dict[str, _File] = {}
        left = KEPT
        with _opened(self._directory) as root:
            for name in self._names():
                try:
                    file = _read(root, name, left)
                except _TooLarge:
                    return None
                if file is not None:
                    found[name] = file
                    left -= len(file.data)
        return found

    def _kept(self) -> "dict[str, _File]":
        if self._before is None:
            raise OSError(
                f"the directory of the sandbox had more than {KEPT >> 20} MB: "
                "its changes cannot be told"
            )
        return self._before


class _TooLarge(OSError):
    """A file has more bytes than it may."""


def _change(root: int, name: str, before: _File | None, diffs: "_Diffs") -> Change | None:
    status = _status(root, name)
    if status is None:
        # A link or the like in the place of a file: that is gone.
        if before is None:
            return None
        return Change(name, "removed", len(before.data), None, diffs.of(name, before.data, b""))
    after = status.st_size
    runs = bool(status.st_mode & stat.S_IXUSR)
    if before is None:
        new = _read(root, name, TEXT) if after <= TEXT else None
        diff = None if new is None else diffs.of(name, b"", new.data)
        return Change(name, "added", None, after, diff)
    now = _read(root, name, max(after, 0)) if after == len(before.data) or after <= TEXT else None
    if now is not None and now.data == before.data and runs == before.runs:
        return None
    diff = None if now is None else diffs.of(name, before.data, now.data)
    return Change(name, "changed", len(before.data), after, diff)


class _Diffs:
    """Texts that are compared line by line, in so many steps together."""

    def __init__(self, steps: int) -> None:
        self._is_wanted = steps > 0
        self._left = steps

    def of(self, name: str, before: bytes, after: bytes) -> str | None:
        """Return the change of a file; ``None`` if it is no text, or no change is wanted."""
        if not self._is_wanted or max(len(before), len(after)) > TEXT or b"\0" in before + after:
            return None
        try:
            old, new = before.decode(), after.decode()
        except UnicodeDecodeError:
            return None
        lines = self._lines(name, old.splitlines(keepends=True), new.splitlines(keepends=True))
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def _lines(self, name: str, old: list[str], new: list[str]) -> Iterable[str]:
        names = f"a/{printable(name)}", f"b/{printable(name)}"
        if not old or not new:
            return difflib.unified_diff(old, new, *names)
        matcher = _Matcher(old, new, self._left)
        try:
            matcher.get_matching_blocks()
        except _TooLong:
            whole = f"@@ -1,{len(old)} +1,{len(new)} @@\n"
            removed, added = (f"-{line}" for line in old), (f"+{line}" for line in new)
            return [f"--- {names[0]}\n", f"+++ {names[1]}\n", whole, *removed, *added]
        finally:
            self._left = matcher.left
        return difflib.unified_diff(old, new, *names)


class _TooLong(Exception):
    """Comparing two texts takes more steps than are left."""


class _Matcher(difflib.SequenceMatcher[str]):
    """Looks for the lines that two texts have in common, in so many steps."""

    #: The places of each line in the new text, but for those that are there very often.
    b2j: dict[str, list[int]]

    def __init__(self, old: list[str], new: list[str], left: int) -> None:
        super().__init__(None, old, new)
        self.left = left
        each = (1 + len(self.b2j.get(line, ())) for line in old)
        #: The steps for the lines before each one.
        self._steps = list(itertools.accumulate(each, initial=0))

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        ahi = len(self._steps) - 1 if ahi is None else ahi
        self.left = max(self.left - (self._steps[ahi] - self._steps[alo]), 0)
        if self.left == 0:
            raise _TooLong
        return super().find_longest_match(alo, ahi, blo, bhi)


def _parts(name: str) -> list[str]:
    parts = name.split("/")
    if any(part in ("", os.curdir, os.pardir) for part in parts):
        raise ValueError(f"{name!r} is not in the directory")
    return parts


@contextlib.contextmanager
def _opened(path: str, follow: bool = False) -> Iterator[int]:
    descriptor = os.open(path, _DIRECTORY & ~os.O_NOFOLLOW if follow else _DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _parent(root: int, parts: list[str], makes: bool) -> Iterator[int]:
    """The directory that a file is in, opened step by step."""
    at = os.dup(root)
    try:
        for step in parts[:-1]:
            if makes:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(step, dir_fd=at)
            try:
                below = os.open(step, _DIRECTORY, dir_fd=at)
            except OSError as error:
                if stat.S_ISLNK(os.lstat(step, dir_fd=at).st_mode):
                    raise ValueError(f"a link leads to {'/'.join(parts)!r}") from error
                raise
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def _status(root: int, name: str) -> os.stat_result | None:
    """The status of a regular file; `None` if there is none, or a link leads there."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError):
        parts = _parts(name)
        with _parent(root, parts, makes=False) as parent:
            status = os.lstat(parts[-1], dir_fd=parent)
            return status if stat.S_ISREG(status.st_mode) else None
    return None


def _read(root: int, name: str, most: int) -> _File | None:
    """Read a regular file; `None` if there is none."""
    if _status(root, name) is None:
        return None
    parts = _parts(name)
    with _parent(root, parts, makes=False) as parent:
        descriptor = os.open(parts[-1], _READ, dir_fd=parent)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        data = file.read(most + 1) if status.st_size <= most else None
    if data is None or len(data) > most:
        raise _TooLarge(f"{name!r} has more than {most} bytes")
    return _File(data, bool(status.st_mode & stat.S_IXUSR))


def _place(target: int, name: str, stack: contextlib.ExitStack, *, makes: bool) -> tuple[int, str]:
    """The directory of a file, and its name there. Nothing but a regular file may be there."""
    parts = _parts(name)
    parent = stack.enter_context(_parent(target, parts, makes))
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(parts[-1], dir_fd=parent).st_mode
        if stat.S_ISLNK(mode):
            raise ValueError(f"{parts[-1]!r} is a link there: remove it first")
        if not stat.S_ISREG(mode):
            raise IsADirectoryError(f"{parts[-1]!r} is no regular file there")
    return parent, parts[-1]


def _write(parent: int, name: str, file: _File) -> None:
    descriptor = os.open(name, _NEW, 0o600, dir_fd=parent)
    with open(descriptor, "wb") as made:
        made.write(file.data)
        os.fchmod(descriptor, 0o755 if file.runs else 0o644)
