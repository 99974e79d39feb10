"""The connection of a host to a session's process: nothing that comes from there is trusted."""

import socket
import threading
from array import array
from collections import deque

from ...sessions.forms import LENGTH
from ..wire import MESSAGE, framed

PIECE = 1 << 18


class Broken(Exception):
    """The other side is gone, or sends something that is no message."""


class Channel:
    """Messages to the process and from it, without waiting."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._lock = threading.Lock()
        self._waiting: deque[tuple[memoryview, socket.socket | None]] = deque()
        self._unread = 0
        self._found = bytearray()

    def fileno(self) -> int:
        return self._connection.fileno()

    def unread(self) -> int:
        """The number of bytes that there was no room for yet."""
        return self._unread

    def send(self, message: bytes, passed: socket.socket | None = None) -> None:
        """Send a message when there is room, from any thread.

        `passed` goes with an empty one behind it, and is closed here.
        """
        # A short one goes by one call; a long one is not copied.
        is_short = len(message) < PIECE
        parts = [framed(message)] if is_short else [LENGTH.pack(len(message)), message]
        with self._lock:
            self._waiting.extend((memoryview(part), None) for part in parts)
            if passed is not None:
                parts.append(framed(b""))
                self._waiting.append((memoryview(parts[-1]), passed))
            self._unread += sum(map(len, parts))
        self.flush()

    def flush(self) -> bool:
        """Send as much as there is room for; reading tells of errors. True if more waits."""
        with self._lock:
            while self._waiting:
                data, passed = self._waiting[0]
                rights = []
                if passed is not None:
                    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [passed.fileno()]))]
                try:
                    sent = self._connection.sendmsg([data], rights, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return True
                except OSError:
                    self._drop()
                    return False
                self._unread -= sent
                if passed is not None:
                    passed.close()
                if sent < len(data):
                    self._waiting[0] = data[sent:], None
                else:
                    self._waiting.popleft()
            return False

    def messages(self) -> list[bytes]:
        """Read what there is, and take the whole messages from its beginning."""
        try:
            data = self._connection.recv(PIECE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError as error:
            raise Broken(str(error)) from None
        if not data:
            raise Broken("it closed its connection to the host")
        self._found += data
        found, at = [], 0
        while len(self._found) - at >= LENGTH.size:
            length = LENGTH.unpack_from(self._found, at)[0]
            if length > MESSAGE:
                raise Broken(f"it announced a message of {length} bytes")
            end = at + LENGTH.size + length
            if len(self._found) < end:
                break
            found.append(bytes(memoryview(self._found)[at + LENGTH.size : end]))
            at = end
        del self._found[:at]
        return found

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
