"""Objects of the standard library and images by value, and objects of the host as data.

Each is made anew from numbers and text that were looked at, by the class itself. Classes are bound
here, before code of a guest can replace their modules.
"""

import dataclasses
import enum
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from importlib import import_module as _package
from pathlib import Path, PurePath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from .forms import NESTED, NotData, Packer, Unpacker

#: Names of time zones, as the IANA has them, and differences from UTC: another name could make a
#: library open any file.
ZONE = re.compile(r"(?!dateutil)[A-Za-z][\w+-]*(/[\w+-]+){0,3}|UTC[+-][0-9:]+", re.ASCII)

#: The characters of a decimal, and its greatest exponent: to write out one with more takes long.
DIGITS, EXPONENT = 10_000, 10_000

#: The modes of images whose pixels are passed, and the bytes of a pixel.
MODES = {
    **dict.fromkeys(("L",), 1),
    **dict.fromkeys(("LA", "La", "I;16"), 2),
    **dict.fromkeys(("RGB", "YCbCr", "LAB", "HSV"), 3),
    **dict.fromkeys(("RGBA", "RGBa", "CMYK", "I", "F"), 4),
}

_DAY = ("year", "month", "day")
_TIME = ("hour", "minute", "second", "microsecond", "fold")

#: Classes that are made of whole numbers, and their names. A `datetime` is a `date` too.
_FIELDS: dict[Any, tuple[str, ...]] = {
    datetime: (*_DAY, *_TIME),
    date: _DAY,
    time: _TIME,
    timedelta: ("days", "seconds", "microseconds"),
}
_NUMBER: Any = vars(UUID)["int"].__get__
_MICROSECOND = timedelta(microseconds=1)


def form_of_object(value: Any, place: str) -> Any:
    """Return the form of an object of these classes, or of theirs; ``None`` for any other."""
    kind: Any = type(value)
    for base, names in _FIELDS.items():
        if issubclass(kind, base):
            fields = [getattr(base, name).__get__(value) for name in names]
            zone = _zone_form(base, value, place) if "fold" in names else {}
            return {"$": base.__name__, "fields": fields, **zone}
    if issubclass(kind, Decimal):
        text = Decimal.__str__(value)
        try:
            decimal_of(text)
        except ValueError as wrong:
            raise NotData(f"{place[:200]}: {wrong}") from None
        return {"$": "decimal", "text": text}
    if issubclass(kind, UUID):
        number: Any = _NUMBER(value)
        if type(number) is int and 0 <= number < 1 << 128:
            return {"$": "uuid", "text": f"{number:032x}"}
    if issubclass(kind, PurePath):
        text = PurePath.__str__(value)
        if issubclass(type(text), str):
            return {"$": "path", "text": str.__str__(text)}
    return None


def _zone_form(base: Any, value: Any, place: str) -> dict[str, Any]:
    """The zone of a time: its name, and the difference from UTC then, in microseconds."""
    zone: tzinfo | None = base.tzinfo.__get__(value)
    found: dict[str, Any] = {}
    if zone is None:
        return found
    for name in ("key", "zone"):
        text = getattr(zone, name, None)
        if type(text) is str and ZONE.fullmatch(text):
            found["zone"] = text
    offset = base.utcoffset(value)
    if offset is not None:
        found["offset"] = timedelta.__floordiv__(offset, _MICROSECOND)
    if not found:
        raise NotData(f"{place[:200]} has a time zone without a name or a difference from UTC")
    return found


def image_form(packer: Packer, image: Any, place: str, depth: int) -> Any:
    mode = image.mode
    if mode in ("P", "PA", "1"):
        has_alpha = mode == "PA" or "transparency" in image.info
        mode = "L" if mode == "1" else "RGBA" if has_alpha else "RGB"
    if mode not in MODES:
        raise NotData(f"{place[:200]} is an image of mode {mode}: pass .convert('RGB')")
    width, height = image.size
    packer.take(width * height * MODES[mode], place)
    if mode != image.mode:
        image = image.convert(mode)
    at = packer.blob(image.tobytes())
    return {"$": "image", "mode": mode, "size": [width, height], "at": at}


def object_of(unpacker: Unpacker, kind: str, form: Any) -> Any:
    """Make the object of a form."""
    if kind == "image":
        return _made_image(unpacker, form)
    if kind in _TEXTS:
        if type(form["text"]) is not str:
            raise ValueError("an object whose text is none")
        return _TEXTS[kind](form["text"])
    base, names = _BY_NAME[kind]
    fields = _whole(form["fields"], len(names))
    if "fold" in names:
        *fields, fold = fields
        return base(*fields, fold=fold, tzinfo=_zone_of(form))
    return base(*fields)


def decimal_of(text: str) -> Decimal:
    """Make a decimal of text; `ValueError` if it is none, or one that takes long to write out."""
    if len(text) > DIGITS:
        raise ValueError(f"a decimal has more than {DIGITS} digits")
    try:
        made = Decimal(text)
    except ArithmeticError:
        raise ValueError(f"{text[:50]!r} is no decimal") from None
    if made.is_finite() and abs(made.adjusted()) > EXPONENT:
        raise ValueError(f"a decimal has an exponent beyond {EXPONENT}")
    return made


_BY_NAME = {base.__name__: (base, names) for base, names in _FIELDS.items()}
_TEXTS: dict[str, Callable[[str], Any]] = {"decimal": decimal_of, "uuid": UUID, "path": Path}

#: The kinds of forms that `object_of` reads.
KINDS = frozenset((*_BY_NAME, *_TEXTS, "image"))


def _whole(fields: Any, count: int) -> list[Any]:
    if type(fields) is not list or len(fields) != count or any(type(x) is not int for x in fields):
        raise ValueError("a date or a time with other fields")
    return list(fields)


def _zone_of(form: Any) -> tzinfo | None:
    if "zone" in form:
        name = zone_name(form["zone"])
        try:
            return ZoneInfo(name)
        except (KeyError, OSError, ValueError):
            # The system may lack time zone files, or the policy forbid to read them.
            if "offset" not in form:
                raise ValueError(f"a time zone {name[:50]!r}, which is not known here") from None
    if "offset" not in form:
        return None
    return timezone(timedelta(microseconds=_whole([form["offset"]], 1)[0]))


def zone_name(name: Any) -> str:
    """The name of a time zone, which leads to no file but that of the zone."""
    if type(name) is not str or not ZONE.fullmatch(name):
        raise ValueError(f"a time zone {str(name)[:50]!r}")
    return name


def _made_image(unpacker: Unpacker, form: Any) -> Any:
    try:
        images = _package("PIL.Image")
    except ImportError:
        raise ValueError("the package 'Pillow' is not installed here") from None
    blob, mode = unpacker.blob(form["at"]), form["mode"]
    width, height = _whole(form["size"], 2)
    if width < 0 or height < 0 or width * height * MODES[mode] != len(blob):
        raise ValueError("an image whose size is not that of its bytes")
    return images.frombytes(mode, (width, height), bytes(blob))


def data_maker() -> Callable[[Any, str], Any]:
    """Return a function that makes data of dataclasses, models and enums of the host.

    It may run with the host's rights where a guest in this process has replaced names of modules,
    even by native functions: it looks up none.
    """
    kind_of, is_a, get, has, fields_of = type, isinstance, getattr, hasattr, dataclasses.fields
    containers, mapping = (list, tuple, set, frozenset), dict
    enums, deepest, refused = enum.Enum, NESTED, NotData

    def data_of(value: Any, place: str, depth: int = 0) -> Any:
        if depth > deepest:
            raise refused(f"{place} is nested more than {deepest} deep")
        kind: Any = kind_of(value)
        if is_a(value, enums):
            return data_of(value.value, place, depth + 1)
        if has(kind, "__dataclass_fields__"):
            return {
                one.name: data_of(get(value, one.name), place, depth + 1)
                for one in fields_of(value)
            }
        if has(kind, "__pydantic_validator__") and has(kind, "model_dump"):
            return data_of(kind.model_dump(value), place, depth + 1)
        if is_a(value, mapping):
            return {
                data_of(key, place, depth + 1): data_of(item, place, depth + 1)
                for key, item in value.items()
            }
        for base in containers:
            if is_a(value, base):
                return base(data_of(item, place, depth + 1) for item in value)
        return value

    return data_of


#: Makes data of the host's own value, outside the calls of tools in this process.
data_of = data_maker()
