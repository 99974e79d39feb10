"""Questions about hosts that a policy does not allow, and that answers of the host may open.

The host words them: they are about what the code connects to, whatever it is that connects. The
thread that waits for a run or a step asks them; the proxy waits for the answers.
"""

import threading
from concurrent.futures import Future

from .... import AuditDenied, Network
from ...wire import DENIALS
from .rules import Address, Rules

#: The questions that may wait at a time.
WAITING = 64

#: The answers that open a host, and those that hold for others.
OPENING, KEPT = ("once", "guard", "pattern"), ("guard", "pattern", "never")


class Approvable:
    """What a policy allows by itself, and the most that answers may open besides."""

    def __init__(self, own: bool | Network, most: bool | Network) -> None:
        self.own, self.most = (
            Rules(Network(hosts=None if rules else []) if isinstance(rules, bool) else rules)
            for rules in (own, most)
        )

    def asks(self, name: str | None, address: Address, port: int) -> tuple[str | None, bool]:
        """Return the rule that denies a host, if one does, and whether an answer may open it."""
        denied = self.own.of(name, address, port)
        return denied, denied is not None and self.most.of(name, address, port) is None


class HostQuestion:
    def __init__(self, host: str, port: int, rule: str) -> None:
        self.host, self.port, self._rule = host, port, rule
        #: True if the host may be reached.
        self.future: Future[bool] = Future()
        # Whoever waits no more does not cancel it.
        self.future.set_running_or_notify_cancel()

    def denied(self, answer: str | None = None) -> AuditDenied:
        """The denial that the host is asked about."""
        place = f"[{self.host}]" if ":" in self.host else self.host
        place = f"{place}:{self.port}"
        return AuditDenied.from_dict(
            AuditDenied(f"Denied: connect to {place}").to_dict()
            | {
                "event": "socket.connect",
                "args": ["socket", [self.host, self.port]],
                "rule": self._rule,
                "hint": f"network = Network(hosts=[..., {place!r}])",
                "approvals": {"guard": {"network": {"hosts": [place]}}},
                "answer": answer,
            }
        )


class HostQuestions:
    """The questions of a run or a session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: The questions without an answer, and whether somebody was asked.
        self._waiting: dict[HostQuestion, bool] = {}
        self._is_open = False
        #: The answers that hold for others.
        self._kept: dict[tuple[str, int], bool] = {}
        self._denied: list[AuditDenied] = []

    def begin(self) -> None:
        """Take questions from now on: somebody asks them."""
        self._is_open = True

    def end(self) -> None:
        """Take none any more, and deny what waits."""
        with self._lock:
            self._is_open = False
            waiting = [*self._waiting]
        for question in waiting:
            self.answer(question, None)

    def put(self, host: str, port: int, rule: str) -> "Future[bool]":
        question = HostQuestion(host, port, rule)
        with self._lock:
            kept = self._kept.get((host, port))
            if kept is None and self._is_open and len(self._waiting) < WAITING:
                self._waiting[question] = False
                return question.future
        question.future.set_result(kept is True)
        return question.future

    def take(self) -> HostQuestion | None:
        """Return the next question that no answer is there for."""
        with self._lock:
            for question in [each for each, is_asked in self._waiting.items() if not is_asked]:
                kept = self._kept.get((question.host, question.port))
                if kept is None:
                    self._waiting[question] = True
                    return question
                del self._waiting[question]
                question.future.set_result(kept)
        return None

    def answer(self, question: HostQuestion, given: object) -> None:
        """Answer as for a guard; see ``docs/hosts.md``. The first answer counts."""
        is_allowed = given is True or (type(given) is str and given in OPENING)
        with self._lock:
            if self._waiting.pop(question, None) is None:
                return
            if type(given) is str and given in KEPT:
                self._kept[question.host, question.port] = is_allowed
            if not is_allowed and len(self._denied) < DENIALS:
                self._denied.append(question.denied(given if type(given) is str else None))
        question.future.set_result(is_allowed)

    def taken(self) -> list[AuditDenied]:
        """The denials since the last time."""
        with self._lock:
            denied, self._denied = self._denied, []
        return denied
