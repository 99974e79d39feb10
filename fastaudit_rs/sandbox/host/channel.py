"""The connection of a host to a session's process: nothing that comes from there is trusted."""

import itertools
import mmap
import socket
import threading
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ...sessions.forms import LENGTH
from ..wire import MESSAGE, after, framed

#: The bytes that are read at once, unless the message is known to be longer.
PIECE = 1 << 14

#: The bytes of a message from which on it is a great one.
GREAT = 2 << 20

#: The parts that are sent at once.
PARTS = 16


class Broken(Exception):
    """The other side is gone, or sends something that is no message."""


Message: TypeAlias = bytes | bytearray | mmap.mmap

#: The error where the other side is gone.
GONE = "it closed its connection to the host"


class Channel:
    """Messages to the process and from it, without waiting."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._lock = threading.Lock()
        self._waiting: deque[tuple[bytes | memoryview, socket.socket | None]] = deque()
        self._unread = 0
        self._found = bytearray()
        #: A long message, and what is to be read of it.
        self._long: tuple[Message, memoryview] | None = None

    def fileno(self) -> int:
        return self._connection.fileno()

    def unread(self) -> int:
        """The number of bytes that there was no room for yet."""
        return self._unread

    def send(
        self, message: Sequence[bytes | memoryview], passed: socket.socket | None = None
    ) -> None:
        """Send the parts of a message when there is room, from any thread.

        `passed` goes with an empty one behind it, and is closed here.
        """
        with self._lock:
            self._waiting.extend((part, None) for part in message if part)
            self._unread += sum(map(len, message))
            if passed is not None:
                empty = framed(b"")
                self._waiting.append((empty, passed))
                self._unread += len(empty)
        self.flush()

    def flush(self) -> bool:
        """Send as much as there is room for; reading tells of errors. True if more waits."""
        with self._lock:
            while self._waiting:
                passed = self._waiting[0][1]
                parts, rights = [self._waiting[0][0]], []
                if passed is not None:
                    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [passed.fileno()]))]
                else:
                    waiting = itertools.islice(self._waiting, 1, PARTS)
                    parts += [part for part, _ in itertools.takewhile(_is_data, waiting)]
                try:
                    sent = self._connection.sendmsg(parts, rights, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return True
                except OSError:
                    self._drop()
                    return False
                self._unread -= sent
                if passed is not None:
                    passed.close()
                for _ in parts:
                    self._waiting.popleft()
                self._waiting.extendleft((part, None) for part in reversed(after(parts, sent)))
            return False

    def messages(self) -> Iterator[Message]:
        """Read what there is, and give the whole messages; `Broken` comes after them."""
        try:
            if self._long is not None:
                yield from self._more()
                return
            data = self._connection.recv(PIECE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError as error:
            raise Broken(str(error)) from None
        if not data:
            raise Broken(GONE)
        self._found += data
        found: list[Message] = []
        at, broken = 0, ""
        while len(self._found) - at >= LENGTH.size:
            length = LENGTH.unpack_from(self._found, at)[0]
            if length > MESSAGE:
                broken = f"it announced a message of {length} bytes"
                break
            begin, end = at + LENGTH.size, at + LENGTH.size + length
            if len(self._found) < end:
                if length > PIECE:
                    # A great one takes memory as it comes; memory that was used is faster.
                    whole = bytearray(length) if length <= GREAT else mmap.mmap(-1, length)
                    there = len(self._found) - begin
                    view = memoryview(whole)
                    view[:there] = memoryview(self._found)[begin:]
                    self._long, at = (whole, view[there:]), len(self._found)
                break
            found.append(bytes(memoryview(self._found)[begin:end]))
            at = end
        del self._found[:at]
        yield from found
        if broken:
            raise Broken(broken)

    def _more(self) -> list[Message]:
        """Read more of a long message; return it once it is whole."""
        assert self._long is not None
        whole, rest = self._long
        read = self._connection.recv_into(rest, 0, socket.MSG_DONTWAIT)
        if not read:
            raise Broken(GONE)
        self._long = (whole, rest[read:]) if read < len(rest) else None
        return [whole] if self._long is None else []

    def forget(self) -> None:
        """Close what a copy of the host has of it, of which another thread may have the lock."""
        self._lock = threading.Lock()
        self.close()

    def close(self) -> None:
        with self._lock:
            self._drop()
        self._connection.close()

    def _drop(self) -> None:
        self._unread = 0
        while self._waiting:
            _, passed = self._waiting.popleft()
            if passed is not None:
                passed.close()


def _is_data(waiting: tuple[bytes | memoryview, socket.socket | None]) -> bool:
    return waiting[1] is None
