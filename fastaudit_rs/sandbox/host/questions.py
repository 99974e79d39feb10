"""The questions of one run to its host, before an operation is denied."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

from ... import AuditDenied, Policy
from ...approvals import Approvals
from ...sessions.arguments import seconds
from ...sessions.coroutines import HostLoop
from ..wire import Malformed, decode
from .calls import Calls
from .channel import Broken, Channel

#: The questions that a run may ask, and the messages that it may send.
QUESTIONS, MESSAGES = 1000, 10_000

MODULES = ("fastaudit_rs.sandbox.inside.functions",)

Ask = Callable[[AuditDenied], object]


def check_ask(on_ask: Any, ask_seconds: object) -> None:
    if isinstance(on_ask, Approvals):
        # The sandbox words what an answer would add, and code there may lie.
        raise TypeError(
            "on_ask must not be Approvals: code in a sandbox words the questions, and a file would "
            "keep its words"
        )
    if on_ask is not None and not callable(on_ask):
        raise TypeError(f"on_ask must be a function, not {type(on_ask).__name__}")
    seconds("ask_seconds", ask_seconds)


def warn_of_held(on_ask: Any, ask_up_to: Policy | None) -> None:
    """Warn if nobody is asked about what the kernel holds."""
    if on_ask is not None and ask_up_to is None:
        from ..._near import warn

        warn(
            "on_ask without ask_up_to is not asked about files, programs and the network, which "
            "the kernel holds whatever the answer is: Sandbox(ask_up_to=Policy(write=[...])) names "
            "what answers may open"
        )


class Questions:
    def __init__(
        self, on_ask: Ask, ask_seconds: float | None, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        mine, self._theirs = socket.socketpair()
        self._channel = Channel(mine)
        self._own_loop = HostLoop()
        made = self._own_loop if loop is None else lambda: loop
        self._calls = Calls(
            {}, self._channel.send, self._channel.unread, made, QUESTIONS, on_ask, ask_seconds
        )
        self._left = MESSAGES

    def fileno(self) -> int:
        return self._channel.fileno()

    def passed(self) -> int:
        """The descriptor that the run gets; `sent` closes it here."""
        return self._theirs.fileno()

    def sent(self) -> None:
        self._theirs.close()

    def flush(self) -> None:
        self._channel.flush()

    def hear(self) -> bool:
        """Answer what is asked. False if no more can be asked: each question is denied then."""
        try:
            for message in self._channel.messages():
                self._left -= 1
                if self._left < 0:
                    raise Broken("it sent too many messages")
                with contextlib.suppress(Malformed):
                    head, _ = decode(message)
                    if head["kind"] == "ask":
                        self._calls.ask(head)
        except Broken:
            return False
        return True

    def close(self) -> None:
        self._calls.end()
        self._channel.close()
        self._theirs.close()
        self._own_loop.close()
