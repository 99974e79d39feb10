"""The answers of a host to the question whether an operation may be done."""

from typing import Literal, TypeAlias

#: An answer of ``on_ask``. ``"once"`` allows this operation, ``"guard"`` this subject for as long
#: as the guard's factory lives, ``"pattern"`` its directory, program or package, or the host with
#: its port. ``"never"`` denies the same, or this subject, and nobody is asked for it any more.
#: ``"pending"``, in a session, ends the step: `Session.answer` has the answer later. ``"step"``
#: allows a tool of an `MCP` server until the step ends.
Answer: TypeAlias = Literal["once", "step", "guard", "pattern", "deny", "never", "pending"]
