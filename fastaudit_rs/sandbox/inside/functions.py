"""Functions of the host, as the code of a session finds them: they send data, and wait."""

import builtins
import inspect
from collections.abc import Callable
from typing import Any

from ... import AuditDenied
from ...sessions.values import NotData, pack, unpack
from ...tool_error import ToolError
from .channel import Channel, Message


class _Text:
    """A default or an annotation of the host's, by its text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def made(channel: Channel, told: dict[str, Any]) -> Callable[..., Any]:
    """Return the function that stands for one of the host.

    Args:
        channel: The connection to the host.
        told: Its name, its documentation, its parameters, and whether it is a coroutine.
    """
    name = told["name"]

    def function(*args: Any, **kwargs: Any) -> Any:
        return _result(name, channel.call("call", _packed(name, args, kwargs), name=name))

    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        return _result(name, await channel.acall(name, _packed(name, args, kwargs)))

    found: Any = coroutine if told["is_async"] else function
    found.__name__ = found.__qualname__ = name
    found.__doc__ = told["doc"]
    found.__module__ = "__main__"
    if told["parameters"] is not None:
        found.__signature__ = _signature(told["parameters"], told["returns"])
    return found  # type: ignore[no-any-return]


def _signature(parameters: list[Any], returns: str | None) -> inspect.Signature:
    parameter = inspect.Parameter
    by_position = (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    others = (parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD)
    kinds = {int(kind): kind for kind in (*by_position, *others)}
    empty = parameter.empty
    return inspect.Signature(
        [
            parameter(
                name,
                kinds[kind],
                default=empty if default is None else _Text(default),
                annotation=empty if annotation is None else _Text(annotation),
            )
            for name, kind, default, annotation in parameters
        ],
        return_annotation=inspect.Signature.empty if returns is None else _Text(returns),
    )


def _packed(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    try:
        return pack([list(args), kwargs], arrays=False)
    except NotData as error:
        where = str(error).replace("value[0]", "args", 1).replace("value[1]", "kwargs", 1)
        raise TypeError(f"tool {name!r}: {where}; pass data") from None


def asked(channel: Channel, denied: AuditDenied) -> Any:
    """Return the host's answer to a denial."""
    return _result("on_ask", channel.call("ask", denied=denied.to_dict()))


def _result(name: str, answer: Message) -> Any:
    head, body, _ = answer
    value = unpack(body, arrays=False)
    error = head.get("error")
    if error is None:
        return value
    raise _error(name, error, value)


def _error(name: str, error: dict[str, Any], value: Any) -> BaseException:
    """Return the exception that a function of the host raised, made anew here."""
    if "denied" in error:
        return AuditDenied.from_dict(error["denied"])
    kind = getattr(builtins, error["kind"], None) if error["is_builtin"] else None
    if isinstance(kind, type) and issubclass(kind, Exception) and value is not None:
        try:
            return kind(*value)
        except Exception:
            pass
    raised = ToolError(f"{error['kind']}: {error['message']}")
    raised.tool, raised.kind = name, error["kind"]
    return raised
