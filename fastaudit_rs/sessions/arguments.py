"""Arguments of sessions that are checked."""

import keyword

from .. import Policy


def identifier(argument: str, name: object) -> None:
    """Check a name for code.

    Raises:
        TypeError: It is no text.
        ValueError: It is no name.
    """
    if type(name) is not str:
        raise TypeError(f"{argument}: names must be str, not {type(name).__name__}")
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"{argument}: {name!r} is no name that code can have")


def seconds(name: str, value: object) -> float | None:
    """Check a time in seconds, or ``None``.

    Raises:
        TypeError: It is no number.
        ValueError: It is not positive.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if not value > 0:
        raise ValueError(f"{name} must be positive, not {value!r}")
    return value


def size(name: str, value: object) -> int:
    """A size in bytes, as `Policy` reads ``max_bytes``.

    Raises:
        TypeError: It has another type.
        ValueError: It is not positive, or not a size.
    """
    try:
        size = Policy(max_bytes=value).max_bytes  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("max_bytes", name)) from None
    if not size or size < 0:
        raise ValueError(f"{name} must be positive, not {value!r}")
    return size
