"""Arguments of sessions that are checked."""

import inspect
import keyword
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from .. import Policy, Tool
from .forms import NotData
from .values import pack


def text_of(code: object) -> str:
    if isinstance(code, str):
        return code
    instead = ": write path.read_text()" if isinstance(code, PurePath) else ""
    raise TypeError(f"code must be a str, not {type(code).__name__}{instead}")


def identifier(argument: str, name: object) -> str:
    if type(name) is not str:
        raise TypeError(f"{argument}: names must be str, not {type(name).__name__}")
    if not name.isidentifier() or keyword.iskeyword(name):
        near = re.sub(r"\W+", "_", name)
        near = f"{near}_" if keyword.iskeyword(near) else near
        instead = f": write {near!r}" if near.isidentifier() else ""
        raise ValueError(f"{argument}: {name!r} is no name that code can have{instead}")
    return name


def id_of(given: object) -> str:
    """The id of a session; another one for each that is given none."""
    if given is None:
        return secrets.token_hex(8)
    if not isinstance(given, str):
        raise TypeError(f"id must be a str, not {type(given).__name__}")
    if not given:
        raise ValueError("id must not be empty")
    return given


def tools_of(given: object) -> dict[str, Callable[..., Any]]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        several = given if isinstance(given, (list, tuple)) else (given,)
        names = [getattr(one, "__name__", None) or type(one).__name__ for one in several]
        pairs = ", ".join(f"{name!r}: {name}" for name in names[:3] if name.isidentifier())
        raise TypeError(
            f"tools must be a mapping from names, not {type(given).__name__}: "
            f"write {{{pairs or repr('name') + ': function'}}}"
        )
    found: dict[str, Callable[..., Any]] = {}
    for name, function in given.items():
        found[identifier("tools", name)] = function
        if not callable(function):
            kind = type(function).__name__
            raise TypeError(
                f"tools[{name!r}] must be a function, not {kind}: variables= takes values"
            )
    return found


def is_async(function: object) -> bool:
    """True if calls of it are awaited."""
    if isinstance(function, Tool):
        return function._is_async
    call = inspect.getattr_static(type(function), "__call__", None)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def variables_of(given: object) -> bytes:
    """Check the variables of a step; return them packed, empty if there are none."""
    if given is None:
        return b""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"variables must be a mapping from names, not {type(given).__name__}: "
            "write {'name': value}"
        )
    values = {identifier("variables", name): value for name, value in given.items()}
    try:
        return pack(values, place="variables") if values else b""
    except NotData as wrong:
        called = any(map(callable, values.values()))
        instead = "tools= takes functions" if called else "data, arrays and frames can"
        raise TypeError(f"{wrong}: {instead}") from None


def seconds(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    if not value > 0:
        raise ValueError(f"{name} must be positive, not {value!r}")
    return value


def size(name: str, value: object) -> int:
    """A size in bytes, as `Policy` reads ``max_bytes``."""
    if not isinstance(value, (int, str)):
        raise TypeError(f"{name} must be an int or a str, not {type(value).__name__}")
    try:
        found = Policy(max_bytes=value).max_bytes
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("max_bytes", name)) from None
    if not found:
        raise ValueError(f"{name} must be positive, not {value!r}")
    return found


def count(name: str, value: object, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}")
    if value < least:
        bound = "positive" if least == 1 else f"at least {least}"
        raise ValueError(f"{name} must be {bound}, not {value!r}")
    return value


def policy_of(name: str, value: object) -> None:
    if value is not None and not isinstance(value, Policy):
        raise TypeError(f"{name} must be a Policy, not {type(value).__name__}")
