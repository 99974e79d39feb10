"""The session in which an adapter runs the code of a model, step by step."""

import asyncio
import concurrent.futures
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from .. import Policy
from ..results import Error, Result
from ..sandbox.host.process import ProcessEnded, SandboxError
from ..sandbox.host.sandbox import Sandbox
from ..sessions.arguments import is_async, tools_of
from ..sessions.base import Session, Tools

#: Where code runs: in this process, under a guard, or in a sandbox, behind the kernel.
Place = Literal["here", "sandbox"]


#: The ways in which a host may go on after a step, and those in which `Steps` goes on.
WAYS = {
    ": reset() starts another, undo() goes back": ": the next step has the names from before this",
    ": reset() starts another": ": the next step begins anew",
}

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


def for_models(ran: Result) -> Result:
    """The result, which tells the model how it goes on, and not how the host may."""
    if ran.error is None:
        return ran
    message, traceback = ran.error.message, ran.error.traceback
    for way, instead in WAYS.items():
        message, traceback = message.replace(way, instead), traceback.replace(way, instead)
    return replace(ran, error=replace(ran.error, message=message, traceback=traceback))


class Steps:
    """Steps of a session, one after another, whoever asks for them."""

    def __init__(self, where: Policy | Session, place: Place = "here", /, **options: Any) -> None:
        """Open a session, or take one of the host's."""
        self._ends = contextlib.ExitStack()
        self._last: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._last.set_result(None)
        check(where, place)
        if isinstance(where, Session):
            given = {"place": place, **options} if place != "here" else options
            if given:
                names = ", ".join(given)
                raise TypeError(f"{names}: a session has them already; pass a policy in its place")
            self.session = where
            return
        if place == "here":
            self.session = where.session(**options)
        else:
            with contextlib.ExitStack() as stack:
                own = {name: options.pop(name, None) for name in ("limits", "approvable")}
                sandbox = stack.enter_context(Sandbox(where, **own))
                self.session = sandbox.session(**options)
                self._ends = stack.pop_all()
        self._ends.callback(self.session.close)

    def run(
        self,
        code: str,
        variables: Mapping[str, object] | None = None,
        tools: Tools | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run a step as `Session.run` does, after those that were asked for before."""
        run = partial(self.session.run, code, variables=variables, tools=tools, timeout=timeout)
        with self._turn():
            try:
                ran = run()
            except RuntimeError as error:
                ran = self._go_back(error) or run()
            return self._noted(ran)

    async def arun(self, code: str) -> Result:
        """Run a step as `Session.arun` does, after those that were asked for before."""
        async with self._async_turn():
            try:
                ran = await self.session.arun(code)
            except RuntimeError as error:
                lost = await asyncio.to_thread(self._go_back, error)
                ran = lost or await self.session.arun(code)
            return self._noted(ran)

    def close(self) -> None:
        """Close the session that was opened here."""
        self._ends.close()

    def _go_back(self, error: RuntimeError) -> Result | None:
        """Have a session again, after a step that ended its process, or that still runs.

        Return the result of the step if it began: it is not run again then.
        """
        if isinstance(error, SandboxError):
            try:
                self.session.undo()
            except RuntimeError:
                self.session.reset()
            if isinstance(error, ProcessEnded):
                return None
            failed = Error("SandboxError", str(error))
            return Result(1, "", "", 0.0, None, error=failed)
        raise error

    def _noted(self, ran: Result) -> Result:
        return for_models(ran)

    def _next(self) -> "tuple[concurrent.futures.Future[None], Callable[[], None]]":
        """Return the end of the step before the next one, and a function to call at its own."""
        own: concurrent.futures.Future[None] = concurrent.futures.Future()
        before, self._last = self._last, own
        return before, lambda: before.add_done_callback(lambda _: own.set_result(None))

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        before, end = self._next()
        try:
            before.result()
            yield
        finally:
            end()

    @contextlib.asynccontextmanager
    async def _async_turn(self) -> AsyncIterator[None]:
        before, end = self._next()
        try:
            # Waiting for it in this way does not cancel it.
            await asyncio.wait([asyncio.wrap_future(before)])
            yield
        finally:
            end()
