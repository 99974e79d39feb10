"""Values as what JSON can hold, with bytes beside it, and back: the forms of `values`."""

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .hashes import check_alike, check_count

#: The number of values in a message, and how deep one may be in others: each takes memory of the
#: side that reads.
VALUES, DEPTH = 1 << 20, 100

#: How deep the values that are sent may be in others: their forms are deeper.
NESTED = DEPTH - 10

#: The bytes that a value of a session may have.
VALUE = 64 << 20

#: The bits of a number that JSON has as it is. Longer ones are written in hexadecimal, whose digits
#: CPython does not limit.
BITS = 64

#: The length before a head, and before a message.
LENGTH = struct.Struct("!Q")

#: The classes of what JSON holds, but for lists and mappings.
_LEAVES = frozenset((str, int, float, bool, type(None)))
_TEXT = frozenset((str,))

#: The least number that is longer.
_GREAT = 1 << (BITS - 1)

#: The items from which on it is worth looking whether JSON holds all of them as they are.
LONG = 16

#: The classes whose subclasses become them.
_BUILTIN = (str, int, float, complex, bytes, bytearray, dict, list, tuple, set, frozenset)

_BY_VALUE = "which cannot be passed by value"

#: The key of an object that stands for something else than a mapping.
_KIND = "$"


def _is_other(kind: type) -> bool:
    """True for a subclass that does other things than its base: numpy's numbers do not."""
    return issubclass(kind, _BUILTIN) and _MODULE(kind) != "numpy"


def _are_leaves(values: Iterable[object]) -> bool:
    return _LEAVES.issuperset(map(type, values))


def _are_texts(values: Iterable[object]) -> bool:
    return _TEXT.issuperset(map(type, values))


class NotData(TypeError):
    """An object that cannot be passed by value."""


class TooLarge(NotData):
    """A value with more bytes than it may have."""

    def __init__(self, place: str, size: int, most: int) -> None:
        #: How large it is, at the least: who packs it stops there.
        self.least = f"{size / (1 << 20):.1f} MB or more"
        super().__init__(f"{place[:200]} is too large: {self.least}, of at most {most >> 20} MB")


class Packer:
    """Makes of values what JSON can hold, and of arrays bytes beside it.

    It copies no more than `most` bytes: a process whose memory is limited may hold more.
    """

    def __init__(
        self,
        other: Callable[["Packer", Any, str, int], Any] | None,
        most: int = VALUE,
        *,
        exact: bool = False,
    ) -> None:
        self._other = other
        #: True if no subclass is to become its base.
        self._exact = exact
        self.most = most
        self.size = self.count = 0
        self.blobs: list[bytes | memoryview] = []

    def take(self, size: int, place: str) -> None:
        """Count bytes that are about to be copied; `TooLarge` if they are too many."""
        self.size += size
        if self.size > self.most:
            raise TooLarge(place, self.size, self.most)

    def form(self, value: object, place: str, depth: int) -> Any:
        """Return the form of a value in JSON. Its place is for errors: ``value['a'][0]``."""
        self.count += 1
        if self.count > VALUES:
            raise NotData(f"more than {VALUES} values")
        if depth > NESTED:
            raise NotData(f"{place[:200]} is nested more than {NESTED} deep")
        if value is None or value is True or value is False:
            return value
        given: Any = value
        kind = type(given)
        if self._exact and kind not in _BUILTIN and _is_other(kind):
            name = class_name(kind)[:100]
            raise NotData(f"{place[:200]} is an instance of {name}, {_BY_VALUE} as it is")
        if issubclass(kind, str):
            return self._text(str.__str__(given), place)
        if issubclass(kind, int):
            number = int.__int__(given)
            if int.bit_length(number) < BITS:
                return number
            self.take(int.bit_length(number) // 4, place)
            return {_KIND: "int", "hex": f"{number:x}"}
        if issubclass(kind, float):
            return float.__float__(given)
        if issubclass(kind, complex):
            parts = [complex.real.__get__(given), complex.imag.__get__(given)]
            return {_KIND: "complex", "parts": parts}
        if issubclass(kind, (bytes, bytearray)):
            own: Any = bytes if issubclass(kind, bytes) else bytearray
            self.take(own.__len__(given), place)
            return {_KIND: "bytes", "at": self.blob(exact_bytes(given))}
        if issubclass(kind, dict):
            return self._mapping(given, place, depth)
        for base in (list, tuple, set, frozenset):
            if issubclass(kind, base):
                items = [*base.__iter__(given)]
                if len(items) < LONG or not self._has_leaves(items, place, depth):
                    items = [
                        self.form(item, f"{place}[{number}]", depth + 1)
                        for number, item in enumerate(items)
                    ]
                return items if base is list else {_KIND: base.__name__, "items": items}
        found = None if self._other is None else self._other(self, value, place, depth)
        if found is not None:
            return found
        raise NotData(
            f"{place[:200]} is an object of {class_name(kind)[:100]}, {_BY_VALUE}: "
            f"{_instead(kind, place[:50])}"
        )

    def blob(self, data: bytes | memoryview) -> int:
        """Put bytes, which were counted by `take`, beside the head; return their number."""
        self.blobs.append(data)
        return len(self.blobs) - 1

    def _text(self, text: str, place: str) -> str:
        # JSON has other letters by their numbers, as \u00e4.
        self.take(len(text) if text.isascii() else 6 * len(text), place)
        return text

    def _has_leaves(self, items: list[Any], place: str, depth: int) -> bool:
        """True if JSON holds all of them as they are; they are counted then."""
        kinds = {*map(type, items)}
        is_held = kinds <= _LEAVES and self.count + len(items) <= VALUES
        if not is_held or depth + 1 > NESTED:
            return False
        numbers = [item for item in items if type(item) is int] if len(kinds) > 1 else items
        if int in kinds and not -_GREAT < min(numbers) <= max(numbers) < _GREAT:
            return False
        self.count += len(items)
        if str in kinds:
            texts = [item for item in items if type(item) is str]
            self.take(sum(map(len, texts)), place)
            if not all(map(str.isascii, texts)):
                self.take(sum(5 * len(text) for text in texts if not text.isascii()), place)
        return True

    def _mapping(self, value: Any, place: str, depth: int) -> Any:
        copy = dict.copy(value)
        has_texts = _are_texts(copy)
        if has_texts:
            # Others are forms too, and counted as these.
            self.take(sum(map(len, copy)), place)
        is_long = len(copy) >= LONG and has_texts and _KIND not in copy
        if is_long and self._has_leaves([*copy.values()], place, depth):
            return copy
        items = [
            (key, self.form(item, f"{place}[{_shown(key)}]", depth + 1))
            for key, item in copy.items()
        ]
        if all(type(key) is str and key != _KIND for key, _ in items):
            return dict(items)
        keys = [self.form(key, f"a key of {place}", depth + 1) for key, _ in items]
        return {_KIND: "dict", "keys": keys, "items": [item for _, item in items]}


class Unpacker:
    def __init__(
        self,
        blobs: Sequence[memoryview],
        other: Callable[["Unpacker", Any, Any], Any] | None,
        own: bool,
    ) -> None:
        """Take the bytes beside the head. Keys may be any in the host's own."""
        self._blobs = dict(enumerate(blobs))
        self._other = other
        self._own = own
        self._keys = 0

    def blob(self, at: Any) -> memoryview:
        """Take bytes from beside the head, which are for one value alone."""
        return self._blobs.pop(at)

    def keys(self, forms: Any) -> list[Any]:
        """Return values that are to be found by their hashes."""
        keys = [self.value(form) for form in forms]
        if self._own or all(type(key) is str for key in keys):
            return keys
        self._keys += len(keys)
        check_count(self._keys)
        check_alike(keys)
        return keys

    def value(self, form: Any) -> Any:
        """Return the value of a form; malformed ones raise any of the usual errors."""
        if type(form) is list:
            if len(form) >= LONG and _are_leaves(form):
                return form
            return [self.value(item) for item in form]
        if type(form) is not dict:
            if type(form) not in _LEAVES:
                # Code in this process has replaced what reads JSON.
                raise ValueError("a message with an object")
            return form
        kind = form.get(_KIND)
        if kind is None:
            if not _are_texts(form):
                raise ValueError("a message with an object")
            if len(form) >= LONG and _are_leaves(form.values()):
                return form
            return {key: self.value(item) for key, item in form.items()}
        if kind == "dict":
            keys = self.keys(form["keys"])
            return dict(zip(keys, map(self.value, form["items"]), strict=True))
        if kind == "tuple":
            return tuple(map(self.value, form["items"]))
        if kind in ("set", "frozenset"):
            return {"set": set, "frozenset": frozenset}[kind](self.keys(form["items"]))
        if kind == "bytes":
            return bytes(self.blob(form["at"]))
        if kind == "int":
            return int(form["hex"], 16)
        if kind == "complex":
            return complex(*map(float, form["parts"]))
        if self._other is None:
            raise ValueError(f"a message with {kind!r}")
        return self._other(self, kind, form)


#: What is passed by value, in messages.
DATA = "pass data, dates, decimals, paths, arrays, frames or images"

#: Attributes of classes, and how their instances are written as data.
_WRITTEN = {
    "__dataclass_fields__": "dataclasses.asdict({})",
    "__pydantic_validator__": "{}.model_dump()",
    "_member_map_": "{}.value",
    "to_pandas": "{}.to_pandas()",
    "savefig": "the bytes that {}.savefig() writes",
}

#: Names of classes, and functions that make data of their instances.
_MADE = {
    **dict.fromkeys(("range", "generator", "deque", "map", "filter", "zip", "array"), "list"),
    **dict.fromkeys(("dict_keys", "dict_values", "dict_items"), "list"),
    **dict.fromkeys(("mappingproxy", "UserDict"), "dict"),
    "memoryview": "bytes",
}


def _instead(kind: type, place: str) -> str:
    """How an object is written as what can be passed; nothing of its class runs."""
    made = _MADE.get(class_name(kind).rpartition(".")[2])
    if made is not None:
        return f"pass {made}({place})"
    for base in _MRO(kind):
        for name, way in _WRITTEN.items():
            if name in _DICT(base):
                return f"pass {way.format(place)}"
    return DATA


def _shown(key: Any) -> str:
    kind = type(key)
    is_text = issubclass(kind, str)
    return repr(str.__str__(key)[:50]) if is_text else f"<{class_name(kind)}>"


# Objects of guarded code as exact built-in values: a host uses nothing else of them.
#
# Subclasses, their methods and their metaclasses decide nothing. Functions that run code of an
# object say so: call them where its guard is in force.

#: The module of the exceptions that are panics of Rust code.
PANIC = "pyo3_runtime"

#: The number of characters of a message, a traceback or a `repr()` that are kept.
TEXT = 100_000

#: The names of a class, whatever its metaclass makes of them.
_MODULE = vars(type)["__module__"].__get__
_QUALNAME = vars(type)["__qualname__"].__get__
_MRO: Any = vars(type)["__mro__"].__get__
_DICT: Any = vars(type)["__dict__"].__get__


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


def is_failure(error: BaseException) -> bool:
    """True for an error of what was called: also a panic of Rust code, such as pydantic's."""
    return isinstance(error, Exception) or _MODULE(type(error)) == PANIC


def told(error: BaseException) -> str:
    """Return the last line of a traceback of an exception, whose code runs."""
    return limited(f"{class_name(type(error))}: {message(error)}", 1000)
