"""Tools of the host, as the code of a session finds them: they send data, and wait."""

import builtins
import inspect
from collections.abc import Callable
from typing import Any, cast

from ... import AuditDenied, Policy
from ..._text import AsText
from ...approvals import _UpTo
from ...denied import ToolError
from ...sessions.tool_values import packed_arguments
from ...sessions.values import unpack
from .channel import HostChannel, Message


class HostTool:
    """Stands for a tool of the host, as `Tool` does in the host's process."""

    __name__: str
    _channel: HostChannel
    _is_async: bool
    _parameters: list[str]

    def __init__(self, channel: HostChannel, told: dict[str, Any]) -> None:
        parameters, is_async = told["parameters"], told["is_async"]
        vars(self).update(
            __name__=told["name"],
            __doc__=told["doc"],
            __signature__=parameters and _signature(parameters, told["returns"]),
            _channel=channel,
            _is_async=is_async,
            _parameters=_by_position(parameters or []),
            schema=told["schema"],
        )

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call it: the host does. A coroutine is awaited."""
        name = self.__name__
        packed = packed_arguments(name, self._parameters, args, kwargs)
        if self._is_async:
            called: Any = self._awaited(packed)
            # Python names it where nobody awaits it.
            called.__name__ = called.__qualname__ = name
            return called
        return _result(name, self._channel.call("call", packed, name=name))

    async def _awaited(self, packed: bytes) -> Any:
        return _result(self.__name__, await self._channel.acall(self.__name__, packed))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a tool cannot be changed: {name}")

    def __repr__(self) -> str:
        return f"<tool {self.__name__}({', '.join(self._parameters)})>"


def _by_position(parameters: list[Any]) -> list[str]:
    """The names of parameters, those by position first, with stars where they take the rest."""
    stars = {int(inspect.Parameter.VAR_POSITIONAL): "*", int(inspect.Parameter.VAR_KEYWORD): "**"}
    return [stars.get(kind, "") + name for name, kind, *_ in parameters]


def _signature(parameters: list[Any], returns: str | None) -> inspect.Signature:
    kinds: Any = type(inspect.Parameter.KEYWORD_ONLY)
    return inspect.Signature(
        [
            inspect.Parameter(
                name, kinds(kind), default=_as_text(default), annotation=_as_text(annotation)
            )
            for name, kind, default, annotation in parameters
        ],
        return_annotation=_as_text(returns),
    )


def _as_text(text: str | None) -> object:
    return inspect.Signature.empty if text is None else AsText(text)


def asking(channel: HostChannel, most: Policy | None) -> Callable[[AuditDenied], object]:
    """Return an ``on_ask`` that asks the host. Processes that the code starts ask nobody."""

    def ask(denied: AuditDenied) -> object:
        if not channel.is_here:
            return None
        return _result("on_ask", channel.call("ask", denied=denied.to_dict()))

    # The core takes it apart.
    return ask if most is None else cast(Any, _UpTo(ask, most))


def _result(name: str, answer: Message) -> Any:
    head, body, _ = answer
    if head.get("interrupts"):
        raise KeyboardInterrupt
    error = head.get("error")
    if error is None:
        return unpack(body, own=True)
    raise _error(name, error, unpack(body, arrays=False, own=True))


def _error(name: str, error: dict[str, Any], value: Any) -> BaseException:
    """Return the exception that a tool raised, made anew here."""
    if "denied" in error:
        return AuditDenied.from_dict(error["denied"])
    kind = getattr(builtins, error["kind"], None) if error["is_builtin"] else None
    if isinstance(kind, type) and issubclass(kind, Exception) and value is not None:
        try:
            return kind(*value)
        except Exception:
            pass
    text = f": {error['message']}" if error["message"] else ""
    raised = ToolError(f"{error['kind'].rpartition('.')[2]}{text}")
    raised.tool, raised.kind = name, error["kind"]
    return raised
