"""A process of a sandbox that runs the steps of a session, under its policy."""

import _socket
import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ... import AuditDenied, AuditLog, Policy
from ..._native import MONITORING, _Child
from ...results import Error
from ...sessions import step
from ...sessions.forms import NotData, message
from ...sessions.shown import Shown
from ...sessions.values import pack, unpack
from ..wire import DENIALS, Job
from .channel import HostChannel, Message
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
    os.set_inheritable(descriptor, False)
    channel = HostChannel(_socket.socket(fileno=descriptor))
    session = _Steps(child, channel, names, policy)
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.reconfigure(line_buffering=True)
    channel.take_interrupts()
    asks = asking(channel, most) if job.asks else None
    policy.install(monitor_calls=MONITORING, on_denied=session.tell, on_ask=asks, log=log)
    session.log = log
    with contextlib.suppress(EOFError, OSError):
        while channel.is_here:
            with contextlib.suppress(KeyboardInterrupt):
                session.obey(channel.command())
    return session.status


class _Steps:
    def __init__(
        self, child: _Child, channel: HostChannel, names: dict[str, Any], policy: Policy
    ) -> None:
        self._child = child
        self._channel = channel
        self._steps = step.StepContext(policy, names, Shown())
        self._steps.own["display"] = names["display"] = self._steps.shown.display
        self._names = names
        self._denials = 0
        #: The tools of the host as it told of them, by their names.
        self._tools: dict[str, dict[str, Any]] = {}
        self.status = 0
        self.log: AuditLog | None = None
        #: The copies of this process that nobody has waited for.
        self._copies: set[int] = set()

    def tell(self, denied: AuditDenied) -> None:
        self._denials += 1
        if self._denials <= DENIALS and self._channel.is_here:
            self._channel.send("denied", denied=denied.to_dict())

    def obey(self, message: Message) -> None:
        head, body, descriptors = message
        number = head["number"]
        if head["kind"] == "step":
            # The place that it goes on from, if the host wants to go back.
            if descriptors and not self._copied(descriptors[0], number):
                return
            self._step(head, body, number)
        elif head["kind"] == "copy":
            if self._copied(descriptors[0], number):
                self._channel.send("answer", number=number)
        elif head["kind"] == "names":
            self._channel.send("answer", pack(self._steps.named()), number=number)
        elif head["kind"] == "get":
            self._get(head["name"], number)
        elif head["kind"] == "save":
            self._answer(number, self._steps.record)
        elif head["kind"] == "load":
            self._take_tools(head)
            self._answer(number, lambda: pack(self._steps.revive(body)))
        else:
            self._channel.send("answer", number=number)

    def _copied(self, host: int, number: int) -> bool:
        """Make a copy that waits. False in the copy, as it goes on."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        self._forget_ended()
        try:
            process = self._child.copy(self._channel.fileno(), host)
        except OSError:
            process = -1
        os.close(host)
        if process == 0:
            self._channel.begin_anew()
            self._copies.clear()
            return False
        if process > 0:
            self._copies.add(process)
        self._channel.send("copied", process=process, number=number)
        return True

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
        if body:
            self._names.update(unpack(body, own=True))
        del body
        self._channel.take_interrupts()
        outcome = step.Outcome(status=step.INTERRUPTED)
        try:
            self._channel.interruptible = True
            try:
                outcome = self._steps.outcome(head["code"], head["step"])
            finally:
                self._channel.interruptible = False
        except KeyboardInterrupt:
            # It came when the step was over.
            outcome.error = outcome.error or Error("KeyboardInterrupt", "")
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        if self.log is not None:
            self.log.flush()
        if not self._channel.is_here:
            self.status = outcome.status
            return
        shown = pack(outcome.display)
        value = outcome.value or b""
        self._channel.send(
            "done",
            shown + value,
            number=number,
            status=outcome.status,
            error=None if outcome.error is None else asdict(outcome.error),
            value_error=outcome.value_error,
            shown=len(shown),
        )

    def _take_tools(self, head: dict[str, Any]) -> None:
        for told in head["tools"]:
            name = told["name"]
            # A step may have given the name to something else; tools of this one take it back.
            if name in head["given"] or self._tools.get(name) != told:
                self._tools[name] = told
                self._names[name] = self._steps.own[name] = HostTool(self._channel, told)

    def _get(self, name: str, number: int) -> None:
        if name not in self._names:
            self._channel.send("answer", number=number, missing=True)
            return
        self._answer(number, lambda: self._packed(name))

    def _packed(self, name: str) -> bytes:
        value = pack(self._names[name], place=name)
        if len(value) > step.VALUE:
            size, most = len(value) / (1 << 20), step.VALUE >> 20
            raise NotData(f"{name} is too large: {size:.1f} MB, of at most {most} MB")
        return value

    def _answer(self, number: int, work: Callable[[], bytes]) -> None:
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
        self._channel.send("answer", data, number=number)
