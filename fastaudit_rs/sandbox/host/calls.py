"""Tools: functions of the host that the code of a session calls."""

import asyncio
import builtins
import concurrent.futures
import contextlib
import contextvars
import functools
import inspect
import signal
import threading
from collections.abc import Callable, Mapping
from traceback import walk_tb
from typing import Any, NamedTuple

from ... import AuditDenied, Policy
from ..._waiting import HELD_UP, loop_here
from ...approvals import Approvals
from ...denied import TOOL_CALL
from ...pending import PENDING
from ...sessions.arguments import is_async, seconds
from ...sessions.forms import class_name, is_failure, message
from ...sessions.questions import StepEnds, Thinking, is_for_caller
from ...sessions.server_tools import ServerTool, ToolAnswers
from ...sessions.tool_values import DATA, Budget, arguments, as_data, packed_result
from ...sessions.typed import EMPTY, default_told, formatted
from ...sessions.values import pack
from ..wire import encode
from .channel import Channel

#: The characters of an error's text that are told.
TEXT = 10_000

#: The bytes of answers that may wait to be read: they take memory of the host.
UNREAD = 128 << 20
_UNREAD = f"more than {UNREAD >> 20} MB of answers of the host wait to be read"

#: The error of a call that goes on as its step ends.
OVER = "the call was cancelled, as the step that made it has ended: await it in that step"


def told(tools: Mapping[str, Callable[..., Any]]) -> list[dict[str, Any]]:
    return [_described(name, function) for name, function in tools.items()]


def _described(name: str, function: Any) -> dict[str, Any]:
    parameters = returns = None
    signature: inspect.Signature | None = function.__signature__
    if signature is not None:
        parameters = [
            (
                one.name,
                int(one.kind),
                None if one.default is EMPTY else default_told(one.default),
                _annotation(one.annotation),
            )
            for one in signature.parameters.values()
        ]
        returns = _annotation(signature.return_annotation)
    return {
        "name": name,
        "doc": function.__doc__ and inspect.cleandoc(function.__doc__),
        "parameters": parameters,
        "returns": returns,
        "is_async": is_async(function),
        "schema": getattr(function, "schema", None),
    }


def _annotation(given: object) -> str | None:
    return None if given is EMPTY else formatted(given)


#: A function that is asked before an operation is denied.
Ask = Callable[[AuditDenied], object]


class _Reply(NamedTuple):
    """Where the outcome of a call goes that a message asked for."""

    number: int
    name: str
    is_ask: bool
    #: True if the step is interrupted once it was stopped meanwhile: it does nothing after it then.
    ends: bool


class _Exit(NamedTuple):
    """What a coroutine function raised to exit."""

    error: SystemExit


class Calls:
    """The calls of tools, and the questions, of one run or step."""

    def __init__(
        self,
        channel: Channel,
        tools: Mapping[str, Callable[..., Any]],
        loop: Callable[[], asyncio.AbstractEventLoop],
        budget: Budget,
        on_ask: Ask | None,
        stop: Callable[[str], object],
        is_stopped: Callable[[], bool],
        answers: ToolAnswers | None,
    ) -> None:
        self._on_ask = on_ask
        #: The answers about tools of servers.
        self.answers = ToolAnswers() if answers is None else answers
        self.answers.begin()
        #: That of whoever runs the code: another thread may watch it.
        self._context = contextvars.copy_context()
        #: The time in which answers of coroutine functions and plain ones are waited for.
        self.thinking = Thinking()
        #: What ``on_ask`` raised, if it is for whoever runs the code.
        self.raised: Exception | None = None
        self._stop = stop
        #: True if the event loop of the thread that runs the code waits for it.
        self._is_held_up = loop_here() is not None
        #: The thread that calls a plain function now.
        self.thread: int | None = None
        self._tools = tools
        self._channel = channel
        self._is_stopped = is_stopped
        self._loop = loop
        self._budget = budget
        budget.begin()
        self._running: set[concurrent.futures.Future[Any]] = set()
        self._is_over = False

    def obey(self, head: dict[str, Any], body: memoryview) -> Callable[[], None] | None:
        """Start the tool, or the ``on_ask``, that a message asks for; or return what calls it."""
        is_ask = head["kind"] == "ask"
        number, name = head.get("id"), "on_ask" if is_ask else head.get("name")
        if type(number) is not int or type(name) is not str:
            return None
        function = self._on_ask if is_ask else self._tools.get(name)
        # One that is interrupted may call tools as it ends.
        reply = _Reply(number, name, is_ask, ends=not (is_ask or self._is_stopped()))
        try:
            self._budget.take()
            if function is None:
                raise NameError(f"there is no tool {name[:100]!r}")
            if self._channel.unread() > UNREAD:
                raise RuntimeError(_UNREAD)
            if len(body) > DATA:
                raise ValueError(f"the arguments of {name!r} have more than {DATA >> 20} MB")
            if not is_ask:
                args, kwargs = arguments(body)
            elif is_async(function) and self._is_held_up:
                raise RuntimeError(HELD_UP)
            else:
                denied = AuditDenied.from_dict(head["denied"])
                if denied.event == TOOL_CALL:
                    raise ValueError("the host itself asks about tools of servers")
                args, kwargs = [denied], {}
            if isinstance(function, ServerTool):
                return self._of_server(reply, function, args, kwargs)
        except Exception as error:
            self._fail(reply, error)
            return None
        return self._called(
            functools.partial(function, *args, **kwargs),
            is_async(function),
            self.thinking if is_ask else None,
            functools.partial(self._answer, reply),
            functools.partial(self._fail, reply),
        )

    def _of_server(
        self, reply: _Reply, tool: ServerTool, args: list[Any], kwargs: dict[str, Any]
    ) -> Callable[[], None] | None:
        """Start a tool of a server, which no thread waits for; or return what asks about it."""
        given = tool.given(args, kwargs)
        answers = self.answers
        start = functools.partial(
            self._called,
            functools.partial(tool.acall, given),
            True,
            None,
            functools.partial(self._answer, reply),
            functools.partial(self._fail, reply),
        )
        if not tool.asks or answers.known(tool):
            return start()
        asked = tool.question(given)
        if self._on_ask is None or answers.known(tool) is False:
            answers.decide(tool, asked, None)

        def told(answer: object) -> None:
            try:
                answers.settle(tool, asked, answer)
            except AuditDenied as denied:
                self._fail(reply, denied)
            else:
                start()

        return self.ask(asked, told)

    def ask(self, denied: AuditDenied, told: Callable[[object], None]) -> Callable[[], None] | None:
        """Ask the host, and tell its answer, ``None`` where there is none; or return what asks."""
        ask = self._on_ask
        try:
            self._budget.take()
        except RuntimeError:
            ask = None
        if ask is None or (is_async(ask) and self._is_held_up):
            told(ask and HELD_UP)
            return None
        return self._called(
            functools.partial(ask, denied),
            is_async(ask),
            self.thinking,
            told,
            lambda error: told(self._failed_ask(error)),
        )

    def _called(
        self,
        function: Callable[[], Any],
        is_async: bool,
        thinking: Thinking | None,
        answer: Callable[[Any], None],
        fail: Callable[[BaseException], None],
    ) -> Callable[[], None] | None:
        """Have the host's loop await a coroutine function; return what calls a plain one.

        The time of a question is that of thinking.
        """
        meanwhile = thinking or contextlib.nullcontext()

        def call() -> None:
            try:
                self.thread = None if thinking else threading.get_ident()
                try:
                    with meanwhile:
                        value = function()
                finally:
                    self.thread = None
            except BaseException as error:
                if not is_failure(error) and (thinking or _is_of_host(error)):
                    raise
                fail(error)
            else:
                answer(value)

        async def awaited() -> Any:
            with meanwhile:
                try:
                    return await function()
                except SystemExit as error:
                    if thinking:
                        raise
                    # It would end the event loop.
                    return _Exit(error)

        def ended(future: "concurrent.futures.Future[Any]") -> None:
            self._running.discard(future)
            try:
                value = future.result()
            except concurrent.futures.CancelledError as error:
                fail(RuntimeError(OVER) if self._is_over and thinking is None else error)
            except BaseException as error:
                fail(error)
            else:
                if isinstance(value, _Exit):
                    fail(value.error)
                else:
                    answer(value)

        if not is_async:
            return call
        # It has the variables of the step's context.
        schedule = self._context.copy().run
        future = schedule(asyncio.run_coroutine_threadsafe, awaited(), self._loop())
        self._running.add(future)
        future.add_done_callback(ended)
        return None

    def _failed_ask(self, error: BaseException) -> str | None:
        """The text of an ``on_ask`` that failed; ``None`` if it ends the step, or has ended."""
        if isinstance(error, concurrent.futures.CancelledError):
            return None
        why = self._ends_step(error)
        if why is None:
            return f"on_ask raised {class_name(type(error))}: {message(error, TEXT)}"
        self._stop(why)
        return None

    def _ends_step(self, error: BaseException) -> str | None:
        """The reason why the step that asks does not go on."""
        if isinstance(error, Exception) and is_for_caller(error):
            self.raised = self.raised or error
        if isinstance(error, StepEnds):
            return PENDING
        return None if self.raised is None else "interrupt"

    def _answer(self, reply: _Reply, value: object) -> None:
        try:
            data = packed_result(reply.name, as_data(reply.name, value))
        except Exception as error:
            self._fail(reply, error)
        else:
            self._return(reply, data)

    def _fail(self, reply: _Reply, error: BaseException) -> None:
        why = self._ends_step(error) if reply.is_ask else None
        if why is not None:
            self._end_step(reply, why)
            return
        kind = type(error)
        found: dict[str, Any] = {
            "kind": class_name(kind),
            "message": message(error, TEXT),
            "is_builtin": getattr(builtins, kind.__name__, None) is kind,
        }
        if isinstance(error, AuditDenied):
            found = {"denied": error.to_dict()}
        args = pack(None)
        with contextlib.suppress(Exception):
            args = pack(_args(error), arrays=False, most=DATA)
        self._return(reply, args, error=found)

    def _end_step(self, reply: _Reply, why: str) -> None:
        """End the step that asks: its answer interrupts it, and then whatever it still does."""
        self.thread = threading.get_ident()
        try:
            self._stop(why)
        finally:
            self.thread = None
        self._return(reply, pack(None), interrupts=True)

    def _return(self, reply: _Reply, data: bytes, **told: Any) -> None:
        if self._channel.unread() > UNREAD:
            error = {"kind": "RuntimeError", "message": _UNREAD, "is_builtin": True}
            data, told = pack([_UNREAD]), {"error": error}
        if reply.ends and self._is_stopped():
            told["interrupts"] = True
        self._channel.send(encode("return", data, id=reply.number, **told))

    def end(self) -> None:
        """Cancel the calls that have not ended: their step has."""
        self._is_over = True
        for future in list(self._running):
            future.cancel()


def _is_of_host(error: BaseException) -> bool:
    """False where a tool itself exits, as one that parses arguments does.

    A handler of a signal that comes meanwhile exits for the host, and so does Ctrl-C.
    """
    if isinstance(error, KeyboardInterrupt):
        return True
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {getattr(handler, "__code__", None) for handler in handlers}
    return any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__))


def _args(error: BaseException) -> list[Any]:
    """The arguments that make an exception anew: an `OSError` keeps the names of files apart."""
    if not isinstance(error, OSError) or error.filename is None:
        return list(error.args)
    return [error.errno, error.strerror, error.filename, None, error.filename2]


# The questions of code to its host, before an operation is denied.

MODULES = ("fastaudit_rs.sandbox.inside.tools",)


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


def within(on_ask: Ask | None, ask_seconds: float | None) -> Ask | None:
    """The function, which has so much time for its answer if it is a coroutine function."""
    if on_ask is None or not is_async(on_ask):
        return on_ask
    ask: Callable[..., Any] = on_ask

    async def asked(denied: AuditDenied) -> object:
        try:
            return await asyncio.wait_for(ask(denied), ask_seconds)
        except (TimeoutError, asyncio.TimeoutError):
            return None

    return asked


def warn_of_held(on_ask: Any, approvable: Policy | None) -> None:
    """Warn if nobody is asked about what the kernel holds."""
    if on_ask is not None and approvable is None:
        from ..._near import warn

        warn(
            "on_ask without approvable is not asked about files, programs and the network, which "
            "the kernel holds whatever the answer is: Sandbox(approvable=Policy(write=[...])) "
            "names what answers may open"
        )
