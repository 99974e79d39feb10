"""The session in which an adapter runs the code of a model, step by step."""

import base64
import contextlib
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

from .. import Policy
from .._near import unknown
from .._rules import rules_for_model
from .._text import printable, valid_data
from .._threads import in_thread
from ..results import ModelContent, Result, files_of
from ..sandbox.host.sandbox import Sandbox
from ..sandbox.limits import Limits
from ..sessions.arguments import Tools, count, is_async, no_policy, seconds, tools_of
from ..sessions.base import Session
from ..sessions.here import OPTIONS, HereSession
from ..sessions.queued import Opens, QueuedSession
from ..sessions.typed import heading, structures, summary

#: Where code runs: in this process, under a guard, or in a sandbox, behind the kernel.
Place = Literal["here", "sandbox"]


#: The description of a tool that runs Python, for a model.
DESCRIPTION = """\
Run Python code. The answer has its output, the value of its last expression, its figures, and its
error. Names, imports and the working directory last from call to call."""

#: The bytes of a file that a host gets with a result, and those of all its files.
FILE, ALL_FILES = 1_000_000, 4_000_000


def missing(module: str, package: str) -> ImportError:
    """The error of an adapter whose package is not installed."""
    extra = module.rpartition(".")[2].replace("_", "-")
    return ImportError(f"{module} needs {package}: pip install 'fastaudit-rs[{extra}]'")


def rules_of(
    where: Policy | Session,
    place: Place = "here",
    *,
    directory: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> str:
    """What code may do in a session that is opened later, as `Session.rules_for_model` tells it."""
    if isinstance(where, Session):
        return where.rules_for_model()
    if place == "here":
        begun = os.path.abspath(os.curdir if directory is None else directory)
        return rules_for_model(where, directory=begun, seconds=timeout)
    limits = limits or Limits()
    return rules_for_model(
        where,
        is_sandbox=True,
        seconds=limits.wall_seconds if timeout is None else timeout,
        memory=limits.memory,
    )


def described(tools: Tools | None, rules: str = "") -> str:
    """The description of a tool whose code may call tools of the host, with its rules."""
    lines = [DESCRIPTION, rules] if rules else [DESCRIPTION]
    if tools:
        lines.append("It may call these functions:")
    for name, function in tools_of(tools).items():
        awaited = "await " if is_async(function) else ""
        text = summary(function)
        # They may be words of another server.
        line = f"- {awaited}{heading(name, function)}{': ' if text else ''}{text}"
        lines.append(printable(line))
        for part, schema in structures(function).items():
            lines.append(printable(f"  {part}: {json.dumps(schema)}"))
    return "\n".join(lines)


def as_data(ran: Result, session: Session | None = None) -> dict[str, Any]:
    """A result as data for the host, which packages keep with a conversation.

    Args:
        ran: The result.
        session: The session, for what is in changed files.

    Returns:
        ``is_error``; ``returncode``, ``killed_by`` and ``changed`` of the `Result`; ``error`` and
        ``denied`` as dictionaries of their fields, ``pending`` as `Pending.to_dict`, and
        ``display`` as MIME bundles of notebooks, in which images are in base64. ``files`` has
        changed files in base64 by their names, up to 1 MB each and 4 MB together. JSON can hold it.
    """
    told = ran.to_dict()
    names = ("returncode", "killed_by", "changed", "error", "pending", "display")
    return {
        "is_error": not ran.success,
        **{name: told[name] for name in names},
        "denied": told["violations"],
        "files": {} if session is None else valid_data(_files(ran, session)),
    }


def _files(ran: Result, session: Session) -> dict[str, str]:
    found: dict[str, str] = {}
    left = ALL_FILES
    for name in files_of(ran):
        # The file may be gone, a link, or too large.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            data = session._read_file(name, min(FILE, left))
            left -= len(data)
            found[name] = base64.b64encode(data).decode()
    return found


def check(where: object, place: Any, **options: Any) -> None:
    """Check where code is to run, and the options of a session there."""
    if not isinstance(where, (Policy, Session)):
        raise no_policy("policy", where, "a Policy or a Session")
    if place not in ("here", "sandbox"):
        raise ValueError(f"place must be 'here' or 'sandbox', not {place!r}")
    if isinstance(where, Policy):
        check_options(place, options)


def check_options(place: Place, options: Mapping[str, Any]) -> None:
    """Refuse options that no session in this place takes, before one is opened.

    Raises:
        TypeError: There is no such option, or it has another type.
        ValueError: An option has a wrong value.
    """
    make: Callable[..., Any] = HereSession if place == "here" else Sandbox.session
    more = OPTIONS if place == "here" else {"limits", "approvable"}
    known = inspect.signature(make).parameters.keys() - {"self", "policy", "options"} | more
    for name, value in options.items():
        if name not in known:
            raise TypeError(
                unknown("Policy.session" if place == "here" else "Sandbox.session", name)
            )
        if name in ("timeout", "ask_seconds"):
            seconds(name, value)
        elif name in ("snapshots", "undo_depth", "tool_calls"):
            count(name, value, 1 if name == "tool_calls" else 0)
    tools_of(options.get("tools"))


def opening(where: Policy | Session, place: Place = "here", /, **options: Any) -> Opens:
    """Return a function that opens a session: of a policy, in a place; or one of the host's."""
    check(where, place)
    if isinstance(where, Session):
        given = {"place": place, **options} if place != "here" else options
        if given:
            names = ", ".join(given)
            raise TypeError(f"{names}: a session has them already; pass a policy in its place")
        return lambda: contextlib.nullcontext(where)
    if place == "here":
        return partial(where.session, **options)
    return partial(_in_sandbox, where, options)


@contextlib.contextmanager
def _in_sandbox(policy: Policy, options: dict[str, Any]) -> Iterator[Session]:
    rest = {**options}
    own = {name: rest.pop(name, None) for name in ("limits", "approvable")}
    with Sandbox(policy, **own) as sandbox, sandbox.session(**rest) as session:
        yield session


class Steps(QueuedSession):
    """Steps of a session, one after another, whoever asks for them."""

    def __init__(self, where: Policy | Session, place: Place = "here", /, **options: Any) -> None:
        """Open a session, or take one of the host's."""
        super().__init__(opening(where, place, **options))
        #: The session, also after its end.
        self.opened = self.open()

    async def told(self, code: str) -> tuple[ModelContent, dict[str, Any]]:
        """Run a step; return its result as content for a model, and as data for the host."""
        ran = await self.arun(code)
        return ran.content_for_model(), await in_thread(as_data, ran, self.opened)
