"""Calls of tools: their arguments and results as bytes, and their number."""

import functools
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

from .forms import NotData, Packer, TooLarge
from .objects import data_maker
from .values import form_of, message, pack, unpack

#: The bytes that the arguments of a call may have, and its result.
DATA = 16 << 20


def packed_arguments(
    name: str, parameters: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bytes:
    """Return the arguments of a tool as bytes; ``parameters`` has those by position first.

    Raises:
        TypeError: One cannot be passed by value.
        ValueError: They are too large.
    """
    places = list(takewhile(lambda one: not one.startswith("*"), parameters))[: len(args)]
    places += [f"args[{number}]" for number in range(len(places), len(args))]
    packer = Packer(form_of, DATA)
    try:
        given = [packer.form(value, place, 1) for value, place in zip(args, places, strict=True)]
        named = {
            str.__str__(key): packer.form(value, str.__str__(key), 1)
            for key, value in kwargs.items()
        }
        keywords = {"$": "dict", "keys": list(named), "items": list(named.values())}
        return message(packer, [given, keywords], "the arguments")
    except NotData as wrong:
        raise _refused(name, wrong) from None


def arguments(data: bytes | memoryview) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of bytes of anyone."""
    args, kwargs = unpack(data)
    if type(args) is list and type(kwargs) is dict and all(type(name) is str for name in kwargs):
        return args, kwargs
    raise ValueError("malformed arguments")


def packed_result(name: str, value: object) -> bytes:
    """Return the result of a tool as bytes, its own objects as data already (`as_data`).

    Raises:
        TypeError: It cannot be passed by value.
        ValueError: It is too large.
    """
    try:
        return pack(value, place="its result", most=DATA)
    except NotData as wrong:
        raise _refused(name, wrong) from None


def _refused(name: str, wrong: NotData) -> Exception:
    kind = ValueError if isinstance(wrong, TooLarge) else TypeError
    return kind(f"tool {name!r}: {wrong}")


class Budget:
    """The number of calls of tools that a step may make."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def begin(self) -> None:
        """Begin a step."""
        self._left = self._most

    def take(self) -> None:
        """Note a call.

        Raises:
            RuntimeError: It is one too many.
        """
        self._left -= 1
        if self._left < 0:
            raise RuntimeError(f"more than {self._most} calls of tools in a step")

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that notes calls of another one, whose arguments were read before."""
        take, within = self.take, getattr(function, "within", function)

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            take()
            return within(*args, **kwargs)

        return called


# The core copies plain data itself, and calls these for all else.


def passed(
    name: str, parameters: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a tool as its function gets them."""
    given, named = arguments(packed_arguments(name, parameters, args, kwargs))
    return tuple(given), named


def as_data_maker() -> Callable[[str, object], Any]:
    """Return a function that makes data of the result of a tool, with the tool's rights.

    It looks up no name of a module, as `data_maker` tells, and raises `TypeError` for a result that
    is nested too deep.
    """
    data_of, refused, wrong = data_maker(), NotData, TypeError

    def as_data(name: str, value: object) -> Any:
        try:
            return data_of(value, "its result")
        except refused as error:
            raise wrong(f"tool {name!r}: {error}") from None

    return as_data


#: The same for results that a sandbox gets.
as_data = as_data_maker()


def handed_over(name: str, value: object) -> Any:
    """Return such data as the code that called the tool gets them."""
    return unpack(packed_result(name, value), own=True)
