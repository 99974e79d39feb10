"""The process of a run or a session, and its copies that wait, as the host sees them."""

import contextlib
import io
import os
import pickle
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...sessions.errors import ProcessEnded
from ...sessions.pieces import NAMES
from ..wire import Job, Malformed, decode, encode, receive, send
from . import copies
from .causes import descriptors
from .channel import Broken, Channel
from .worker import Worker

if TYPE_CHECKING:
    from .decisions import Decisions

#: The time for an answer of our own code in the sandbox, in seconds.
PATIENCE = 5.0

PIECE = 1 << 16


@dataclass(eq=False)
class Copy:
    """A copy of the process that waits, from before a step."""

    channel: Channel
    step: int
    #: Its number; not known before it tells, and not positive if there is none.
    process: int | None = None

    @property
    def has_ended(self) -> bool:
        """True if it waits no more. One that waits says nothing."""
        return _readable(self.channel.fileno(), 0)


class Process:
    """A process of a worker that runs code: a run, which is given its input, or a session."""

    def __init__(
        self,
        worker: Worker,
        job: Job,
        decisions: "Decisions | None" = None,
        given: bytes | None = None,
    ) -> None:
        self.worker = worker
        self.is_run = not job.session
        #: True if a run has left nothing in its worker.
        self.is_clean = False
        #: True if it has a connection for messages.
        self.speaks = job.asks or bool(job.tools) or not self.is_run
        self._given = memoryview(given or b"")
        #: The copies from before the last steps, in order.
        self.copies: list[Copy] = []
        #: The copies that the host has asked for, by number.
        self.snapshots: dict[int, Copy] = {}
        #: Its exit status, or minus the number of a signal, once it has ended.
        self.status: int | None = None
        #: True once its worker has ended too.
        self.is_lost = False
        self._control = threading.Lock()
        self._answers: list[bool] = []
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as mine:
            #: The end of its standard input, if it is given one.
            self.stdin: io.FileIO | None = None
            if given is None:
                passed = [os.open(os.devnull, os.O_RDONLY)]
            else:
                reading, writing = os.pipe()
                passed = [reading]
                self.stdin = mine.enter_context(io.FileIO(writing, "wb"))
                os.set_blocking(writing, False)
            theirs.callback(os.close, passed[0])
            self.pipes: dict[int, str] = {}
            for name in (*NAMES, "report") if self.is_run else NAMES:
                reading, writing = os.pipe()
                theirs.callback(os.close, writing)
                mine.callback(os.close, reading)
                os.set_blocking(reading, False)
                self.pipes[reading] = name
                passed.append(writing)
            connection, other = socket.socketpair()
            theirs.callback(other.close)
            self.channel = Channel(connection)
            if self.speaks:
                passed.append(other.fileno())
            if decisions is not None:
                passed.append(decisions.descriptor())
                theirs.callback(os.close, passed[-1])
            with contextlib.suppress(OSError):
                # A worker that is gone shows where its answers are read.
                send(worker.control, pickle.dumps(job), passed)
            self._mine = mine.pop_all()
            self._mine.callback(lambda: self.channel.close())
        copies.note(self)

    def has_fed(self) -> bool:
        """Write to its standard input what there is room for. True once that is closed."""
        assert self.stdin is not None
        try:
            while self._given:
                self._given = self._given[os.write(self.stdin.fileno(), self._given) :]
        except BlockingIOError:
            return False
        except OSError:
            # Nobody reads it.
            pass
        self.stdin.close()
        return True

    def copied(self, step: int) -> socket.socket:
        """Expect a new copy; return the socket that the process makes it with."""
        connection, other = socket.socketpair()
        self.copies.append(Copy(Channel(connection), step))
        return other

    def keep(self, most: int | None) -> None:
        """Let go of the oldest copies, if there are more."""
        while most is not None and len(self.copies) > most:
            self.drop(self.copies[0])

    def drop(self, copy: Copy) -> None:
        self.copies.remove(copy)
        copy.channel.close()

    def forget(self, number: int) -> None:
        self.snapshots.pop(number).channel.close()

    def drop_all(self) -> None:
        for copy in self._kept():
            copy.channel.close()
        self.copies.clear()
        self.snapshots.clear()

    def _kept(self) -> list[Copy]:
        """The copies, in the order in which they are wanted."""
        return [*self.copies[::-1], *self.snapshots.values()]

    def signal(self, number: signal.Signals) -> None:
        self._say(b"signal %d" % number)

    def settle_signals(self) -> None:
        if self.status is None and not self._asked(b"signals"):
            self.end()

    def _say(self, words: bytes) -> None:
        with self._control, contextlib.suppress(OSError):
            send(self.worker.control, words)

    def has_ended(self) -> bool:
        """True if it has ended; what is left of it is settled then."""
        if self.status is None:
            while self.status is None and _readable(self.worker.control.fileno(), 0):
                self.hear()
            if self.status is not None:
                self.settle()
        return self.status is not None

    def check(self) -> None:
        """Raise unless it runs."""
        if self.has_ended():
            how = how_ended(self.status or 0)
            # `sandlock` kills it where the host has no descriptors to answer it with.
            if self.status == -signal.SIGKILL and (lacking := descriptors()) is not None:
                how = f"{how}; {lacking}"
            raise ProcessEnded(f"the session's process has ended ({how}): {self.ways()}")

    def ways(self) -> str:
        """The ways on without it, in words."""
        ways = ["reset() starts another"]
        if self.copies:
            ways.append("undo() goes back")
        if self.snapshots:
            ways.append("restore() to a snapshot")
        return ", ".join(ways)

    def hear(self) -> None:
        """Read what the worker says; it has something to say, or is gone."""
        try:
            word, number, *clean = receive(self.worker.control)[0].split()
            if word == b"ended":
                self.status, self.is_clean = int(number), clean == [b"1"]
            else:
                self._answers.append(number == b"1")
        except (EOFError, OSError, ValueError):
            self.is_lost = True
            self.status = -signal.SIGKILL if self.status is None else self.status

    def keep_only_copies(self, *copies: Copy) -> bool:
        """End all processes but these copies, of which the first is the session's then, if any."""
        numbers = [copy.process for copy in copies if copy.process is not None]
        return self._asked(b" ".join([b"only", *(b"%d" % number for number in numbers)]))

    def _asked(self, words: bytes) -> bool:
        """Say something to the worker, and return its answer; False if there is none."""
        self._answers.clear()
        self._say(words)
        deadline = time.monotonic() + PATIENCE
        while not self._answers and not self.is_lost:
            if not _readable(self.worker.control.fileno(), deadline):
                return False
            self.hear()
        return not self.is_lost and self._answers[0]

    def settle(self) -> None:
        """End what is left of a session's process that has ended, but for the copies of it."""
        if self.is_run:
            return
        self._drop_unmade()
        # The latest one comes first: it is the session's if that is wished later.
        kept = self._kept()
        if self.is_lost or not kept or not self.keep_only_copies(*kept):
            self.end()

    def _drop_unmade(self) -> None:
        for copy in list(self.copies):
            if copy.process is None or copy.process <= 0:
                self.drop(copy)

    def go_back(self) -> bool:
        """Go on from the latest copy. False if there is none, or if everything has ended."""
        self._drop_unmade()
        if self.copies:
            return self._go_on_from(self.copies.pop())
        if not self.snapshots:
            self.end()
        return False

    def restore(self, number: int) -> bool:
        """Use up a snapshot: go on from it. False if everything has ended instead."""
        for copy in list(self.copies):
            self.drop(copy)
        return self._go_on_from(self.snapshots.pop(number))

    def _go_on_from(self, copy: Copy) -> bool:
        is_there = self.keep_only_copies(copy, *self._kept())
        self.channel.close()
        self.channel = copy.channel
        if is_there:
            self.status = None
            self.channel.send(encode("ping", number=copy.step))
            if self._answered(copy.step):
                return True
        self.end()
        return False

    def _answered(self, number: int) -> bool:
        deadline = time.monotonic() + PATIENCE
        try:
            while _readable(self.channel.fileno(), deadline):
                for message in self.channel.messages():
                    head, _ = decode(message)
                    if head["kind"] == "answer" and head.get("number") == number:
                        return True
        except (Broken, Malformed):
            pass
        return False

    def drained(self) -> Iterator[tuple[str, bytes]]:
        for descriptor, name in self.pipes.items():
            # As much as a pipe holds, and no more: somebody may still write.
            for _ in range(64):
                data = self.read(descriptor)
                if not data:
                    break
                yield name, data

    @staticmethod
    def read(descriptor: int) -> bytes:
        try:
            return os.read(descriptor, PIECE)
        except BlockingIOError:
            return b""

    def end(self) -> None:
        """End it with its copies and its worker."""
        self.drop_all()
        self.worker.end()
        self.is_lost = True
        self.status = -signal.SIGKILL if self.status is None else self.status

    def release(self) -> None:
        self._mine.close()

    def begin_anew(self) -> None:
        """Close what a copy of the host has of it and of its copies."""
        for channel in (self.channel, *(copy.channel for copy in self._kept())):
            channel.forget()
        self.release()

    def close(self) -> None:
        self.end()
        self.release()


def how_ended(status: int) -> str:
    return f"exit status {status}" if status >= 0 else f"signal {-status}"


def _readable(descriptor: int, deadline: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
