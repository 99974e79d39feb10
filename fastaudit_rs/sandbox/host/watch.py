"""A process that runs code of a sandbox, watched until it ends or answers."""

import contextlib
import math
import selectors
import time
from abc import ABC, abstractmethod
from typing import Any

from ...sessions.base import Pieces
from ..limits import keep
from ..wire import REPORT, Malformed, decode
from .calls import Calls
from .channel import Broken
from .files import Disk
from .runner import CancelToken, SandboxConfig
from .session_process import Process

#: The time between looks at it, in seconds.
INTERVAL = 0.05


class ProcessWatch(ABC):
    #: The messages that it may send.
    most_messages: int

    def __init__(
        self, process: Process, config: SandboxConfig, seconds: float | None, cancel: CancelToken
    ) -> None:
        self.process = process
        self._config = config
        self._seconds = math.inf if seconds is None else seconds
        self._cancel = cancel
        self.calls: Calls | None = None
        self.pieces: Pieces | None = None
        self._messages = 0
        self.found = {name: bytearray() for name in process.pipes.values()}
        self.answer: tuple[dict[str, Any], memoryview] | None = None
        #: The limit that ended it, or ``"interrupt"``.
        self.killed_by: str | None = None
        #: The reason, if the process sent what is no message.
        self.broken = ""

    def text(self, name: str) -> str:
        return self.found[name].decode(errors="replace")

    @abstractmethod
    def stop(self, why: str, grace: float = 0) -> bool:
        """End it for a limit, or for another reason. False if it is over."""

    @abstractmethod
    def _obey(self, head: dict[str, Any], body: memoryview, size: int) -> None:
        """Do what a message asks for."""

    def _on_broken(self) -> None:
        """Read no more messages, after something that is none."""
        self.process.channel.close()

    def watch(self) -> None:
        """Watch it to its end: there is an answer then, or the process has ended."""
        begun = time.monotonic()
        disk = Disk(self._config.base, self._config.limits.disk)
        process = self.process
        caught: BaseException | None = None
        with contextlib.closing(disk), selectors.PollSelector() as selector:
            for descriptor in process.pipes:
                selector.register(descriptor, selectors.EVENT_READ)
            selector.register(process.worker.control, selectors.EVENT_READ)
            if process.stdin is not None:
                selector.register(process.stdin, selectors.EVENT_WRITE)
            if process.speaks:
                selector.register(process.channel, selectors.EVENT_READ)
            while self.answer is None and process.status is None:
                try:
                    self._look(selector)
                    self._cancel.check()
                    now = time.monotonic()
                    if now - begun > self._seconds:
                        self.stop("wall_seconds")
                    if now - begun > INTERVAL and disk.is_over(process.worker.pid):
                        self.stop("disk", 0)
                except BaseException as error:
                    # The host's own: a function of its, or its user. It ends first.
                    if caught is not None:
                        process.end()
                    caught = caught or error
                    self.stop("interrupt")
        if self.calls is not None:
            self.calls.end()
        if process.status is not None and not process.is_lost:
            process.settle()
        for name, data in process.drained():
            self._take(name, data)
        if self.pieces is not None:
            self.pieces.end()
        if caught is not None:
            raise caught

    def _look(self, selector: selectors.BaseSelector) -> None:
        process = self.process
        if process.speaks and not self.broken:
            is_pending = process.channel.flush()
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_pending else 0)
            if selector.get_key(process.channel).events != wanted:
                selector.modify(process.channel, wanted)
        for key, events in selector.select(INTERVAL):
            if key.fileobj is process.channel:
                if events & selectors.EVENT_READ and not self._heard():
                    selector.unregister(process.channel)
                    self._on_broken()
            elif key.fileobj is process.worker.control:
                process.hear()
            elif key.fileobj is process.stdin:
                if process.has_fed():
                    selector.unregister(key.fileobj)
            else:
                data = process.read(key.fd)
                self._take(process.pipes[key.fd], data)
                if not data:
                    selector.unregister(key.fd)

    def _heard(self) -> bool:
        """Obey what is there. False if nothing more can come."""
        try:
            for message in self.process.channel.messages():
                self._messages += 1
                if self._messages > self.most_messages:
                    raise Broken(f"it sent more than {self.most_messages} messages in a step")
                if self.answer is None:
                    with contextlib.suppress(Malformed):
                        self._obey(*decode(message), len(message))
        except Broken as error:
            self.broken = str(error)
            return False
        return True

    def _take(self, name: Any, data: bytes) -> None:
        is_report = name == "report"
        kept = keep(self.found[name], data, REPORT if is_report else self._config.limits.output)
        if self.pieces is not None:
            self.pieces.add(name, kept)
        if len(kept) < len(data) and not is_report:
            self.stop("output")
