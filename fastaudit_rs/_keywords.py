"""Keywords of functions: wrong ones are errors that name the nearest, and twins have the same."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

#: CO_COROUTINE, whose module takes long to import.
COROUTINE = 0x80


def checked(name: str) -> Callable[[T], T]:
    """Make a decorator of a function or a class that refuses unknown keywords."""

    def decorate(plain: Any) -> Any:
        if isinstance(plain, type):
            setattr(plain, "__init__", decorate(vars(plain)["__init__"]))  # noqa: B010 - as mypy asks
            return plain
        # Python's own errors name it too: a class that nobody knows may define it.
        plain.__qualname__ = name
        return _checked(name, plain, plain)

    return decorate


def twin(name: str, of: Callable[P, object]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Make a decorator of a function that takes the arguments of another one, and hands them on."""
    import inspect

    signature = inspect.signature(of)

    def bind(*args: Any, **kwargs: Any) -> None:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}(): {error}") from None

    def decorate(plain: Any) -> Any:
        call = _checked(name, plain, of, bind)
        given = inspect.signature(plain).return_annotation
        call.__signature__ = signature.replace(return_annotation=given)
        call.__annotations__ = {**of.__annotations__, "return": given}
        return call

    return decorate


def _checked(name: str, plain: Any, described: Any, bind: Any = None) -> Any:
    while (inner := getattr(described, "__wrapped__", None)) is not None:
        described = inner
    code = described.__code__
    names = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for wrong in kwargs.keys() - names:
            from ._near import unknown

            raise TypeError(unknown(name, wrong, described))
        if bind is not None:
            bind(*args, **kwargs)

    if plain.__code__.co_flags & COROUTINE:

        @functools.wraps(plain)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            check(args, kwargs)
            return await plain(*args, **kwargs)

        return acall

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return plain(*args, **kwargs)

    return call
