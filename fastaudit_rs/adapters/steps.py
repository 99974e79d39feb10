"""The session in which an adapter runs the code of a model, step by step."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Literal

from .. import Policy
from ..results import Result
from ..sandbox.host.process import SandboxError
from ..sandbox.host.sandbox import Sandbox
from ..sessions.base import Functions, Session
from ..sessions.running import RUNS_ON

#: Where code runs: in this process, under a guard, or in a sandbox, behind the kernel.
Place = Literal["here", "sandbox"]


class Steps:
    """Steps of a session, one after another, whoever asks for them."""

    def __init__(self, where: Policy | Session, place: Place = "here", /, **options: Any) -> None:
        """Open a session, or take one of the host's.

        Args:
            where: The policy of the code; or a session, which is the host's to close.
            place: The place of the session of a policy.
            **options: Arguments of `Policy.session`, or of `Sandbox.session`, for which ``limits``
                is the sandbox's.

        Raises:
            SandboxError: The sandbox does not start.
            TypeError: An argument has another type, or there is no such argument.
            ValueError: An argument has a wrong value.
        """
        self._ends = contextlib.ExitStack()
        self._last: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._last.set_result(None)
        if place not in ("here", "sandbox"):
            raise ValueError(f"place must be 'here' or 'sandbox', not {place!r}")
        if isinstance(where, Session):
            given = {"place": place, **options} if place != "here" else options
            if given:
                names = ", ".join(given)
                raise TypeError(f"{names}: a session has them already; pass a policy in its place")
            self.session = where
            return
        if not isinstance(where, Policy):
            raise TypeError(f"policy must be a Policy or a Session, not {type(where).__name__}")
        if place == "here":
            self.session = where.session(**options)
        else:
            with contextlib.ExitStack() as stack:
                sandbox = stack.enter_context(Sandbox(where, options.pop("limits", None)))
                self.session = sandbox.session(**options)
                self._ends = stack.pop_all()
        self._ends.callback(self.session.close)

    def run(
        self,
        code: str,
        inputs: Mapping[str, object] | None = None,
        functions: Functions | None = None,
    ) -> Result:
        """Run a step as `Session.run` does, after those that were asked for before."""
        with self._turn():
            return self._lasting(self._going_on(code, inputs, functions))

    async def arun(self, code: str) -> Result:
        """Run a step as `Session.arun` does, after those that were asked for before."""
        async with self._async_turn():
            try:
                ran = await self.session.arun(code)
            except SandboxError:
                await asyncio.to_thread(self._go_back)
                ran = await self.session.arun(code)
            return self._lasting(ran)

    def close(self) -> None:
        """Close the session that was opened here."""
        self._ends.close()

    def _going_on(
        self, code: str, inputs: Mapping[str, object] | None, functions: Functions | None
    ) -> Result:
        try:
            return self.session.run(code, inputs=inputs, functions=functions)
        except SandboxError:
            self._go_back()
            return self.session.run(code, inputs=inputs, functions=functions)

    def _go_back(self) -> None:
        """Have a process again, after a step that ended it."""
        try:
            self.session.undo()
        except (RuntimeError, SandboxError):
            self.session.reset()

    def _lasting(self, ran: Result) -> Result:
        """Leave a step that cannot be ended its thread: the next one begins anew."""
        if ran.error is not None and ran.error.message == RUNS_ON:
            self.session.reset()
        return ran

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
