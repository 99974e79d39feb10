"""The messages between a sandbox and its process, through a Unix socket.

The length of each message comes before it; descriptors come with the first byte.
"""

import _socket
import array
import struct
from collections.abc import Sequence

#: Modules so common that each run finds them imported: in a sandbox all but the first, which would
#: have to wait.
COMMON = ("json", "re", "random", "tempfile", "datetime", "pathlib", "threading")

#: The bytes that are read of a run's report on itself.
REPORT = 16 << 20

_LENGTH = struct.Struct("!Q")
_DESCRIPTOR = array.array("i").itemsize


def send(control: _socket.socket, message: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send a message with copies of these descriptors.

    Raises:
        OSError: The other side is gone.
    """
    passed = []
    if descriptors:
        rights = array.array("i", descriptors)
        passed.append((_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights))
    sent = control.sendmsg([_LENGTH.pack(len(message)), message], passed)
    rest = (_LENGTH.pack(len(message)) + message)[sent:]
    if rest:
        control.sendall(rest)


def receive(control: _socket.socket, descriptors: int = 0) -> tuple[bytes, list[int]]:
    """Return the next message, and the descriptors that came with it, this many at most.

    Raises:
        EOFError: The other side is gone.
        OSError: Reading fails.
    """
    room = _socket.CMSG_SPACE(descriptors * _DESCRIPTOR) if descriptors else 0
    found = array.array("i")
    head = b""
    while len(head) < _LENGTH.size:
        part, passed, _, _ = control.recvmsg(_LENGTH.size - len(head), room)
        for level, kind, rights in passed:
            if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
                found.frombytes(rights[: len(rights) - len(rights) % _DESCRIPTOR])
        if not part:
            raise EOFError("the other side is gone")
        head += part
    return _exactly(control, _LENGTH.unpack(head)[0]), found.tolist()


def _exactly(control: _socket.socket, count: int) -> bytes:
    message = bytearray(count)
    room = memoryview(message)
    while room:
        received = control.recv_into(room)
        if not received:
            raise EOFError("the other side is gone")
        room = room[received:]
    return bytes(message)
