"""Where records of sessions are kept: files, a directory of them, or any mapping of the host's."""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, MutableMapping
from typing import TypeAlias
from urllib.parse import unquote

from .. import Policy
from .._near import warn
from .arguments import path_of
from .record import MOST

#: Where a record is written: a file, or a mapping from ids of sessions.
Store: TypeAlias = MutableMapping[str, bytes]
Place: TypeAlias = str | os.PathLike[str] | Store

#: The end of a record's file, and the bytes that a file's name may have.
SUFFIX, LONGEST = ".session", 255

#: Characters that file names have as they are: file systems may ignore the case of others.
_PLAIN = re.compile(rb"[a-z0-9_-]")


class DirectoryStore(MutableMapping[str, bytes]):
    """Keeps records of sessions in a directory, a file for each id.

    A file is replaced as a whole, and only its owner can read it (mode 0600). Any text is an id: no
    id leads out of the directory. Processes can share it.

    Args:
        directory: The directory, which is made if it does not exist.

    Raises:
        OSError: It cannot be made.
        TypeError: It is not a path.

    Examples:
        >>> import tempfile
        >>> store = DirectoryStore(tempfile.mkdtemp())
        >>> with Policy().session(id="anna") as session:
        ...     ran = session.run("import math; x = 6")
        ...     session.save(store).names
        ['x', 'math']
        >>> with Policy().session(id="anna") as session:
        ...     record = session.load(store)
        ...     session.run("math.factorial(x)").value
        720
    """

    def __init__(self, directory: "str | os.PathLike[str]") -> None:
        self._directory = os.path.abspath(path_of("directory", directory))
        os.makedirs(self._directory, mode=0o700, exist_ok=True)

    def __repr__(self) -> str:
        return f"DirectoryStore({self._directory!r})"

    def __getitem__(self, id: str) -> bytes:
        """The record of an id.

        Raises:
            KeyError: There is none.
            OSError: Its file cannot be read.
        """
        try:
            return read_file(self._file(id))
        except FileNotFoundError:
            raise KeyError(id) from None

    def __setitem__(self, id: str, data: bytes) -> None:
        write_file(self._file(id), data)

    def __delitem__(self, id: str) -> None:
        try:
            os.unlink(self._file(id))
        except FileNotFoundError:
            raise KeyError(id) from None

    def __iter__(self) -> Iterator[str]:
        for name in sorted(os.listdir(self._directory)):
            stem = name.removesuffix(SUFFIX)
            with contextlib.suppress(ValueError):
                if stem != name and _encoded(id := unquote(stem, errors="strict")) == stem:
                    yield id

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _file(self, id: str) -> str:
        name = _encoded(id) + SUFFIX
        if len(name) > LONGEST:
            raise ValueError(f"the id {id[:30]!r}… is too long for the name of a file")
        return os.path.join(self._directory, name)


def _encoded(id: str) -> str:
    if not isinstance(id, str):
        raise TypeError(f"an id must be a str, not {type(id).__name__}")
    if not id:
        raise ValueError("an id must not be empty")
    return "".join(
        chr(byte) if _PLAIN.match(bytes([byte])) else f"%{byte:02X}" for byte in id.encode()
    )


def check_apart(place: Place, policy: Policy, directory: str) -> None:
    """Warn if code can write where records are kept: it changes what other sessions load."""
    if isinstance(place, DirectoryStore):
        path = place._directory
    elif isinstance(place, (str, os.PathLike)):
        path = os.path.dirname(os.path.abspath(os.fsdecode(place)))
    else:
        return
    if _is_in(path, policy.write or (), directory) and not _is_in(path, policy.block, directory):
        warn(
            f"records of sessions are kept in {path!r}, where code may write: it can change what "
            "other sessions load. Keep them elsewhere, or name the directory in block"
        )


def _is_in(path: str, roots: Iterable[str], directory: str) -> bool:
    real = os.path.realpath(path)
    found = (os.path.realpath(os.path.join(directory, os.path.expanduser(one))) for one in roots)
    return any(os.path.commonpath((root, real)) == root for root in found)


def put(to: Place, id: str, data: bytes) -> None:
    """Write a record."""
    if isinstance(to, MutableMapping):
        to[id] = data
    else:
        write_file(_text("to", to), data)


def fetched(source: Place, id: str) -> tuple[object, str]:
    """Return a record, and the words for its place."""
    if isinstance(source, MutableMapping):
        try:
            return source[id], f"the record of the id {id!r}"
        except KeyError:
            raise KeyError(f"the store has no record of the id {id!r}") from None
    path = _text("source", source)
    return read_file(path), f"the file {path!r}"


def _text(name: str, place: "str | os.PathLike[str]") -> str:
    if isinstance(place, (str, os.PathLike)):
        return os.fsdecode(place)
    kind = type(place).__name__
    raise TypeError(f"{name} must be a path or a mutable mapping from ids to bytes, not {kind}")


def write_file(path: str, data: bytes) -> None:
    """Write a file, which is whole at any moment, and its owner's alone."""
    directory, name = os.path.split(os.path.abspath(path))
    other = os.path.join(directory, f".{secrets.token_hex(8)}.tmp")
    try:
        descriptor = os.open(other, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        error.filename = path
        raise
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(other, os.path.join(directory, name))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(other)
        raise


def read_file(path: str) -> bytes:
    """Read a regular file. One that is longer than a record is read no further."""
    # Non-blocking, as opening a named pipe would wait for its other end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path!r} is no regular file")
        return file.read(MOST + 1)
