"""Values as bytes and back, by value: data, dates, paths, arrays, frames. Nothing of them is code.

A head in JSON, with its length before it, and the bytes of arrays behind it. The side that reads
trusts nothing of it: a value is as large as its bytes, and sizes, depths and types are looked at
before anything is made of them.
"""

import json
import math
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from importlib import import_module as _package
from itertools import accumulate
from typing import Any

from .._native import _json_extent
from .forms import DEPTH, LENGTH, VALUE, VALUES, NotData, Packer, TooLarge, Unpacker
from .objects import KINDS, form_of_object, image_form, object_of, zone_name


def pack(
    value: object,
    *,
    arrays: bool = True,
    place: str = "value",
    most: int = VALUE,
    exact: bool = False,
) -> bytes:
    """Return a value as at most so many bytes; `NotData` names what cannot be passed by its place.

    A value is ``None``, numbers, text, bytes, or lists, tuples, sets and dictionaries of values,
    nested at most 100 deep. Subclasses become their base, unless it is to be `exact`. With `arrays`
    it may also be what `form_of` knows.
    """
    packer = Packer(form_of if arrays else None, most, exact=exact)
    return message(packer, packer.form(value, place, 0), place)


def message(packer: Packer, form: Any, place: str) -> bytes:
    """Return a form as bytes, with those beside it."""
    lengths = [len(blob) for blob in packer.blobs]
    text = json.dumps({"value": form, "lengths": lengths}).encode()
    size = LENGTH.size + len(text) + sum(lengths)
    if size > packer.most:
        raise TooLarge(place, size, packer.most)
    return b"".join((LENGTH.pack(len(text)), text, *packer.blobs))


def unpack(data: bytes | memoryview, *, arrays: bool = True, own: bool = False) -> Any:
    """The value of bytes of `pack`, or of any other; keys may be any in the host's own."""
    view = memoryview(data)
    if len(view) < LENGTH.size:
        raise ValueError("a message without a head")
    end = LENGTH.size + LENGTH.unpack(view[: LENGTH.size])[0]
    text = bytes(view[LENGTH.size : end])
    values, depth = _json_extent(text)
    if values > 4 * VALUES or depth > 3 * DEPTH:
        raise ValueError(f"more than {VALUES} values, or nested more than {DEPTH} deep")
    try:
        head = json.loads(text)
        blobs = []
        for length in head["lengths"]:
            if type(length) is not int or not 0 <= length <= len(view) - end:
                raise ValueError("a message whose lengths are not those of its bytes")
            blobs.append(view[end : end + length])
            end += length
        return Unpacker(blobs, value_of if arrays else None, own).value(head["value"])
    except ValueError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as bad:
        raise ValueError(f"a malformed message: {type(bad).__name__}") from None


# Arrays of numpy, and frames, series and indices of pandas and polars, by value.
#
# Numbers are their bytes; text and the like are lists. A package is imported to make an array only
# if somebody sends one, and is never needed otherwise.

#: Kinds of elements that are their bytes: numbers, times, texts of one length.
PLAIN = frozenset("biufcmMSU")

#: The number of dimensions of an array: numpy's own limit, which was 32 before numpy 2.
DIMENSIONS = 64

#: Types of columns that have texts alone.
TEXTS = ("str", "string")

#: Types of columns that are made of a list.
LISTED = ("object", "str", "string", "boolean", "Int", "UInt", "Float")


#: Types of columns of polars: the class of their values in Python, and their own arguments.
_NUMBERS = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
POLARS: dict[str, tuple[type, tuple[str, ...]]] = {
    **dict.fromkeys(_NUMBERS, (int, ())),
    **dict.fromkeys(("Float32", "Float64"), (float, ())),
    **dict.fromkeys(("String", "Categorical"), (str, ())),
    "Binary": (bytes, ()),
    "Boolean": (bool, ()),
    "Date": (date, ()),
    "Time": (time, ()),
    "Datetime": (datetime, ("time_unit", "time_zone")),
    "Duration": (timedelta, ("time_unit",)),
}


def form_of(packer: Packer, value: Any, place: str, depth: int) -> Any:
    """Return the form of an object, an array or a frame; ``None`` for anything else."""
    numpy, pandas = map(sys.modules.get, ("numpy", "pandas"))
    if numpy is not None and isinstance(value, numpy.generic):
        # A number of numpy becomes one of Python where Python has such numbers.
        plain = value.item() if value.dtype.kind in "biufcSU" else value
        if not isinstance(plain, numpy.generic):
            return packer.form(plain, place, depth)
        return {**_array(packer, numpy.asarray(value), place), "scalar": True}
    if any(value is getattr(pandas, name, None) for name in ("NA", "NaT")):
        return {"$": "missing", "name": str(value)}
    for module, forms in PACKAGES.items():
        package = sys.modules.get(module)
        for name, make in forms.items() if package is not None else ():
            if isinstance(value, getattr(package, name, ())):
                return make(packer, value, place, depth)
    return form_of_object(value, place)


def _array(packer: Packer, array: Any, place: str, depth: int = 0) -> Any:
    numpy = _package("numpy")
    if array.dtype.kind not in PLAIN:
        raise NotData(f"{place[:200]} is an array of {array.dtype}: pass {place[:50]}.tolist()")
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(array, masked.MaskedArray):
        at = place[:50]
        raise NotData(f"{place[:200]} is a masked array: pass {at}.filled(…), or {at}.tolist()")
    packer.take(array.nbytes, place)
    packed = numpy.ascontiguousarray(array)
    data = packed.view(numpy.uint8).reshape(-1).data if packed.size and packed.ndim else None
    blob = packed.tobytes() if data is None else data
    return {
        "$": "array",
        "type": array.dtype.str,
        "shape": list(array.shape),
        "at": packer.blob(blob),
    }


def _frame_form(packer: Packer, frame: Any, place: str, depth: int) -> Any:
    columns = [
        _column(packer, frame.iloc[:, number].array, f"{place}.iloc[:, {number}]", depth)
        for number in range(frame.shape[1])
    ]
    names = _index(packer, frame.columns, f"{place}.columns", depth)
    index = _index(packer, frame.index, f"{place}.index", depth)
    return {"$": "frame", "names": names, "columns": columns, "index": index}


def _series_form(packer: Packer, series: Any, place: str, depth: int) -> Any:
    return {
        "$": "series",
        "name": packer.form(series.name, f"{place}.name", depth),
        "column": _column(packer, series.array, place, depth),
        "index": _index(packer, series.index, f"{place}.index", depth),
    }


def _index_form(packer: Packer, index: Any, place: str, depth: int) -> Any:
    return {"$": "index", "index": _index(packer, index, place, depth)}


def _moment_form(packer: Packer, value: Any, place: str, depth: int) -> Any:
    zone = getattr(value, "tz", None)
    return {"$": type(value).__name__, "text": value.isoformat(), "zone": zone and str(zone)}


def _polars_frame_form(packer: Packer, frame: Any, place: str, depth: int) -> Any:
    columns = [_polars_column(packer, one, f"{place}[{one.name!r}]", depth) for one in frame]
    return {"$": "polars.DataFrame", "columns": columns}


def _polars_form(packer: Packer, series: Any, place: str, depth: int) -> Any:
    return {"$": "polars.Series", "columns": [_polars_column(packer, series, place, depth)]}


#: Classes of packages whose instances are passed, and their forms, by the modules that have them.
PACKAGES: dict[str, dict[str, Callable[[Packer, Any, str, int], Any]]] = {
    "numpy": {"ndarray": _array},
    "pandas": {
        "DataFrame": _frame_form,
        "Series": _series_form,
        "Index": _index_form,
        "Timestamp": _moment_form,
        "Timedelta": _moment_form,
    },
    "polars": {"DataFrame": _polars_frame_form, "Series": _polars_form},
    "PIL.Image": {"Image": image_form},
}


def _column(packer: Packer, column: Any, place: str, depth: int) -> Any:
    """The form of a column: the array below a series or an index."""
    numpy = _package("numpy")
    pandas = _package("pandas")
    kind = column.dtype
    if isinstance(kind, pandas.CategoricalDtype):
        return {
            "type": "category",
            "codes": _array(packer, column.codes, place),
            "categories": _index(packer, kind.categories, place, depth),
            "ordered": bool(kind.ordered),
        }
    if isinstance(kind, pandas.DatetimeTZDtype):
        plain = column.tz_convert("UTC").tz_localize(None).to_numpy()
        return {"type": "zoned", "zone": str(kind.tz), "array": _array(packer, plain, place)}
    # An array of numpy that pandas has wrapped, in a class with another name before pandas 2.1.
    if type(kind).__name__ in ("NumpyEADtype", "PandasDtype"):
        kind = kind.numpy_dtype
    if isinstance(kind, numpy.dtype) and kind.kind in PLAIN:
        return {"type": "array", "array": _array(packer, column.to_numpy(), place)}
    name = str(kind)
    if not name.startswith(LISTED):
        raise NotData(f"{place[:200]} has the type {name[:50]}, which cannot be passed by value")
    values = column.astype(object).tolist()
    lengths = [len(value) if type(value) is str else -1 for value in values]
    are_texts = not any(isinstance(value, str) for value, x in zip(values, lengths) if x < 0)  # noqa: B905
    if are_texts and name.startswith(TEXTS if -1 in lengths else (*TEXTS, "object")):
        return {"type": name, **_texts_form(packer, values, lengths, place)}
    return {"type": name, "items": _items_form(packer, values, place, depth)}


def _items_form(packer: Packer, values: list[Any], place: str, depth: int) -> list[Any]:
    return [packer.form(one, f"{place}[{number}]", depth + 1) for number, one in enumerate(values)]


def _texts_form(packer: Packer, values: list[Any], lengths: list[int], place: str) -> Any:
    """The form of many texts: a text for each takes long. Those of length -1 are missing."""
    packer.take(sum(length for length in lengths if length > 0), place)
    joined = "".join(value for value in values if type(value) is str)
    at = packer.blob(joined.encode("utf-8", "surrogatepass"))
    return {"texts": at, "lengths": _array(packer, _package("numpy").array(lengths, "<i8"), place)}


def _index(packer: Packer, index: Any, place: str, depth: int) -> Any:
    pandas = _package("pandas")
    names = [packer.form(name, f"{place}.names", depth) for name in index.names]
    if isinstance(index, pandas.RangeIndex):
        return {"names": names, "range": [index.start, index.stop, index.step]}
    if isinstance(index, pandas.MultiIndex):
        levels = [index.get_level_values(number) for number in range(index.nlevels)]
        return {"names": names, "levels": [_column(packer, x.array, place, depth) for x in levels]}
    return {"names": names, "column": _column(packer, index.array, place, depth)}


def _polars_column(packer: Packer, column: Any, place: str, depth: int) -> Any:
    kind = column.dtype
    name = kind.base_type().__name__
    if name not in POLARS or getattr(kind, "time_unit", None) == "ns":
        instead = f"pass {place[:50]}.to_list()"
        raise NotData(f"{place[:200]} has the type {str(kind)[:50]}, {instead}")
    arguments = [getattr(kind, one) for one in POLARS[name][1]]
    form = {"name": column.name, "type": name, "arguments": arguments}
    if POLARS[name][0] in (int, float) and not column.null_count():
        return {**form, "array": _array(packer, column.to_numpy(), place)}
    values = column.to_list()
    if POLARS[name][0] is str:
        lengths = [-1 if one is None else len(one) for one in values]
        return {**form, **_texts_form(packer, values, lengths, place)}
    return {**form, "items": _items_form(packer, values, place, depth)}


def value_of(unpacker: Unpacker, kind: str, form: Any) -> Any:
    if kind in KINDS:
        return object_of(unpacker, kind, form)
    try:
        if kind == "array":
            return _made_array(unpacker, form)
        if kind in ("polars.DataFrame", "polars.Series"):
            polars = _package("polars")
            columns = [_made_polars(polars, unpacker, column) for column in form["columns"]]
            return polars.DataFrame(columns) if kind == "polars.DataFrame" else columns[0]
        pandas = _package("pandas")
    except ImportError as missing:
        raise ValueError(f"the package {missing.name!r} is not installed here") from None
    if kind == "missing":
        return {"<NA>": pandas.NA, "NaT": pandas.NaT}[form["name"]]
    if kind in ("Timestamp", "Timedelta"):
        made = getattr(pandas, kind)(str(form["text"]))
        return made if form["zone"] is None else made.tz_convert(zone_name(form["zone"]))
    index = _made_index(unpacker, form["index"])
    if kind == "index":
        return index
    if kind == "series":
        made = _made_column(unpacker, form["column"])
        name = unpacker.value(form["name"])
        return pandas.Series(made, index=index, name=name, dtype=made.dtype)
    if kind != "frame":
        raise ValueError(f"a message with {str(kind)[:50]!r}")
    columns = [_made_column(unpacker, column) for column in form["columns"]]
    # Types are given: pandas would guess another one for text.
    columns = [pandas.Series(made, index=index, dtype=made.dtype) for made in columns]
    frame = pandas.DataFrame(dict(enumerate(columns)), index=index)
    frame.columns = _made_index(unpacker, form["names"])
    return frame


def _made_array(unpacker: Unpacker, form: Any) -> Any:
    numpy = _package("numpy")
    blob = unpacker.blob(form["at"])
    shape = form["shape"]
    kind = numpy.dtype(str(form["type"])[:20])
    if kind.kind not in PLAIN or kind.subdtype is not None or len(shape) > DIMENSIONS:
        raise ValueError("an array of another type")
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("an array whose shape has something else than sizes")
    if math.prod(shape) * kind.itemsize != len(blob):
        raise ValueError("an array whose shape is not that of its bytes")
    if kind.kind == "U" and len(blob):
        letters = numpy.frombuffer(blob, dtype=f"{kind.byteorder}u4")
        if letters.max() > sys.maxunicode:
            raise ValueError("an array with letters that are none")
    made = numpy.frombuffer(blob, dtype=kind).reshape(shape)
    return made.copy() if shape or form.get("scalar") is not True else made[()]


def _made_polars(polars: Any, unpacker: Unpacker, form: Any) -> Any:
    """A column, whose dates and times are those of Python: polars panics at some of its own."""
    kind, _ = POLARS[form["type"]]
    dtype = getattr(polars, form["type"])
    if form["arguments"]:
        unit, *zone = form["arguments"]
        dtype = dtype(unit, *(None if one is None else zone_name(one) for one in zone))
    if "texts" in form:
        values: Any = _made_texts(unpacker, form)
    elif "array" in form:
        values = _made_array(unpacker, form["array"])
        if values.ndim != 1 or values.dtype.kind not in "iuf":
            raise ValueError("a column with something else than numbers")
    else:
        values = list(map(unpacker.value, form["items"]))
        if any(one is not None and type(one) is not kind for one in values):
            raise ValueError("a column with values of another type")
    return polars.Series(form["name"], values, dtype)


def _made_column(unpacker: Unpacker, form: Any, is_index: bool = False) -> Any:
    pandas = _package("pandas")
    kind = form["type"]
    if kind == "array":
        made = _made_array(unpacker, form["array"])
        if made.ndim != 1:
            raise ValueError("a column with another number of dimensions")
        return made
    if kind == "zoned":
        times = pandas.DatetimeIndex(_made_array(unpacker, form["array"]))
        return times.tz_localize("UTC").tz_convert(zone_name(form["zone"])).array
    if kind == "category":
        return pandas.Categorical.from_codes(
            _made_array(unpacker, form["codes"]),
            categories=_made_index(unpacker, form["categories"]),
            ordered=bool(form["ordered"]),
        )
    if "texts" in form:
        items = _made_texts(unpacker, form)
    else:
        # pandas hashes the values of an index.
        items = (
            unpacker.keys(form["items"]) if is_index else list(map(unpacker.value, form["items"]))
        )
    if not str(kind).startswith(LISTED):
        raise ValueError(f"a column of the type {str(kind)[:50]!r}")
    if kind != "object":
        return pandas.array(items, dtype=kind)
    made = _package("numpy").empty(len(items), dtype=object)
    made[:] = items
    return made


def _made_texts(unpacker: Unpacker, form: Any) -> list[Any]:
    text = bytes(unpacker.blob(form["texts"])).decode("utf-8", "surrogatepass")
    array = _made_array(unpacker, form["lengths"])
    lengths = array.tolist()
    is_other = array.dtype.str != "<i8" or array.ndim != 1 or len(lengths) > VALUES
    if is_other or any(not -1 <= length <= len(text) for length in lengths):
        raise ValueError("texts with other lengths")
    ends = list(accumulate(max(length, 0) for length in lengths))
    if (ends[-1] if ends else 0) != len(text):
        raise ValueError("texts whose lengths are not those of their bytes")
    return [
        None if length < 0 else text[end - length : end]
        for length, end in zip(lengths, ends, strict=True)
    ]


def _made_index(unpacker: Unpacker, form: Any) -> Any:
    pandas = _package("pandas")
    names = [unpacker.value(name) for name in form["names"]]
    if "range" in form:
        start, stop, step = map(int, form["range"])
        return pandas.RangeIndex(start, stop, step, name=names[0])
    if "levels" in form:
        levels = [_made_column(unpacker, level, is_index=True) for level in form["levels"]]
        return pandas.MultiIndex.from_arrays(levels, names=names)
    made = _made_column(unpacker, form["column"], is_index=True)
    return pandas.Index(made, name=names[0], dtype=made.dtype)
