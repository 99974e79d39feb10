"""The connection of a session's process to its host, which the threads of the process share."""

import _socket
import asyncio
import contextlib
import os
import select
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

from ...sessions.forms import LENGTH
from ..wire import after, decode, encode, exactly, receive

#: The seconds after which a thread that waits for another one looks for interrupts.
LOOK = 0.05

#: The errors that are looked at of those that came one while another was handled.
MOST_ERRORS = 20

_CONTEXT: Any = vars(BaseException)["__context__"].__get__

#: A message: its head, its body, and the descriptors that came with it.
Message = tuple[dict[str, Any], memoryview, list[int]]


class HostChannel:
    """The connection to the host.

    Each thread that waits for a message reads those of the others too, one thread at a time.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._connection = _socket.socket(fileno=descriptor)
        self._next = 0
        #: True while the main thread runs code of a step: a signal may end it there.
        self.interruptible = False
        self._shields = 0
        #: True while the main thread waits for the host, behind its shield.
        self._waits = False
        self._was_interrupted = False
        #: True once the step that runs got an interrupt.
        self._has_raised = False
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget what other threads wait for: in a copy of the process they do not exist."""
        self._process = os.getpid()
        # Code of the host's own guest runs at any point, such as a finalizer that is denied.
        self._sending = threading.RLock()
        self._changed = threading.Condition(threading.RLock())
        self._is_read = False
        self._commands: deque[Message] = deque()
        #: The answers of calls, by their numbers.
        self._answers: dict[int, Future[Message]] = {}
        #: The event loops that wait for answers, each as often as it waits.
        self._loops: list[asyncio.AbstractEventLoop] = []

    @property
    def is_here(self) -> bool:
        """True if this is the process that the host talks to, and no copy that a step made."""
        return os.getpid() == self._process

    def fileno(self) -> int:
        return self._connection.fileno()

    def interrupted(self, *_: object) -> None:
        """Handle the signal for an interrupt: raise, but not in the middle of a message."""
        if self._shields and not self._waits:
            self._was_interrupted = True
        elif self.interruptible:
            self._raise()

    def _raise(self) -> None:
        # The host repeats it, as the first one may be lost: not for code that handles it now.
        if not (self._has_raised and _handles_interrupt()):
            self._has_raised = True
            raise KeyboardInterrupt

    def take_interrupts(self) -> None:
        """Have the signal for an interrupt end the step that begins; those before are forgotten."""
        signal.signal(signal.SIGINT, self.interrupted)
        # It is blocked where the process begins.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        self._was_interrupted = self._has_raised = False

    @contextlib.contextmanager
    def _shielded(self) -> Iterator[None]:
        """Let no interrupt of the main thread through until the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
            if not self._shields:
                self._raise_late()

    def _raise_late(self) -> None:
        """Raise if an interrupt came behind the shield."""
        if self._was_interrupted:
            self._was_interrupted = False
            if self.interruptible:
                self._raise()

    def send(self, kind: str, *body: bytes | memoryview, **head: object) -> None:
        parts: Sequence[bytes | memoryview] = encode(kind, *body, **head)
        with self._shielded(), self._sending:
            while parts:
                parts = after(parts, os.writev(self.fileno(), parts))

    def has_command(self) -> bool:
        """Tell whether a command of the host is there; True where none will come."""
        if self.is_here:
            self._read_if_nobody_does()
        return bool(self._commands) or not self.is_here

    def command(self) -> Message:
        """Wait for the host's next command; `EOFError` if the host is gone."""
        self._pump(lambda: bool(self._commands))
        return self._commands.popleft()

    def call(self, kind: str, body: bytes = b"", **head: object) -> Message:
        """Ask the host something, such as to call a tool, and wait for its answer."""
        number, answer = self._expected()
        try:
            self.send(kind, body, id=number, **head)
            self._pump(answer.done)
            return answer.result()
        finally:
            self._answers.pop(number, None)

    async def acall(self, name: str, body: bytes) -> Message:
        """Call a tool that is a coroutine function of the host, and await its answer."""
        loop = asyncio.get_running_loop()
        number, answer = self._expected()
        if loop not in self._loops:
            loop.add_reader(self.fileno(), self._read_if_nobody_does)
        self._loops.append(loop)
        try:
            self.send("call", body, id=number, name=name)
            return await asyncio.wrap_future(answer)
        finally:
            self._answers.pop(number, None)
            with contextlib.suppress(ValueError):
                self._loops.remove(loop)
            if loop not in self._loops:
                loop.remove_reader(self.fileno())

    def _expected(self) -> "tuple[int, Future[Message]]":
        """Return the number of a call that begins, and what is to have its answer."""
        with self._changed:
            self._next += 1
            answer = self._answers[self._next] = Future[Message]()
            return self._next, answer

    def _read_if_nobody_does(self) -> None:
        with self._changed:
            if self._is_read or not select.select([self._connection], [], [], 0)[0]:
                return
            self._read()

    def _pump(self, is_there: Any) -> None:
        """Read messages, or have another thread read them, until a condition holds."""
        is_main = threading.current_thread() is threading.main_thread()
        # Each thread would wait for ever for one that has left without a word.
        with self._shielded():
            while True:
                with self._changed:
                    if is_there():
                        return
                    if self._is_read:
                        self._changed.wait(LOOK)
                        if is_main:
                            self._raise_late()
                        continue
                    self._is_read = True
                try:
                    self._wait(is_main)
                    self._read()
                finally:
                    with self._changed:
                        self._is_read = False
                        self._changed.notify_all()

    def _wait(self, is_main: bool) -> None:
        """Wait for something to read. A signal gets through here: nothing is half read."""
        try:
            self._waits = is_main
            if is_main:
                self._raise_late()
            select.select([self._connection], [], [])
        finally:
            self._waits = False

    def _read(self) -> None:
        with self._shielded():
            size = LENGTH.unpack(exactly(self.fileno(), LENGTH.size))[0]
            head, body = decode(exactly(self.fileno(), size))
            descriptors = receive(self._connection, 1)[1] if head.get("passes") else []
            with self._changed:
                number = head.get("id")
                if head["kind"] != "return":
                    self._commands.append((head, body, descriptors))
                elif number in self._answers:
                    # One that is awaited may be cancelled.
                    with contextlib.suppress(InvalidStateError):
                        self._answers[number].set_result((head, body, descriptors))


def _handles_interrupt() -> bool:
    """Tell whether an interrupt is handled now, or an error that came while it was."""
    error: Any = sys.exc_info()[1]
    for _ in range(MOST_ERRORS):
        if error is None or type(error) is KeyboardInterrupt:
            break
        error = _CONTEXT(error)
    return type(error) is KeyboardInterrupt
