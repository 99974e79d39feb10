"""Objects of guarded code as exact built-in values: a host uses nothing else of them.

Subclasses, their methods and their metaclasses decide nothing. Functions that run code of an
object say so: call them where its guard is in force.
"""

from typing import Any

#: The number of characters of a message, a traceback or a `repr()` that are kept.
TEXT = 100_000

#: The names of a class, whatever its metaclass makes of them.
_MODULE = vars(type)["__module__"].__get__
_QUALNAME = vars(type)["__qualname__"].__get__


def limited(text: str, most: int = TEXT) -> str:
    text = str.__str__(text)
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def exact_bytes(given: "bytes | bytearray") -> bytes:
    kind: Any = bytes if issubclass(type(given), bytes) else bytearray
    return bytes(kind.__getitem__(given, slice(None)))


def class_name(kind: type) -> str:
    """Return the name of a class, with its module unless that is `builtins` or `__main__`."""
    module, name = _MODULE(kind), str.__str__(_QUALNAME(kind))
    module = str.__str__(module) if issubclass(type(module), str) else ""
    return name if module in ("", "builtins", "__main__") else f"{module}.{name}"


def message(error: BaseException, most: int = TEXT) -> str:
    """Return the text of an exception, whose code runs."""
    try:
        return limited(str(error), most)
    except BaseException as failed:
        return f"<str() raised {class_name(type(failed))}>"


def told(error: BaseException) -> str:
    """Return the last line of a traceback of an exception, whose code runs."""
    return limited(f"{class_name(type(error))}: {message(error)}", 1000)
