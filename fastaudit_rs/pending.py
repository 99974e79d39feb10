"""Questions of code to a person that wait for an answer, to be stored meanwhile."""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from .denied import AuditDenied

#: What a question is about, among the keys of `AuditDenied.to_dict`: two questions that have the
#: same of it, and the same arguments, are the same.
SUBJECT = (
    "event",
    "effect",
    "rule",
    "message",
    "path",
    "resolved",
    "host",
    "command",
    "callee",
)

#: The event whose arguments say no more than that: a file is opened to be written in many ways.
_OPEN = "open"

#: The address of an object in a `repr()`, which is another one each time.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

#: The answers to a question that waited.
ANSWERS = ("once", "step", "guard", "pattern", "deny", "never")

#: The answer of an ``on_ask`` by which a question waits.
PENDING = "pending"

#: What was answered before in a step that is run again: subjects, as JSON, and answers.
Granted: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Pending:
    """A question that waits for an answer: what a step would have done, and where.

    ``Result.pending`` has it where ``on_ask`` answered ``"pending"``. Its fields are data that JSON
    holds, but for `denied`; in a sandbox code there words `denied`.

    Attributes:
        id: The name of the question, which nobody can guess: for `Session.answer`.
        session: The name of the session that it is of.
        code: The code of the step.
        denied: The operation, as ``on_ask`` got it: show people ``denied.resolved``.
        asked: When it was asked, in seconds since 1970.
        until: When it expires; ``None`` if it does not.
        variables: The variables that the step was given, packed.
        granted: What was answered before in the step.
        stdin: What the step reads from its standard input.
    """

    id: str
    session: str
    code: str
    denied: AuditDenied
    asked: float
    until: float | None = None
    variables: bytes = field(default=b"", repr=False)
    granted: Granted = field(default=(), repr=False)
    stdin: bytes | None = field(default=None, repr=False)

    @property
    def answers(self) -> tuple[str, ...]:
        """The answers that it can have."""
        return tuple(self.denied.answers)

    def to_dict(self) -> dict[str, Any]:
        """Everything as data that JSON holds, to be stored."""
        told = {each.name: getattr(self, each.name) for each in fields(self)}
        told["denied"] = self.denied.to_dict()
        told["variables"] = base64.b64encode(self.variables).decode()
        if self.stdin is not None:
            told["stdin"] = base64.b64encode(self.stdin).decode()
        told["granted"] = [[*each] for each in self.granted]
        return told

    @staticmethod
    def from_dict(told: Mapping[str, Any]) -> "Pending":
        """Make it of what `to_dict` gave.

        Raises:
            KeyError: A key is missing.
            TypeError: A value has another type than there.
            ValueError: A value cannot be one of there.
        """
        if not isinstance(told, Mapping):
            kind = type(told).__name__
            raise TypeError(f"told must be the dictionary that to_dict() gave, not {kind}")
        names = [each.name for each in fields(Pending)]
        for name in names:
            if name not in told:
                raise KeyError(f'told must have the key "{name}" of to_dict()')
        own = {name: told[name] for name in names}
        for name in ("id", "session", "code", "variables"):
            if type(own[name]) is not str:
                raise TypeError(f"{name} must be a str, not {type(own[name]).__name__}")
        for name in ("asked", "until"):
            if type(own[name]) not in (int, float) and (name, own[name]) != ("until", None):
                raise TypeError(f"{name} must be a number, not {type(own[name]).__name__}")
        own["denied"] = AuditDenied.from_dict(own["denied"])
        own["variables"] = base64.b64decode(own["variables"], validate=True)
        if own["stdin"] is not None:
            own["stdin"] = base64.b64decode(own["stdin"], validate=True)
        own["granted"] = tuple(
            (str(subject), checked_answer(answer)) for subject, answer in own["granted"]
        )
        return Pending(**own)


def subject(denied: AuditDenied) -> str:
    """What a question is about, as JSON: an answer is for the same arguments of the event alone."""
    told = denied.to_dict()
    about = {key: told[key] for key in SUBJECT}
    if told["event"] != _OPEN:
        about["args"] = [_lasting(one) for one in told["args"] or ()]
    return _ADDRESS.sub("", json.dumps(about))


def _lasting(argument: Any) -> Any:
    """An argument of an event; of an object, such as a socket with a number, its class alone."""
    is_object = isinstance(argument, str) and argument.startswith("<")
    return argument.partition(" ")[0] if is_object else argument


def checked_answer(answer: object) -> str:
    """An answer that a question which waited can have."""
    if not isinstance(answer, str):
        raise TypeError(f"answer must be a str, not {type(answer).__name__}")
    text = str.__str__(answer)
    if text not in ANSWERS:
        raise ValueError(f"answer must be one of {', '.join(map(repr, ANSWERS))}, not {text!r}")
    return text
