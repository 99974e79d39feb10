"""A process of a sandbox that runs the steps of a session, under its policy."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ... import AuditDenied, AuditLog, Policy
from ..._native import _Child
from ...results import Error
from ...sessions import step
from ...sessions.forms import message
from ...sessions.shown import Shown
from ...sessions.stdin import reader
from ...sessions.values import pack, unpack
from ..wire import DENIALS, Command, Job
from .channel import HostChannel, Message
from .command import start
from .tools import HostTool, asking


def serve(
    child: _Child,
    names: dict[str, Any],
    policy: Policy,
    most: Policy | None,
    job: Job,
    descriptor: int,
    log: AuditLog | None,
) -> int:
    """Run steps until the host is gone.

    It returns the exit status of a process that a step has started, and that comes to its end.
    """
    channel = HostChannel(descriptor)
    session = _Steps(child, channel, names, policy)
    for stream in session.streams.values():
        stream.reconfigure(line_buffering=True)
    channel.take_interrupts()
    asks = asking(channel, most) if job.asks else None
    policy.install(on_denied=session.tell, on_ask=asks, log=log)
    session.log = log
    with contextlib.suppress(EOFError, OSError):
        while channel.is_here:
            with contextlib.suppress(KeyboardInterrupt):
                session.copy_ahead()
                session.go_on()
                if channel.is_here:
                    session.obey(channel.command())
    return session.status


def _flush() -> None:
    for name in ("stdout", "stderr"):
        # A step may have removed it.
        with contextlib.suppress(Exception):
            getattr(sys, name).flush()


def _file(descriptor: int) -> tuple[int, int] | None:
    """What a descriptor leads to; `None` if it is closed."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _cut(data: memoryview, size: int) -> tuple[memoryview, bytes]:
    """Cut bytes off the end."""
    end = len(data) - size
    return data[:end], bytes(data[end:])


class _Steps:
    def __init__(
        self, child: _Child, channel: HostChannel, names: dict[str, Any], policy: Policy
    ) -> None:
        self._child = child
        self._channel = channel
        self._steps = step.StepContext(policy, names, Shown())
        own = {"display": self._steps.shown.display, "input": self._steps.input}
        self._steps.own.update(own)
        names.update(own)
        self._names = names
        self._denials = 0
        #: The tools of the host as it told of them, by their names.
        self._tools: dict[str, dict[str, Any]] = {}
        self.status = 0
        self.streams: dict[str, Any] = {"stdout": sys.stdout, "stderr": sys.stderr}
        #: Copies of their descriptors, and what those lead to: a step may close or redirect them.
        self._first = [(os.dup(number), _file(number)) for number in (1, 2)]
        self.log: AuditLog | None = None
        #: The copies of this process that nobody has waited for.
        self._copies: set[int] = set()
        #: True if the last step was copied before it ran.
        self._are_copied = False
        #: The copy for the next step, if it is made: its number, and what hands it its connection.
        self._ahead: tuple[int, int] | None = None

    def tell(self, denied: AuditDenied) -> None:
        self._denials += 1
        if self._denials <= DENIALS and self._channel.is_here:
            self._channel.send("denied", denied=denied.to_dict())

    def take_streams(self) -> None:
        """Have output go to the host, whatever a step before put there, or closed."""
        for number, name in enumerate(self.streams, 1):
            kept, first = self._first[number - 1]
            if _file(number) != first == _file(kept):
                os.dup2(kept, number)
            if self.streams[name].closed:
                with contextlib.suppress(OSError):
                    self.streams[name] = open(number, "w", 1, encoding="utf-8", closefd=False)
            setattr(sys, name, self.streams[name])

    def go_on(self) -> None:
        """Let the tasks that steps have started go on until the host says something."""
        channel = self._channel
        channel.interruptible = True
        try:
            self._steps.loop.run_until(channel.fileno(), channel.has_command)
        except BaseException:
            # A task ends by an interrupt, or has broken the loop. The others wait for a step.
            pass
        finally:
            channel.interruptible = False

    def obey(self, message: Message) -> None:
        head, body, descriptors = message
        number = head["number"]
        if head["kind"] == "step":
            # The place that it goes on from, if the host wants to go back.
            self._are_copied = bool(descriptors)
            if descriptors and not self._copied(descriptors[0], number):
                return
            self._step(head, body, number)
        elif head["kind"] == "copy":
            if self._copied(descriptors[0], number):
                self._channel.send("answer", number=number)
        elif head["kind"] == "names":
            self._channel.send("answer", pack(self._steps.named()), number=number)
        elif head["kind"] == "get":
            self._answer(number, lambda: self._steps.get(head["name"]))
        elif head["kind"] == "save":
            self._answer(number, self._steps.record)
        elif head["kind"] == "load":
            self._take_tools(head)
            self._answer(number, lambda: pack(self._steps.revive(body)))
        else:
            self._channel.send("answer", number=number)

    def copy_ahead(self) -> None:
        """Make the copy for the next step while the session is idle: a step need not wait for it.

        Not where something may change what a step finds: threads, and tasks of an event loop.
        """
        if not (self._are_copied and self._ahead is None and self._channel.is_here):
            return
        if threading.active_count() > 1 or self._steps.loop:
            return
        self._before_copy()
        try:
            process, connection = self._child.copy_ahead(self._channel.fileno())
        except OSError:
            # Another time, or before the step.
            return
        if process == 0:
            self._begin_anew()
        else:
            self._copies.add(process)
            self._ahead = process, connection

    def _handed(self, host: int) -> int:
        """Hand the copy that was made ahead its connection to the host; 0 if there is none."""
        if self._ahead is None:
            return 0
        (process, connection), self._ahead = self._ahead, None
        try:
            self._child.hand(connection, host)
        except OSError:
            # It has ended.
            process = 0
        os.close(connection)
        return process

    def _copied(self, host: int, number: int) -> bool:
        """Make a copy that waits. False in the copy, as it goes on."""
        process = self._handed(host)
        if process == 0:
            self._before_copy()
            try:
                process = self._child.copy(self._channel.fileno(), host)
            except OSError:
                process = -1
            if process == 0:
                os.close(host)
                self._begin_anew()
                return False
            if process > 0:
                self._copies.add(process)
        os.close(host)
        self._channel.send("copied", process=process, number=number)
        return True

    def _before_copy(self) -> None:
        _flush()
        self._forget_ended()

    def _begin_anew(self) -> None:
        """Go on as a copy."""
        self._channel.begin_anew()
        self._copies.clear()

    def _forget_ended(self) -> None:
        """Wait for the copies that have ended: the kernel keeps their numbers until then."""
        for process in list(self._copies):
            try:
                has_ended = os.waitpid(process, os.WNOHANG)[0] != 0
            except OSError:
                # The code has waited for it.
                has_ended = True
            if has_ended:
                self._copies.discard(process)

    def _step(self, head: dict[str, Any], body: memoryview, number: int) -> None:
        self._denials = 0
        self._take_tools(head)
        size = head["stdin"]
        rest, code = _cut(body, head["code"])
        variables, given = _cut(rest, size or 0)
        del body, rest
        stdin = None if size is None else given
        sys.stdin = reader(stdin)
        self.take_streams()
        self._steps.input.begin(stdin)
        text = code.decode(errors="surrogatepass")
        self._channel.take_interrupts()
        outcome = step.Outcome(status=step.INTERRUPTED)
        began = time.monotonic()
        try:
            self._channel.interruptible = True
            try:
                outcome = self._steps.ended(lambda: self._take_variables(variables))
                if outcome.error is None and head["command"] is None:
                    outcome = self._steps.outcome(text, head["step"])
                elif outcome.error is None:
                    command = Command(*head["command"])
                    outcome = self._steps.ended(lambda: start(command, stdin))
            finally:
                self._channel.interruptible = False
        except KeyboardInterrupt:
            # It came when the step was over.
            outcome.error = outcome.error or Error("KeyboardInterrupt", "")
        ended = time.monotonic()
        _flush()
        if self.log is not None:
            self.log.flush()
        if not self._channel.is_here:
            self.status = outcome.status
            return
        shown = pack(outcome.display)
        value = outcome.value or b""
        self._channel.send(
            "done",
            shown,
            value,
            number=number,
            status=outcome.status,
            error=None if outcome.error is None else asdict(outcome.error),
            value_error=outcome.value_error,
            shown=len(shown),
            ran=(began, ended),
        )

    def _take_variables(self, packed: memoryview) -> int:
        if packed:
            self._names.update(unpack(packed, own=True))
        return 0

    def _take_tools(self, head: dict[str, Any]) -> None:
        for told in head["tools"]:
            name = told["name"]
            # A step may have given the name to something else; tools of this one take it back.
            if name in head["given"] or self._tools.get(name) != told:
                self._tools[name] = told
                self._names[name] = self._steps.own[name] = HostTool(self._channel, told)

    def _answer(self, number: int, work: Callable[[], bytes | None]) -> None:
        """Answer with bytes, or with the reason that there are none."""
        try:
            self._channel.interruptible = True
            try:
                data = work()
            finally:
                self._channel.interruptible = False
        except BaseException as error:
            self._channel.send("answer", number=number, failed=message(error, 1000))
            return
        self._channel.send("answer", data or b"", number=number, missing=data is None)
