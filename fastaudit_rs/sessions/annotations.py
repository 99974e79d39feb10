"""Annotations of a host's functions: what data become by them, and their JSON schemas.

What a guest gives is data of exact classes already (`values`). A reader makes of it what the
annotation names, or says what is wrong. Built-in classes, collections of others, unions, literals,
enums, and what `objects` passes are read here; dataclasses, models and the like by pydantic.
"""

import collections.abc
import contextlib
import enum
import sys
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import repeat
from pathlib import Path, PurePath
from typing import Any, Literal, NoReturn, TypeVar, Union
from uuid import UUID

from .forms import PANIC
from .hashes import check_members
from .made_keys import check_made, makes_keys
from .objects import DIGITS, decimal_of
from .values import PACKAGES

#: The errors of pydantic that are told, and the values that a message lists.
ERRORS, LISTED = 3, 10

#: The errors of pydantic that are looked at: each takes memory.
LARGE = 1000

#: The digits of a number, and the characters of other data, that errors show.
SHOWN = 50

PLACE = "\0"

Json = dict[str, Any]


class Unknown(TypeError):
    """An annotation that says nothing of how data become it."""


class Wrong(Exception):
    """Data that are not what an annotation names. Its text has `PLACE` where they are told."""

    def __init__(self, kind: type[Exception], text: str) -> None:
        super().__init__(text)
        self._kind, self._text, self._path = kind, text, ""

    def below(self, step: str) -> "Wrong":
        """The same, of the item of a collection."""
        self._path = step + self._path
        return self

    def told(self, tool: str, parameter: str) -> Exception:
        """The error that the code gets."""
        text = self._text.replace(PLACE, parameter + self._path)
        return self._kind(f"tool {tool!r}: {text}")


@dataclass(frozen=True)
class Reader:
    """Reads data as what an annotation names."""

    #: Makes the value, or raises `Wrong`.
    read: Callable[[Any], Any]
    #: What it is called in errors: "an int".
    name: str
    schema: Json = field(default_factory=dict)
    #: True if a value is of this class as it is: unions look at this first.
    is_exact: Callable[[Any], bool] = lambda value: False
    #: The class whose instances are read as they are.
    kind: type | None = None
    #: The readers of what is in a value.
    inner: Sequence["Reader | None"] = ()
    by_pydantic: bool = False
    #: True if pydantic makes members of sets, or keys, of what the sender chooses.
    makes_keys: bool = False

    @property
    def is_of_host(self) -> bool:
        """True if pydantic reads something of it, which runs code of the host."""
        return self.by_pydantic or any(one is not None and one.is_of_host for one in self.inner)

    @property
    def is_looked_at(self) -> bool:
        """True if `look` is called before pydantic reads something of it."""
        return self.makes_keys or any(one is not None and one.is_looked_at for one in self.inner)


def reader(annotation: Any) -> Reader | None:
    """Return the reader of an annotation; ``None`` if all data are what it names.

    Raises:
        Unknown: Nobody can tell how data become it.
        ImportError: It is one of those that pydantic reads, which is not installed.
    """
    found = _reader(annotation)
    # Pydantic reads all of it: as little as possible runs with the host's rights.
    return _by_pydantic(annotation) if found is not None and found.is_of_host else found


def _leaf(annotation: Any) -> Reader:
    kind = typing.get_origin(annotation) or annotation
    if isinstance(kind, type) and not _is_described(kind):
        raise Unknown
    return _by_pydantic(annotation)


def _reader(annotation: Any) -> Reader | None:
    if annotation is Any or annotation is object or isinstance(annotation, TypeVar):
        return None
    if annotation is None or annotation is type(None):
        return _instance(type(None), "None", {"type": "null"})
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _annotated(annotation)
    if origin in (Union, types.UnionType):
        return _union(typing.get_args(annotation))
    if origin is Literal:
        return _literal(typing.get_args(annotation))
    if hasattr(annotation, "__supertype__"):
        return _reader(annotation.__supertype__)
    kind = annotation if origin is None else origin
    if not isinstance(kind, type):
        return _leaf(annotation)
    if kind in _COLLECTIONS:
        return _collection(_COLLECTIONS[kind], typing.get_args(annotation))
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if issubclass(kind, enum.Enum):
        return _enum(kind)
    if issubclass(kind, PurePath):
        # Code passes paths of this platform, whatever class the function wants.
        make = lambda value: kind(str(value))  # noqa: E731
        return _instance(kind, "a path", _text_schema("path"), str, type(Path()), make=make)
    return _of_package(kind) or _leaf(annotation)


def _wrong(name: str, value: Any) -> NoReturn:
    raise Wrong(TypeError, f"{PLACE} must be {name}, not {_a(type(value).__name__)}")


def _shown(value: Any) -> str:
    """A short text of data."""
    if type(value) is str:
        return repr(value[:SHOWN])
    is_short = type(value) in (int, bool) and value.bit_length() < 64
    return repr(value) if is_short else _a(type(value).__name__)


def _a(name: str) -> str:
    if name == "NoneType":
        return "None"
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


#: Classes of which an instance of a subclass is something else: a `datetime` is no `date`.
_EXACT = {type(None), bool, int, float, complex, str, bytes, bytearray, date}


def _instance(kind: type, name: str, schema: Json, *given: type, make: Any = None) -> Reader:
    """A reader of instances of a class, and of data of other classes that make one."""

    def is_one(value: Any) -> bool:
        return type(value) is kind if kind in _EXACT else isinstance(value, kind)

    def read(value: Any) -> Any:
        if is_one(value):
            return value
        if type(value) not in given:
            _wrong(name, value)
        try:
            return (make or kind)(value)
        except (ArithmeticError, ValueError) as wrong:
            told = str(wrong) or f"{_shown(value)} is not {name}"
            raise Wrong(ValueError, f"{PLACE}: {told[:200]}") from None

    return Reader(read, name, schema, is_one, kind)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, int) and value.bit_length() > 3 * DIGITS:
        # Writing it in decimal digits takes long.
        raise ValueError(f"a decimal has more than {DIGITS} digits")
    return decimal_of(str(value)) if isinstance(value, (str, float)) else Decimal(value)


def _moment(text: str) -> datetime:
    # Python 3.10 reads no "Z".
    return datetime.fromisoformat(f"{text[:-1]}+00:00" if text[-1:] in ("Z", "z") else text)


def _span(seconds: Any) -> timedelta:
    return timedelta(seconds=seconds)


def _text_schema(format: str) -> Json:
    return {"type": "string", "format": format}


_SIMPLE: dict[type, Reader] = {
    bool: _instance(bool, "a bool", {"type": "boolean"}),
    int: _instance(int, "an int", {"type": "integer"}, bool),
    float: _instance(float, "a float", {"type": "number"}, int, bool),
    complex: _instance(complex, "a complex", {"type": "number"}, int, float, bool),
    str: _instance(str, "a str", {"type": "string"}),
    bytes: _instance(bytes, "bytes", _text_schema("binary")),
    bytearray: _instance(bytearray, "bytes", _text_schema("binary"), bytes),
    date: _instance(date, "a date", _text_schema("date"), str, make=date.fromisoformat),
    datetime: _instance(datetime, "a datetime", _text_schema("date-time"), str, make=_moment),
    time: _instance(time, "a time", _text_schema("time"), str, make=time.fromisoformat),
    timedelta: _instance(timedelta, "a timedelta", {"type": "number"}, int, float, make=_span),
    Decimal: _instance(
        Decimal, "a Decimal", {"type": ["string", "number"]}, int, float, str, make=_decimal
    ),
    UUID: _instance(UUID, "a UUID", _text_schema("uuid"), str),
}

_COLLECTIONS: dict[Any, type] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    dict: dict,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    collections.abc.Set: frozenset,
    collections.abc.MutableSet: set,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}


def _collection(kind: type, of: tuple[Any, ...]) -> Reader:
    name = _a(kind.__name__)
    if kind is dict:
        return _mapping(name, *(map(_reader, of) if of else (None, None)))
    if kind is tuple and of and of[-1] is not Ellipsis:
        return _tuple(name, [_reader(one) for one in of])
    inner = _reader(of[0]) if of else None

    def read(value: Any) -> Any:
        if type(value) not in (list, tuple, set, frozenset):
            _wrong(name, value)
        items = value if inner is None else _items(repeat(inner), value)
        return kind(_members(items) if kind in (set, frozenset) else items)

    schema: Json = {"type": "array", "items": _schema_of(inner)}
    if kind in (set, frozenset):
        schema["uniqueItems"] = True
    return Reader(read, name, schema, lambda value: type(value) is kind, inner=[inner])


def _members(items: Any) -> Any:
    """Check what is to be a set, or the keys of a mapping."""
    try:
        check_members(items)
    except (TypeError, ValueError) as wrong:
        raise Wrong(type(wrong), f"{PLACE}: {wrong}") from None
    return items


def _tuple(name: str, inner: list[Reader | None]) -> Reader:
    def read(value: Any) -> Any:
        if type(value) not in (list, tuple):
            _wrong(name, value)
        if len(value) != len(inner):
            raise Wrong(ValueError, f"{PLACE} must have {len(inner)} items, not {len(value)}")
        return tuple(_items(inner, value))

    schema = {
        "type": "array",
        "prefixItems": list(map(_schema_of, inner)),
        "minItems": len(inner),
        "maxItems": len(inner),
    }
    return Reader(read, name, schema, lambda value: type(value) is tuple, inner=inner)


def _items(readers: Iterable[Reader | None], values: Any) -> list[Any]:
    made: list[Any] = []
    try:
        for one, value in zip(readers, values, strict=False):
            made.append(value if one is None else one.read(value))
    except Wrong as wrong:
        raise wrong.below(f"[{len(made)}]") from None
    return made


def _mapping(name: str, keys: Reader | None, values: Reader | None) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not dict:
            _wrong(name, value)
        items, names = [], []
        key, step = None, ""
        try:
            for key, item in value.items():
                step = ""
                items.append(item if values is None else values.read(item))
                step = ".keys()"
                names.append(key if keys is None else keys.read(key))
        except Wrong as wrong:
            raise wrong.below(step or f"[{_shown(key)}]") from None
        return dict(zip(_members(names), items, strict=True))

    schema: Json = {"type": "object"}
    if values is not None:
        schema["additionalProperties"] = values.schema
    return Reader(read, name, schema, lambda value: type(value) is dict, inner=[keys, values])


def _union(members: tuple[Any, ...]) -> Reader | None:
    found = [_reader(member) for member in members]
    readers = [one for one in found if one is not None]
    if len(readers) < len(found):
        return None
    *first, last = (one.name for one in readers)
    name = f"{', '.join(first)} or {last}" if first else last
    others = [one for one in readers if one.name != "None"]

    def read(value: Any) -> Any:
        told: list[Wrong] = []
        for one in sorted(readers, key=lambda one: not one.is_exact(value)):
            try:
                return one.read(value)
            except Wrong as wrong:
                if one in others:
                    told.append(wrong)
        if len(told) == 1 or (told and others[0].is_exact(value)):
            raise told[0]
        _wrong(name, value)

    def is_exact(value: Any) -> bool:
        return any(one.is_exact(value) for one in readers)

    schema = {"anyOf": [one.schema for one in readers]}
    return Reader(read, name, schema, is_exact, inner=readers)


def _schema_of(inner: Reader | None) -> Json:
    return {} if inner is None else inner.schema


def _literal(values: tuple[Any, ...]) -> Reader:
    plain = [value.value if isinstance(value, enum.Enum) else value for value in values]
    pairs = [*zip(plain, values, strict=True)]

    def pick(value: Any) -> Any:
        [found] = [given for one, given in pairs if type(one) is type(value) and one == value]
        return found

    return _choice(plain, pick, {"enum": plain})


def _enum(kind: type[enum.Enum]) -> Reader:
    values = [member.value for member in kind]
    are_plain = all(type(value) in (str, int, float, bool, type(None)) for value in values)
    return _choice(values, kind, {"enum": values} if are_plain else {})


def _choice(values: list[Any], pick: Callable[[Any], Any], schema: Json) -> Reader:
    """A reader of one of some values; `pick` raises an error for any other."""
    name = f"one of {', '.join(map(repr, values[:LISTED]))}"

    def read(value: Any) -> Any:
        try:
            return pick(value)
        except (TypeError, ValueError):
            raise Wrong(ValueError, f"{PLACE} must be {name}, not {_shown(value)}") from None

    return Reader(read, name, schema)


def _of_package(kind: type) -> Reader | None:
    for module, names in PACKAGES.items():
        package = sys.modules.get(module)
        if any(kind is getattr(package, name, None) for name in names):
            name = f"a {module.removesuffix('.Image')}.{kind.__name__}"
            return _instance(kind, name, {"description": name})
    return None


def _annotated(annotation: Any) -> Reader | None:
    """Pydantic knows what is said beside the class; text describes it."""
    of, *more = typing.get_args(annotation)
    if any(not isinstance(one, str) for one in more):
        try:
            return _by_pydantic(annotation)
        except (ImportError, Unknown):
            # PEP 593 leaves unknown metadata to others.
            pass
    found = _reader(of)
    texts = [one for one in more if isinstance(one, str)]
    if found is None or not texts:
        return found
    return replace(found, schema={**found.schema, "description": texts[0]})


def _by_pydantic(annotation: Any) -> Reader:
    kind = typing.get_origin(annotation) or annotation
    is_described = isinstance(kind, type) and _is_described(kind)
    import pydantic

    if not hasattr(pydantic, "TypeAdapter"):
        raise ImportError("pydantic 2 is needed")
    # Classes with a configuration of their own take no other one.
    of_others = pydantic.ConfigDict(arbitrary_types_allowed=True)
    config = None if is_described else of_others
    try:
        adapter: Any = pydantic.TypeAdapter(annotation, config=config)
        validate = adapter.validator.validate_python
    except (pydantic.errors.PydanticUserError, TypeError, NameError) as error:
        raise Unknown(str(error).partition("\n")[0].partition(". Set ")[0]) from None

    error_class, wrong_class, text_of = pydantic.ValidationError, Wrong, told_errors
    kind_of, rust = type, PANIC

    def read(value: Any) -> Any:
        # A guest in this process may have replaced names of modules: none is looked up here.
        try:
            return validate(value)
        except error_class as error:
            raise wrong_class(ValueError, text_of(error, PLACE)) from None
        except BaseException as error:
            if kind_of(error).__module__ == rust:
                # It panics where its own words fail.
                raise wrong_class(ValueError, f"{PLACE} cannot be read") from None
            raise

    schema: Json = {}
    # Some annotations have no JSON schema, and are read all the same.
    with contextlib.suppress(pydantic.errors.PydanticUserError):
        schema = adapter.json_schema(ref_template="#/$defs/{model}")
    name = _a(getattr(kind, "__name__", "value"))
    is_class = isinstance(kind, type) and not typing.is_typeddict(kind)
    return Reader(
        read,
        name,
        schema,
        lambda v: is_class and isinstance(v, kind),
        by_pydantic=True,
        makes_keys=makes_keys(adapter.core_schema),
    )


def look(value: Any) -> None:
    """Check data of which pydantic makes sets and mappings."""
    try:
        check_made(value)
    except ValueError as wrong:
        raise Wrong(ValueError, f"{PLACE}: {wrong}") from None


def _is_described(kind: type) -> bool:
    """True if data become an instance by what the class says of itself."""
    described = ("__dataclass_fields__", "__get_pydantic_core_schema__", "__total__", "_fields")
    return any(hasattr(kind, name) for name in described) or kind.__module__ in _STANDARD


#: Modules of the standard library whose classes pydantic makes of text and numbers.
_STANDARD = frozenset(("fractions", "ipaddress", "re", "collections", "zoneinfo"))


def told_errors(error: Any, place: str) -> str:
    """The errors of pydantic in one line, each with its place."""
    count, told = error.error_count(), []
    if count > LARGE:
        return f"{place}: {count} errors".lstrip(": ")
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    for one in errors[:ERRORS]:
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in one["loc"])
        told.append(f"{place}{steps}: {one['msg'][:200]}".lstrip("."))
    if len(errors) > ERRORS:
        told.append(f"and {len(errors) - ERRORS} more")
    return "; ".join(told)
