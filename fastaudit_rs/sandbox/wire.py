"""The messages between a sandbox's host and its process, through a Unix socket.

The length of a message comes before it; descriptors come with the first byte. In a session, and
where a run asks its host, a message is a head in one line of JSON, and bytes behind it. A head that
`passes` a descriptor has it come with an empty message, the next: others can be read by read(2),
about which the kernel does not ask the host.

The host trusts nothing that it gets: code that has got around its guard can write there too.
"""

import _socket
import array
import json
import mmap
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .._native import _json_extent
from ..sessions.forms import LENGTH

#: Modules so common that each run finds them imported: in a sandbox all but the first, which would
#: have to wait.
COMMON = (
    *("json", "re", "random", "tempfile", "datetime", "pathlib", "threading", "linecache"),
    "fastaudit_rs.sessions.shown",
)

#: The denials of a run, or of a step, that its host is told of.
DENIALS = 1000

#: The bytes that are read of a run's report on itself.
REPORT = 16 << 20

#: The bytes that a message to the host may have: a value, and what a step shows.
MESSAGE = 96 << 20

#: The bytes of its head, the number of values in it, and how deep one may be in others.
HEAD, VALUES, DEPTH = 2 << 20, 20_000, 50

_DESCRIPTOR = array.array("i").itemsize


class Command(NamedTuple):
    """A program that is to run: its words, or a text for the shell."""

    words: list[str] | str
    cwd: str | None = None
    #: Variables besides those of the code.
    env: Mapping[str, str] = {}


class Job(NamedTuple):
    """The code that a process of a sandbox is to run, and how."""

    code: str
    file: str
    #: Directories of modules that it finds, besides the current one.
    path: Sequence[str]
    args: Sequence[str] = ()
    value: bool = False
    #: Where it begins, if not in the directory of the sandbox: it then starts a program, and is
    #: left out of its tracebacks.
    cwd: str | None = None
    #: True if it is no code, but a process for the steps of a session.
    session: bool = False
    #: True if that asks the host before an operation is denied.
    asks: bool = False
    #: True if its decisions are logged: the last descriptor is that of the log.
    logs: bool = False
    cpu_seconds: int | None = None
    #: The bytes that a file may have.
    disk: int | None = None
    #: Values for its names, packed.
    variables: bytes = b""
    #: What it is told of the tools of the host.
    tools: Sequence[dict[str, Any]] = ()
    #: A program to run in the place of the code.
    command: Command | None = None


class KernelPart(NamedTuple):
    """The parts that the kernel is to hold, besides the work of `sandlock`."""

    confined: bool
    #: True if there may be files in memory: a control group counts them, or nothing is limited.
    memory_files: bool
    #: Limits of each process by itself: setrlimit(2).
    limits: dict[int, int]
    #: The version of Landlock.
    landlock: int
    #: True if the network is one of the sandbox's own.
    own_network: bool


class Malformed(ValueError):
    """A malformed message."""


def encode(kind: str, *body: bytes | memoryview, **head: object) -> list[bytes | memoryview]:
    """A message with its length: its parts, of which long ones are not copied."""
    line = json.dumps({"kind": kind, **head}).encode() + b"\n"
    return [LENGTH.pack(len(line) + sum(map(len, body))) + line, *body]


def after(parts: Sequence[bytes | memoryview], sent: int) -> list[memoryview]:
    """What is left of these when so many bytes are sent."""
    left = []
    for part in parts:
        if sent < len(part):
            left.append(memoryview(part)[sent:])
        sent = max(sent - len(part), 0)
    return left


def decode(message: bytes | bytearray | mmap.mmap) -> tuple[dict[str, Any], memoryview]:
    end = message.find(b"\n", 0, HEAD)
    if end < 0:
        raise Malformed("a message without a head")
    text = bytes(message[:end])
    values, depth = _json_extent(text)
    if values > VALUES or depth > DEPTH:
        raise Malformed("a message with too large a head")
    try:
        head = json.loads(text)
    except (ValueError, RecursionError):
        raise Malformed("a message whose head is no JSON") from None
    if type(head) is not dict or type(head.get("kind")) is not str:
        raise Malformed("a message without a kind")
    return head, memoryview(message)[end + 1 :]


def framed(message: bytes) -> bytes:
    return LENGTH.pack(len(message)) + message


def send(control: _socket.socket, message: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send a message: by write(2) what can be, about which the kernel does not ask the host."""
    rest = memoryview(framed(message))
    if descriptors:
        rights = array.array("i", descriptors)
        passed = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)]
        rest = rest[control.sendmsg([rest], passed) :]
    while rest:
        rest = rest[os.write(control.fileno(), rest) :]


def receive(control: _socket.socket, descriptors: int = 0) -> tuple[bytes, list[int]]:
    """The next message, and the descriptors with it; `EOFError` if the other side is gone."""
    room = _socket.CMSG_SPACE(descriptors * _DESCRIPTOR) if descriptors else 0
    found = array.array("i")
    head = b""
    while len(head) < LENGTH.size:
        part, passed, _, _ = control.recvmsg(LENGTH.size - len(head), room)
        for level, kind, rights in passed:
            if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
                found.frombytes(rights[: len(rights) - len(rights) % _DESCRIPTOR])
        if not part:
            raise EOFError("the other side is gone")
        head += part
    return bytes(exactly(control.fileno(), LENGTH.unpack(head)[0])), found.tolist()


def exactly(descriptor: int, size: int) -> bytearray:
    """Read so many bytes; `EOFError` if the other side is gone."""
    found = bytearray(size)
    rest = memoryview(found)
    while rest:
        read = os.readv(descriptor, [rest])
        if not read:
            raise EOFError("the other side is gone")
        rest = rest[read:]
    return found
