"""The session in which an adapter runs the code of a model, step by step."""

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Literal

from .. import Policy
from ..results import Result
from ..sandbox.host.sandbox import Sandbox
from ..sessions.arguments import is_async, tools_of
from ..sessions.base import Session, Tools
from ..sessions.queued import Opens, QueuedSession

#: Where code runs: in this process, under a guard, or in a sandbox, behind the kernel.
Place = Literal["here", "sandbox"]


#: The description of a tool that runs Python, for a model.
DESCRIPTION = """\
Run Python code. The answer has its output, the value of its last expression, and its error. Names,
imports and the working directory last from call to call. Operations that a policy denies are denied
again when they are tried again."""


def described(tools: Tools | None) -> str:
    """The description of a tool whose code may call tools of the host."""
    lines = [DESCRIPTION]
    if tools:
        lines.append("It may call these functions:")
    for name, function in tools_of(tools).items():
        try:
            signature = str(inspect.signature(function))
        except (TypeError, ValueError):
            signature = "(...)"
        awaited = "await " if is_async(function) else ""
        text = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
        lines.append(f"- {awaited}{name}{signature}{': ' if text else ''}{text}")
    return "\n".join(lines)


def as_data(ran: Result) -> dict[str, Any]:
    """A result as data for the host, which packages keep with a conversation.

    Returns:
        ``returncode``, ``killed_by`` and ``changed`` of the `Result`, ``error`` and ``denied`` as
        dictionaries of their fields, and ``display`` as MIME bundles of notebooks, in which images
        are in base64. JSON can hold it.
    """
    told = ran.to_dict()
    kept = {name: told[name] for name in ("returncode", "killed_by", "changed", "error", "display")}
    return {**kept, "denied": told["violations"]}


def check(where: object, place: object) -> None:
    """Check where code is to run."""
    if not isinstance(where, (Policy, Session)):
        raise TypeError(f"policy must be a Policy or a Session, not {type(where).__name__}")
    if place not in ("here", "sandbox"):
        raise ValueError(f"place must be 'here' or 'sandbox', not {place!r}")


def opening(policy: Policy, place: Place = "here", /, **options: Any) -> Opens:
    """Return a function that opens a session: of a policy, in a place."""
    check(policy, place)
    if place == "here":
        return partial(policy.session, **options)
    return partial(_in_sandbox, policy, options)


@contextlib.contextmanager
def _in_sandbox(policy: Policy, options: dict[str, Any]) -> Iterator[Session]:
    rest = {**options}
    own = {name: rest.pop(name, None) for name in ("limits", "approvable")}
    with Sandbox(policy, **own) as sandbox, sandbox.session(**rest) as session:
        yield session


class Steps:
    """Steps of a session, one after another, whoever asks for them."""

    def __init__(self, where: Policy | Session, place: Place = "here", /, **options: Any) -> None:
        """Open a session, or take one of the host's."""
        check(where, place)
        if isinstance(where, Session):
            given = {"place": place, **options} if place != "here" else options
            if given:
                names = ", ".join(given)
                raise TypeError(f"{names}: a session has them already; pass a policy in its place")
            session = where
            self._queued = QueuedSession(lambda: contextlib.nullcontext(session))
        else:
            self._queued = QueuedSession(opening(where, place, **options))
        self.session = self._queued.open()

    def run(
        self,
        code: str,
        variables: Mapping[str, object] | None = None,
        tools: Tools | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run a step as `Session.run` does, after those that were asked for before."""
        return self._queued.run(code, variables=variables, tools=tools, timeout=timeout)

    async def arun(self, code: str) -> Result:
        """Run a step as `Session.arun` does, after those that were asked for before."""
        return await self._queued.arun(code)

    def close(self) -> None:
        """Close the session that was opened here."""
        self._queued.close()
