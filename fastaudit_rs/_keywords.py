"""Wrong keywords of a function: the error names the nearest one."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

#: CO_COROUTINE, whose module takes long to import.
COROUTINE = 0x80


def checked(name: str) -> Callable[[T], T]:
    """Make a decorator of a function or a class that refuses unknown keywords."""

    def decorate(plain: Any) -> Any:
        if isinstance(plain, type):
            setattr(plain, "__init__", decorate(vars(plain)["__init__"]))  # noqa: B010 - as mypy asks
            return plain
        code = plain.__code__
        names = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])

        @functools.wraps(plain)
        def call(*args: Any, **kwargs: Any) -> Any:
            for wrong in kwargs.keys() - names:
                from ._near import unknown

                raise TypeError(unknown(name, wrong, plain))
            return plain(*args, **kwargs)

        @functools.wraps(plain)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return await call(*args, **kwargs)

        return awaited if code.co_flags & COROUTINE else call

    return decorate
