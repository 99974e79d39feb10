"""The directory of a sandbox, as its host uses it: nothing that is in it is trusted."""

import atexit
import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..._native import _Directory, _DiskWatch, _remove_directory
from ...sessions.arguments import parts_in, size
from ...sessions.forms import VALUE
from . import copies

READ = "100M"

#: The bytes by which a run may exceed what there is where it is too much already: processes that
#: start take some.
SPARE = 1 << 20

#: The bytes of a file of code, at most.
CODE = VALUE


class Files:
    def __init__(self, directory: Path) -> None:
        self.path = str(directory)
        self._opened: _Directory | None = _Directory(self.path)
        copies.note(self)

    def begin_anew(self) -> None:
        """Open it again when it is needed: a thread may have had its lock."""
        self._opened = None

    @property
    def _directory(self) -> _Directory:
        self._opened = opened = self._opened or _Directory(self.path)
        return opened

    def write(self, name: str | os.PathLike[str], data: str | bytes) -> None:
        if not isinstance(data, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"data must be str or bytes, not {type(data).__name__}")
        given = data.encode() if isinstance(data, str) else bytes(data)
        self._directory.write(parts_in(self.path, name, "sandbox"), given)

    def read(self, name: str | os.PathLike[str], max_bytes: int | str | None) -> bytes:
        most = (1 << 64) - 1 if max_bytes is None else size("max_bytes", max_bytes)
        return self._directory.read(parts_in(self.path, name, "sandbox"), most)

    def names(self) -> list[str]:
        return self._directory.names()

    @contextlib.contextmanager
    def changes(self) -> Iterator[list[str]]:
        """Return a list for the names of the files that change until the end."""
        run = self._directory.begin()
        changed: list[str] = []
        try:
            yield changed
        except BaseException:
            with contextlib.suppress(RuntimeError):
                self._directory.end(run)
            raise
        changed += self._directory.end(run)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def parts(self, name: str | os.PathLike[str]) -> list[str]:
        """Return the parts of a name in the directory, by its text alone; none for itself."""
        return parts_in(self.path, name, "sandbox", itself=True)


def code_of(file: str, writable: Iterable[str]) -> str:
    """Return the code in a file. No link is followed below directories that guests may change."""
    # The outermost one comes first: guests may change what leads to those in it.
    above = reversed([str(parent) for parent in Path(file).parents])
    root = next((one for one in above if any(_is_same(one, other) for other in writable)), None)
    try:
        if root is not None:
            with contextlib.closing(_Directory(os.path.realpath(root))) as directory:
                data = directory.read(os.path.relpath(file, root).split("/"), CODE)
        else:
            with open(file, "rb") as opened:
                data = opened.read(CODE + 1)
        if len(data) <= CODE:
            return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        why = "write path.read_text(encoding=...) in its place"
        raise ValueError(f"code in {file!r} must be UTF-8: {why}") from None
    except OSError as error:
        if error.errno != errno.EFBIG:
            error.filename = file
            raise
    raise OSError(errno.EFBIG, f"code must have at most {CODE >> 20} MB", file)


def _is_same(path: str, other: str) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samefile(path, other)
    return False


class DiskUse:
    """What a sandbox that took too much disk may take next: no more than there is."""

    def __init__(self) -> None:
        #: The bytes when it was first too much.
        self._first = 0

    def note(self, directory: str) -> None:
        self._first = self._first or _DiskWatch.used(directory)

    def bound(self, directory: str, limit: int) -> int:
        """The bytes that a run may take that begins now."""
        if not self._first:
            return limit
        used = 0
        with contextlib.suppress(OSError):
            used = _DiskWatch.used(directory)
        if used <= limit:
            self._first = 0
            return limit
        # Each run adds some before it is found to: not without end.
        return min(used, 2 * self._first) + SPARE


class Disk:
    """The bytes that the directory of a run takes, looked at by a thread of its own."""

    def __init__(self, directory: str, most: int | str | None, use: DiskUse) -> None:
        self._directory = directory
        self._use = use
        self._most = None if most is None else use.bound(directory, int(most))
        self._watch: _DiskWatch | None = None

    def is_over(self, process: int | None = None) -> bool:
        """True if it was too much, with a process's open files. The first call begins to look."""
        if self._watch is not None:
            return self._watch.is_over()
        if self._most is not None:
            # It is closed meanwhile, or no thread starts now.
            with contextlib.suppress(OSError):
                self._watch = _DiskWatch(self._directory, self._most, process)
        return False

    def close(self, *, was_over: bool) -> None:
        if self._watch is not None:
            self._watch.close()
        if was_over:
            with contextlib.suppress(OSError):
                self._use.note(self._directory)


#: Directories of sandboxes that could not be removed, for lack of descriptors mostly.
_left: set[str] = set()


def remove_own(process: int, directory: str) -> None:
    """Remove the directory of a sandbox, now or else with the next one or as the process ends.

    It is of the process that made it, and not of its copies.
    """
    if os.getpid() == process:
        _left.add(directory)
        _remove_left()


@atexit.register
def _remove_left() -> None:
    for directory in [*_left]:
        _remove_directory(directory)
        if not os.path.lexists(directory):
            _left.discard(directory)
