"""Functions of the host that the code of a session calls."""

import asyncio
import builtins
import concurrent.futures
import contextlib
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ... import AuditDenied
from ..._native import _tool_result
from ...sessions.arguments import is_async
from ...sessions.plain import class_name
from ...sessions.values import pack, unpack
from ..wire import encode

#: The characters of an error's text that are told.
TEXT = 10_000

#: The bytes that the arguments of a call may have, and its result.
DATA = 16 << 20

#: The bytes of answers that may wait to be read: they take memory of the host.
UNREAD = 128 << 20


_UNREAD = f"more than {UNREAD >> 20} MB of answers of the host wait to be read"


def told(functions: Mapping[str, Callable[..., Any]]) -> list[dict[str, Any]]:
    return [_described(name, function) for name, function in functions.items()]


def _described(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    parameters = returns = None
    with contextlib.suppress(TypeError, ValueError):
        signature = inspect.signature(function)
        empty = inspect.Parameter.empty
        parameters = [
            (
                parameter.name,
                int(parameter.kind),
                None if parameter.default is empty else repr(parameter.default),
                None if parameter.annotation is empty else _annotation(parameter.annotation),
            )
            for parameter in signature.parameters.values()
        ]
        if signature.return_annotation is not empty:
            returns = _annotation(signature.return_annotation)
    return {
        "name": name,
        "doc": inspect.getdoc(function),
        "parameters": parameters,
        "returns": returns,
        "is_async": is_async(function),
    }


def _annotation(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


class _Call(NamedTuple):
    number: int
    name: str
    #: True if the step is interrupted once it was stopped meanwhile: it does nothing after it then.
    ends: bool


class Calls:
    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]],
        send: Callable[[bytes], None],
        unread: Callable[[], int],
        loop: Callable[[], asyncio.AbstractEventLoop],
        most: int,
        on_ask: Callable[[AuditDenied], object] | None,
        ask_seconds: float | None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._on_ask = on_ask
        self._ask_seconds = ask_seconds
        #: The thread that calls a plain function now.
        self.thread: int | None = None
        self._functions = functions
        self._send = send
        self._unread = unread
        self._is_stopped = is_stopped
        self._loop = loop
        self._left = self._most = most
        self._running: set[concurrent.futures.Future[Any]] = set()

    def call(self, head: dict[str, Any], body: memoryview) -> None:
        number, name = head.get("id"), head.get("name")
        if type(number) is not int or type(name) is not str:
            return
        function = self._functions.get(name)
        # One that is interrupted may call functions as it ends.
        call = _Call(number, name, ends=not self._is_stopped())
        self._left -= 1
        try:
            if function is None:
                raise NameError(f"there is no function {name[:100]!r}")
            if self._left < 0:
                raise RuntimeError(f"more than {self._most} calls of functions in a step")
            if self._unread() > UNREAD:
                raise RuntimeError(_UNREAD)
            if len(body) > DATA:
                raise ValueError(f"the arguments of {name!r} have more than {DATA >> 20} MB")
            args, kwargs = _arguments(body)
            if is_async(function):
                self._start(call, function, args, kwargs)
                return
            self.thread = threading.get_ident()
            try:
                value = function(*args, **kwargs)
            finally:
                self.thread = None
        except Exception as error:
            self._fail(call, error)
        else:
            self._answer(call, value)

    def ask(self, head: dict[str, Any]) -> None:
        number, ask = head.get("id"), self._on_ask
        if type(number) is not int or ask is None:
            return
        call = _Call(number, "on_ask", ends=False)
        self._left -= 1
        try:
            if self._left < 0:
                raise RuntimeError(f"more than {self._most} calls of functions in a step")
            denied = AuditDenied.from_dict(head["denied"])
            if is_async(ask):
                self._start(call, self._waited(ask), [denied], {})
                return
            answer = ask(denied)
        except Exception as error:
            self._fail(call, error)
        else:
            self._answer(call, answer)

    def _waited(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        async def asked(denied: AuditDenied) -> object:
            try:
                return await asyncio.wait_for(ask(denied), self._ask_seconds)
            except (TimeoutError, asyncio.TimeoutError):
                return None

        return asked

    def _start(
        self,
        call: _Call,
        function: Callable[..., Any],
        args: list[Any],
        kwargs: dict[str, Any],
    ) -> None:
        async def called() -> Any:
            return await function(*args, **kwargs)

        def ended(future: "concurrent.futures.Future[Any]") -> None:
            self._running.discard(future)
            try:
                value = future.result()
            except BaseException as error:
                self._fail(call, error)
            else:
                self._answer(call, value)

        future = asyncio.run_coroutine_threadsafe(called(), self._loop())
        self._running.add(future)
        future.add_done_callback(ended)

    def _answer(self, call: _Call, value: object) -> None:
        try:
            data = pack(_tool_result(call.name, value), arrays=False)
            if len(data) > DATA:
                raise ValueError(f"tool {call.name!r}: its result has more than {DATA >> 20} MB")
        except Exception as error:
            self._fail(call, error)
        else:
            self._return(call, data)

    def _fail(self, call: _Call, error: BaseException) -> None:
        kind = type(error)
        found: dict[str, Any] = {
            "kind": class_name(kind),
            "message": _text(error),
            "is_builtin": getattr(builtins, kind.__name__, None) is kind,
        }
        if isinstance(error, AuditDenied):
            found = {"denied": error.to_dict()}
        args = pack(None)
        with contextlib.suppress(Exception):
            args = pack(_args(error), arrays=False)
        self._return(call, args if len(args) <= DATA else pack(None), error=found)

    def _return(self, call: _Call, data: bytes, **told: Any) -> None:
        if self._unread() > UNREAD:
            error = {"kind": "RuntimeError", "message": _UNREAD, "is_builtin": True}
            data, told = pack([_UNREAD]), {"error": error}
        if call.ends and self._is_stopped():
            told["interrupts"] = True
        self._send(encode("return", data, id=call.number, **told))

    def end(self) -> None:
        """Cancel the calls that have not ended: their step has."""
        for future in list(self._running):
            future.cancel()


def _arguments(body: memoryview) -> tuple[list[Any], dict[str, Any]]:
    args, kwargs = unpack(body, arrays=False)
    if type(args) is not list or type(kwargs) is not dict:
        raise ValueError("malformed arguments")
    if not all(type(name) is str for name in kwargs):
        raise ValueError("malformed arguments")
    return args, kwargs


def _args(error: BaseException) -> list[Any]:
    """The arguments that make an exception anew: an `OSError` keeps the names of files apart."""
    if not isinstance(error, OSError) or error.filename is None:
        return list(error.args)
    return [error.errno, error.strerror, error.filename, None, error.filename2]


def _text(error: BaseException) -> str:
    try:
        return str(error)[:TEXT]
    except Exception as failed:
        return f"<str() raised {type(failed).__name__}>"
