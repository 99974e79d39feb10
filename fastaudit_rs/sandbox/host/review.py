"""The files of a sandbox, reviewed before they count: what changed, and where it goes.

No link is followed on either side, and regular files alone are read and written. sandlock's own
copy-on-write (0.9) keeps the changes of a run, not of a step, splits hard links and lets a run
write beyond its ``max_disk``.
"""

import contextlib
import difflib
import errno
import io
import itertools
import os
import secrets
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from ..._text import printable
from .beneath import (
    DIRECTORY,
    NEW,
    READ,
    check_regular,
    entered,
    opened,
    parent,
    parts_of,
    remove_directory,
    status_of,
)

#: The bytes of the files that are kept to compare with.
KEPT = 100 << 20

#: The bytes of a text whose changes are shown line by line.
TEXT = 1 << 20

#: The bytes of all texts of a directory whose changes are shown, with the names of their files.
TEXTS = 20 << 20

#: The steps for comparing the texts of a directory line by line, some 0.1 µs each. Code chooses how
#: often lines repeat: without a bound 60,000 lines take minutes.
STEPS = 10_000_000

#: The errors where a file went, and maybe a link, a socket or a directory came in its place.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)

#: What diff(1) writes after a last line that no newline ends.
_NO_NEWLINE = "\n\\ No newline at end of file\n"


@dataclass(frozen=True)
class Change:
    """A change of a file in the directory of a sandbox.

    Attributes:
        name: Its name in the directory.
        kind: ``"added"``, ``"changed"`` or ``"removed"``.
        before: The bytes that it had; ``None`` for a new file.
        after: The bytes that it has; ``None`` for one that is gone.
        diff: The change line by line, as ``diff -u`` shows it; ``None`` unless both are text of at
            most 1 MB, for what exceeds 20 MB in all files together, and in what ``commit`` and
            ``discard`` return. Texts whose lines repeat so often that comparing them takes long
            are shown as a whole, the old one and the new one.
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


@dataclass(frozen=True)
class _Stamp:
    """A file that is not kept, by what changes with it. Code cannot set its ctime."""

    size: int
    number: int
    changed: int


class Review:
    """The files of a directory beside those that it had."""

    def __init__(self, directory: str, names: Callable[[], list[str]]) -> None:
        self._directory = directory
        self._names = names
        #: The files that there were.
        self._before: dict[str, _File | _Stamp] = self._now()

    def changes(self, steps: int = STEPS) -> list[Change]:
        """The changes, by name. Comparing texts takes so many steps at most; 0 compares none."""
        before = self._before
        diffs = _Diffs(steps)
        with opened(self._directory) as root:
            names = sorted({*self._names(), *before})
            found = [_change(root, name, before.get(name), diffs) for name in names]
        return [change for change in found if change is not None]

    def commit(self, to: str) -> list[Change]:
        """Copy what was added and changed to a directory, and remove there what was removed."""
        changes = self.changes(steps=0)
        removed = {change.name for change in changes if change.kind == "removed"}
        os.makedirs(to, exist_ok=True)
        with opened(self._directory) as root, opened(to, follow=True) as target:
            for name in removed:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    with parent(target, parts_of(name), makes=False) as at:
                        check_regular(at, parts_of(name)[-1])
            waiting: list[_Waiting] = []
            try:
                for change in changes:
                    if change.kind != "removed":
                        one = _Waiting.at(target, change.name, removed)
                        if (file := _read(root, change.name, KEPT)) is not None:
                            waiting.append(one)
                            with entered(target, one.above) as at:
                                _write(at, one.temporary, file)
                self._place(target, waiting, removed)
            finally:
                for one in waiting:
                    with contextlib.suppress(OSError), entered(target, one.above) as at:
                        os.unlink(one.temporary, dir_fd=at)
        self._before = self._now()
        return changes

    def _place(self, target: int, waiting: "list[_Waiting]", removed: set[str]) -> None:
        """Give the files that wait their names, and remove others: first those in their way."""
        new = {"/".join(one.parts) for one in waiting}
        above = {name for one in waiting for name in _above(one.parts)}
        in_way = {
            one for one in removed if one in above or not new.isdisjoint(_above(one.split("/")))
        }
        _remove_files(target, in_way)
        for one in [*waiting]:
            with entered(target, one.above) as at:
                if len(one.rest) == 1:
                    _remove_empty(at, one.rest[0])
                with parent(at, one.rest, makes=True) as there:
                    os.rename(one.temporary, one.rest[-1], src_dir_fd=at, dst_dir_fd=there)
            waiting.remove(one)
        _remove_files(target, removed - in_way)

    def discard(self) -> list[Change]:
        """Put the directory back to the files that it had."""
        changes = self.changes(steps=0)
        before = self._before
        for change in changes:
            if isinstance(before.get(change.name), _Stamp):
                raise OSError(
                    errno.EFBIG,
                    f"it cannot be put back: of the files that there were {KEPT >> 20} MB are kept",
                    change.name,
                )
        with opened(self._directory) as root:
            for name in {*self._names(), *before}:
                if name not in before or status_of(root, name) is None:
                    self._remove(root, parts_of(name))
            for name, file in before.items():
                if isinstance(file, _Stamp):
                    continue
                with contextlib.suppress(_Unread):
                    if _read(root, name, len(file.data)) == file:
                        continue
                parts = parts_of(name)
                self._remove(root, parts)
                with parent(root, parts, makes=True) as at:
                    _write(at, parts[-1], file)
        return changes

    def _remove(self, root: int, parts: list[str]) -> None:
        """Remove a file, a link or a directory, and the directories that are empty then."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError):
            with parent(root, parts, makes=False) as at:
                try:
                    os.unlink(parts[-1], dir_fd=at)
                except IsADirectoryError:
                    remove_directory(at, parts[-1])
        with contextlib.suppress(OSError, ValueError):
            for end in range(len(parts) - 1, 0, -1):
                with parent(root, parts[:end], makes=False) as at:
                    os.rmdir(parts[end - 1], dir_fd=at)

    def _now(self) -> "dict[str, _File | _Stamp]":
        found: dict[str, _File | _Stamp] = {}
        left = KEPT
        with opened(self._directory) as root:
            for name in self._names():
                try:
                    file = _read(root, name, left)
                except _Unread:
                    if (stamp := _stamp(status_of(root, name))) is not None:
                        found[name] = stamp
                    continue
                if file is not None:
                    found[name] = file
                    left -= len(file.data)
        return found


class _Unread(OSError):
    """A file has more bytes than it may, or its mode does not let the host read it."""


def _stamp(status: os.stat_result | None) -> _Stamp | None:
    return status and _Stamp(status.st_size, status.st_ino, status.st_ctime_ns)


def _change(root: int, name: str, before: _File | _Stamp | None, diffs: "_Diffs") -> Change | None:
    status = status_of(root, name)
    if isinstance(before, _Stamp):
        if status is None:
            return Change(name, "removed", before.size, None)
        is_same = _stamp(status) == before
        return None if is_same else Change(name, "changed", before.size, status.st_size)
    if status is None:
        # A link or the like in the place of a file: that is gone.
        if before is None:
            return None
        return Change(name, "removed", len(before.data), None, diffs.of(name, before.data, b""))
    after = status.st_size
    runs = bool(status.st_mode & stat.S_IXUSR)
    if before is None:
        new = _whole(root, name, after) if diffs.have_room(name, after) else None
        diff = None if new is None else diffs.of(name, b"", new.data)
        return Change(name, "added", None, after, diff)
    size = len(before.data)
    reads = after == size or diffs.have_room(name, size, after)
    now = _whole(root, name, after) if reads else None
    if now is not None and now.data == before.data and runs == before.runs:
        return None
    diff = None if now is None else diffs.of(name, before.data, now.data)
    return Change(name, "changed", len(before.data), after, diff)


def _whole(root: int, name: str, size: int) -> _File | None:
    """Read a file of this size; `None` if it goes or grows meanwhile, or cannot be read."""
    with contextlib.suppress(_Unread):
        return _read(root, name, size)
    return None


class _Diffs:
    """Texts that are compared line by line, in so many steps and bytes together."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self._room = TEXTS if steps else 0

    def have_room(self, name: str, *sizes: int) -> bool:
        """True if texts of these sizes can be compared."""
        return max(sizes) <= TEXT and sum(sizes, len(name)) <= self._room

    def of(self, name: str, before: bytes, after: bytes) -> str | None:
        """Return the change of a file; ``None`` if it is no text, or there is no room."""
        sizes = len(before), len(after)
        if not self.have_room(name, *sizes):
            return None
        self._room -= sum(sizes, len(name))
        if b"\0" in before + after:
            return None
        try:
            old, new = before.decode(), after.decode()
        except UnicodeDecodeError:
            return None
        lines = self._lines(name, _split(old), _split(new))
        return "".join(line if line.endswith("\n") else f"{line}{_NO_NEWLINE}" for line in lines)

    def _lines(self, name: str, old: list[str], new: list[str]) -> Iterable[str]:
        names = f"a/{printable(name)}", f"b/{printable(name)}"
        if old and new:
            matcher = _Matcher(old, new, self._left)
            try:
                matcher.get_matching_blocks()
                return difflib.unified_diff(old, new, *names)
            except _TooLong:
                pass
            finally:
                self._left = matcher.left
        if not (old or new):
            return []
        whole = f"@@ -{_span(old)} +{_span(new)} @@\n"
        removed, added = (f"-{line}" for line in old), (f"+{line}" for line in new)
        return [f"--- {names[0]}\n", f"+++ {names[1]}\n", whole, *removed, *added]


def _span(lines: list[str]) -> str:
    """The lines of a whole text, as diff(1) writes them."""
    return "1" if len(lines) == 1 else f"{min(len(lines), 1)},{len(lines)}"


def _split(text: str) -> list[str]:
    """The lines of a text as diff(1) knows them: no other character ends one."""
    return [*io.StringIO(text, newline="\n")]


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


def _read(root: int, name: str, most: int) -> _File | None:
    """Read a regular file; `None` if there is none, or if it goes meanwhile."""
    if status_of(root, name) is None:
        return None
    parts = parts_of(name)
    try:
        with parent(root, parts, makes=False) as at:
            descriptor = os.open(parts[-1], READ, dir_fd=at)
    except ValueError:
        return None
    except OSError as error:
        if error.errno in _GONE:
            return None
        if error.errno == errno.EACCES:
            raise _Unread(error.errno, error.strerror, name) from None
        raise
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        data = file.read(most + 1) if status.st_size <= most else None
    if data is None or len(data) > most:
        raise _Unread(f"{name!r} has more than {most} bytes")
    return _File(data, bool(status.st_mode & stat.S_IXUSR))


@dataclass(frozen=True)
class _Waiting:
    """A file that waits for its place in another directory."""

    #: The directories that there are on its way, and the rest of its name.
    above: list[str]
    rest: list[str]
    temporary: str

    @property
    def parts(self) -> list[str]:
        return [*self.above, *self.rest]

    @classmethod
    def at(cls, target: int, name: str, removed: set[str]) -> "_Waiting":
        """Look for its place, where only a regular file may be, or files that are removed too."""
        parts = parts_of(name)
        temporary = f".{secrets.token_hex(8)}.tmp"
        for number, step in enumerate(parts[:-1]):
            above, rest = parts[:number], parts[number:]
            with entered(target, above) as at:
                try:
                    mode = os.lstat(step, dir_fd=at).st_mode
                except FileNotFoundError:
                    return cls(above, rest, temporary)
                if "/".join(parts[: number + 1]) in removed and not stat.S_ISDIR(mode):
                    check_regular(at, step)
                    return cls(above, rest, temporary)
        with parent(target, parts, makes=False) as at:
            files = _files(at, parts[-1], parts[:-1])
            if not (files and files <= removed):
                check_regular(at, parts[-1])
        return cls(parts[:-1], parts[-1:], temporary)


def _above(parts: list[str]) -> list[str]:
    """The names of the directories that a file is in."""
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _files(at: int, name: str, above: list[str]) -> set[str]:
    """The names of the files in a directory; none of anything else."""
    try:
        os.close(os.open(name, DIRECTORY, dir_fd=at))
    except OSError:
        return set()
    found = os.fwalk(name, dir_fd=at)
    return {"/".join((*above, place, file)) for place, _, files, _ in found for file in files}


def _remove_files(target: int, names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            with parent(target, parts_of(name), makes=False) as at:
                os.unlink(parts_of(name)[-1], dir_fd=at)


def _remove_empty(at: int, name: str) -> None:
    """Remove a directory whose files are gone, and the directories in it."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.close(os.open(name, DIRECTORY, dir_fd=at))
        for _, directories, _, place in os.fwalk(name, dir_fd=at, topdown=False):
            for directory in directories:
                os.rmdir(directory, dir_fd=place)
        os.rmdir(name, dir_fd=at)


def _write(at: int, name: str, file: _File) -> None:
    descriptor = os.open(name, NEW, 0o600, dir_fd=at)
    with open(descriptor, "wb") as made:
        made.write(file.data)
        os.fchmod(descriptor, 0o755 if file.runs else 0o644)
