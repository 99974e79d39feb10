"""Values by value: data, arrays and frames come back as they were, and malformed bytes do not."""

import datetime
import enum
import json
import math
import struct
import sys
import tracemalloc
import uuid
from collections import OrderedDict
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from fastaudit_rs.sessions.forms import NotData
from fastaudit_rs.sessions.values import pack, unpack


class Color(enum.IntEnum):
    RED = 1


class Text(str):
    def __str__(self):
        raise AssertionError("not to be called")


class Listing(list):
    def __iter__(self):
        raise AssertionError("not to be called")


SAME = [
    None,
    True,
    0,
    -(2**63),
    2**64,
    -(10**5000),
    1.5,
    1j,
    "a\ud800\0",
    b"\0\xff",
    [],
    (),
    {},
    [1, [2, (3, {"a": {4}})]],
    {"$": 1},
    # Long ones of plain items.
    [*range(20)],
    (2**63 - 1, 2**63, -(2**63), *range(20)),
    [True, 1.5, None, "a", 2**64] * 9,
    {str(n): n for n in range(20)},
    {str(n): -(2**63) - n for n in range(20)},
    {"$": 2, **{str(n): None for n in range(20)}},
    {n: n for n in range(20)},
    {1: 2, (1, 2): b"3", None: 4},
    frozenset({1, 2}),
    "$",
    datetime.date(2026, 1, 2),
    datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc),
    datetime.datetime(2026, 7, 2, 3, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime.time(1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=-3))),
    datetime.timedelta(-1, 2, 3),
    Decimal("-1.50"),
    Decimal("Infinity"),
    uuid.UUID(int=2**128 - 1),
    Path("/a\udc80/b"),
    {Path("a"): {Decimal(1), uuid.UUID(int=1)}},
]


@pytest.mark.parametrize("value", SAME, ids=range(len(SAME)))
def test_same(value):
    back = unpack(pack(value))
    assert back == value
    assert type(back) is type(value)


def test_a_zone_that_is_not_known_here(monkeypatch):
    import zoneinfo

    when = datetime.datetime(2026, 7, 2, tzinfo=ZoneInfo("Pacific/Chatham"))
    packed = pack([when, datetime.time(1, tzinfo=ZoneInfo("Asia/Tokyo"))])
    assert unpack(packed)[0].tzinfo is when.tzinfo

    def missing(name):
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr("fastaudit_rs.sessions.objects.ZoneInfo", missing)
    with pytest.raises(ValueError, match="'Asia/Tokyo', which is not known here"):
        unpack(packed)
    assert unpack(pack(when)) == when


def test_not_a_number():
    assert math.isnan(unpack(pack(math.nan)))
    assert unpack(pack([math.inf])) == [math.inf]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Color.RED, 1),
        (Text("a"), "a"),
        (Listing([1]), [1]),
        (OrderedDict(a=1), {"a": 1}),
        (bytearray(b"a"), b"a"),
    ],
)
def test_subclasses_become_their_base(value, plain):
    back = unpack(pack(value))
    assert back == plain
    assert type(back) is type(plain)


@pytest.mark.parametrize("value", [object(), [1, {"a": open}], {object(): 1}, int])
def test_no_data(value):
    with pytest.raises(NotData, match="value"):
        pack(value)


def test_too_deep_and_cyclic():
    cycle = []
    cycle.append(cycle)
    with pytest.raises(NotData, match="nested"):
        pack(cycle)


@pytest.mark.slow
def test_too_many():
    with pytest.raises(NotData, match="more than 1048576 values"):
        pack([0] * (1 << 20))


@pytest.mark.parametrize(
    "value",
    [
        [bytearray(8 << 20)] * 4,
        {"a": "x" * (20 << 20), "b": b"x" * (20 << 20)},
        ["x" * (1 << 20), "ä" * (1 << 20)] * 10,
        {"x" * (30 << 20): 1},
        1 << (8 << 25),
    ],
    ids=["bytes", "mapping", "texts", "key", "number"],
)
def test_too_large(value):
    """It is not copied: there may be no memory for that."""
    tracemalloc.start()
    try:
        with pytest.raises(NotData, match=r"is too large: .* MB or more, of at most 16 MB"):
            pack(value, most=16 << 20)
        assert tracemalloc.get_traced_memory()[1] < 25 << 20
    finally:
        tracemalloc.stop()


def test_deepest():
    value = leaf = {}
    for _ in range(88):
        leaf[None] = leaf = {}
    assert unpack(pack(value)) == value


def frame_of_polars(polars):
    when = datetime.datetime(2026, 7, 2, 3, tzinfo=ZoneInfo("Europe/Berlin"))
    return polars.DataFrame(
        {
            "whole": [1, 2],
            "missing": [1, None],
            "small": polars.Series([1, 255], dtype=polars.UInt8),
            "number": [1.5, math.inf],
            "text": ["a\0é", None],
            "kind": polars.Series(["a", None], dtype=polars.Categorical),
            "yes": [True, None],
            "bytes": [b"\xff", None],
            "day": [datetime.date(1, 1, 1), None],
            "time": [datetime.time(1, 2, 3, 4), None],
            "moment": [datetime.datetime.max, None],
            "zoned": polars.Series([when, None], dtype=polars.Datetime("ms", "Europe/Berlin")),
            "span": [datetime.timedelta(-1, 2, 3), None],
        }
    )


def test_frames_of_polars():
    polars = pytest.importorskip("polars")
    frame = frame_of_polars(polars)
    back = unpack(pack(frame))
    assert back.equals(frame, null_equal=True) and back.schema == frame.schema
    assert unpack(pack(polars.DataFrame())).equals(polars.DataFrame())
    series = polars.Series("a", [1, None])
    assert unpack(pack([series]))[0].equals(series, check_dtypes=True, check_names=True)
    nested = polars.DataFrame({"a": [[1]]})
    with pytest.raises(
        NotData, match=r"value\['a'\] has the type List.*pass value\['a'\]\.to_list"
    ):
        pack(nested)
    precise = polars.Series([1], dtype=polars.Datetime("ns"))
    with pytest.raises(NotData, match="has the type Datetime"):
        pack(precise)


@pytest.mark.parametrize(
    "column",
    [
        # Polars panics where anybody looks at such a date.
        {"type": "Date", "items": [2**31 - 1]},
        {"type": "Date", "items": [{"$": "datetime", "fields": [2026, 1, 1, 0, 0, 0, 0, 0]}]},
        {"type": "Boolean", "items": ["a"]},
        {"type": "Int8", "items": [True]},
        {"type": "Object", "items": [1]},
        {"type": "Int64", "array": {"$": "array", "type": "|S1", "shape": [1], "at": 0}},
        {"type": "Int64", "array": {"$": "array", "type": "<i8", "shape": [1, 0], "at": 0}},
        {"type": "Datetime", "arguments": ["us", "../../etc"], "items": []},
    ],
)
def test_malformed_frames_of_polars(column):
    pytest.importorskip("polars")
    column = {"name": "a", "arguments": [], **column}
    with pytest.raises(ValueError):
        unpack(message({"$": "polars.DataFrame", "columns": [column]}, b""))


def message(value, *blobs, lengths=None):
    head = {"value": value, "lengths": [len(b) for b in blobs] if lengths is None else lengths}
    text = json.dumps(head).encode()
    return struct.pack("!Q", len(text)) + text + b"".join(blobs)


def texts(text, lengths, kind="<i8"):
    """An index of texts."""
    numpy = pytest.importorskip("numpy")
    array = {"$": "array", "type": kind, "shape": [len(lengths)], "at": 1}
    column = {"type": "str", "texts": 0, "lengths": array}
    form = {"$": "index", "index": {"names": [None], "column": column}}
    data = text if isinstance(text, bytes) else text.encode()
    return message(form, data, numpy.array(lengths, kind).tobytes())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 8,
        b"\xff" * 8,
        b"\xff" * 80,
        message({"$": "bytes", "at": 1}, b"a"),
        message({"$": "bytes", "at": "a"}, b"a"),
        message({"$": "bytes", "at": 0}, lengths=[5]),
        message({"$": "bytes", "at": 0}, lengths=[-1]),
        message({"$": "tuple"}),
        message({"$": "set", "items": [[]]}),
        message({"$": "none such"}),
        message({"$": []}),
        message({"$": "dict", "keys": [], "items": [1]}),
        message({"$": "int", "hex": "é"}),
        message({"$": "complex", "parts": ["a"]}),
        struct.pack("!Q", 300_000) + b"[" * 300_000,
        message({"$": "array", "type": "<f8", "shape": [2], "at": 0}, b"a"),
        message({"$": "array", "type": "|O", "shape": [1], "at": 0}, b"a" * 8),
        message({"$": "array", "type": "<f8,<f8", "shape": [1], "at": 0}, b"a" * 16),
        message({"$": "array", "type": "<f8", "shape": [2**70, 0], "at": 0}, b""),
        message({"$": "array", "type": "<f8", "shape": [-1, -1], "at": 0}, b"a" * 8),
        message({"$": "array", "type": "<U0", "shape": [2**40], "at": 0}, b""),
        message({"$": "frame", "columns": [], "index": {}, "names": {}}),
        message({"$": "series", "column": {"type": "eval"}, "index": {"names": []}, "name": 1}),
        texts("ab", [1]),
        texts("ab", [3, -1]),
        texts("ab", [2, -2]),
        texts("ab", [2**62, 2**62, 2**62, 2**62, 2]),
        texts(b"\xff", [1]),
        texts("", [0], "<i4"),
        texts("", [0] * (1 << 20) + [0]),
        message({"$": "date", "fields": [2026, 1]}),
        message({"$": "date", "fields": [2026, 1, True]}),
        message({"$": "date", "fields": [2026, 1, {"$": "int", "hex": "f"}]}),
        message({"$": "date", "fields": "abc"}),
        message({"$": "date", "fields": [10**30, 1, 1]}),
        message({"$": "datetime", "fields": [2026, 1, 1, 0, 0, 0, 0, 7]}),
        message({"$": "time", "fields": [0, 0, 0, 0, 0], "zone": "../../etc/passwd"}),
        message({"$": "time", "fields": [0, 0, 0, 0, 0], "zone": "/etc/localtime"}),
        message({"$": "time", "fields": [0, 0, 0, 0, 0], "zone": "No/Where"}),
        message({"$": "time", "fields": [0, 0, 0, 0, 0], "zone": "America"}),
        message({"$": "time", "fields": [0, 0, 0, 0, 0], "zone": ["UTC"]}),
        message({"$": "time", "fields": [0, 0, 0, 0, 0], "offset": 10**30}),
        message({"$": "time", "fields": [0, 0, 0, 0, 0], "offset": "1"}),
        message({"$": "timedelta", "fields": [10**12, 0, 0]}),
        message({"$": "decimal", "text": "1e999999999"}),
        message({"$": "decimal", "text": "0e999999999"}),
        message({"$": "decimal", "text": "1" * 100_000}),
        message({"$": "decimal", "text": "a"}),
        message({"$": "decimal", "text": [0, [1], 1]}),
        message({"$": "set", "items": [{"$": "decimal", "text": "sNaN"}]}),
        message({"$": "uuid", "hex": "5"}),
        message({"$": "uuid", "hex": 5}),
        message({"$": "path", "text": ["/"]}),
        message({"$": "image", "mode": "RGB", "size": [1, 1], "at": 0}, b"a"),
        message({"$": "image", "mode": "P", "size": [1, 1], "at": 0}, b"a"),
        message({"$": "image", "mode": "RGB", "size": [-1, -1], "at": 0}, b"abc"),
        message({"$": "image", "mode": "RGB", "size": [2**40, 0, 0], "at": 0}, b""),
        message({"$": "image", "mode": "RGB", "size": [1.0, 1], "at": 0}, b"abc"),
        message({"$": "image", "mode": [], "size": [1, 1], "at": 0}, b"abc"),
        message({"$": "Timestamp", "text": "2026", "zone": "dateutil//etc/passwd"}),
    ],
    ids=range(61),
)
def test_malformed(data):
    with pytest.raises(ValueError, match=r"."):
        unpack(data)


#: 2,000 numbers with one hash, and tuples of them.
ALIKE = [number * sys.hash_info.modulus for number in range(1, 2000)]
NUMBERS = [{"$": "int", "hex": f"{number:x}"} for number in ALIKE]
OBJECTS = {"type": "object", "items": NUMBERS}


@pytest.mark.parametrize(
    "form",
    [
        {"$": "set", "items": NUMBERS},
        {"$": "frozenset", "items": [{"$": "tuple", "items": [one]} for one in NUMBERS]},
        {"$": "set", "items": [{"$": "complex", "parts": [-1000003 * n, n]} for n in range(999)]},
        {"$": "dict", "keys": NUMBERS, "items": [0] * len(NUMBERS)},
        [{"$": "tuple", "items": [{"$": "set", "items": NUMBERS}]}],
        {"$": "index", "index": {"names": [None], "column": OBJECTS}},
        {"$": "index", "index": {"names": [None, None], "levels": [OBJECTS, OBJECTS]}},
        {
            "$": "series",
            "name": None,
            "index": {"names": [None], "range": [0, 1, 1]},
            "column": {
                "type": "category",
                "codes": {"$": "array", "type": "|i1", "shape": [1], "at": 0},
                "categories": {"names": [None], "column": OBJECTS},
                "ordered": False,
            },
        },
    ],
    ids=["set", "tuples", "complex", "dict", "nested", "index", "levels", "categories"],
)
def test_keys_with_one_hash(form):
    """The sender chooses the hashes of numbers: a set of n of them would take n² steps."""
    if "index" in str(form):
        pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="more than 100 keys or members of sets with one hash"):
        unpack(message(form, b"\0"))


@pytest.mark.slow
def test_many_keys_that_are_no_text():
    """Those whose places in a table follow one another take long too; a host's own may be any."""
    sets = [set(range(40_000)), {(number,) for number in range(40_000)}]
    assert unpack(pack(sets[0])) == sets[0]
    assert unpack(pack(sets), own=True) == sets
    with pytest.raises(ValueError, match="more than 65536 keys and members of sets that are no"):
        unpack(pack(sets))
    assert len(unpack(pack(dict.fromkeys(map(str, range(100_000)))))) == 100_000


def test_keys_of_which_some_are_alike():
    """Powers of two have 61 hashes."""
    value = {2.0**power: -power for power in range(1000)}
    assert unpack(pack(value)) == value


def test_an_index_with_one_value_often():
    pandas = pytest.importorskip("pandas")
    index = pandas.Index([1, "a"] * 500, dtype=object)
    assert list(unpack(pack(index))) == list(index)


def test_bytes_are_for_one_value():
    """A value is as large as its bytes: a message could name them a million times."""
    with pytest.raises(ValueError, match="KeyError"):
        unpack(message([{"$": "bytes", "at": 0}] * 2, b"a"))


def test_a_column_is_as_long_as_its_index():
    """A number alone would become as many as the index says."""
    pytest.importorskip("pandas")
    for shape in ([], [1]):
        array = {"$": "array", "type": "|u1", "shape": shape, "at": 0}
        column = {"type": "array", "array": array}
        index = {"names": [None], "range": [0, 1 << 40, 1]}
        with pytest.raises(ValueError, match=r"."):
            unpack(message({"$": "series", "name": None, "index": index, "column": column}, b"a"))


def test_arrays_where_none_may_be():
    numpy = pytest.importorskip("numpy")
    with pytest.raises(NotData):
        pack(numpy.arange(3), arrays=False)
    with pytest.raises(ValueError, match="array"):
        unpack(pack(numpy.arange(3)), arrays=False)


def arrays():
    numpy = pytest.importorskip("numpy")
    return [
        numpy.arange(6, dtype="<i4").reshape(2, 3),
        numpy.arange(6, dtype=">f8").reshape(2, 3).T,
        numpy.zeros((0, 4)),
        numpy.array(3.5),
        numpy.array(["a", "bc"]),
        numpy.array(["2026-01-01", "NaT"], dtype="M8[D]"),
        numpy.array([True, False]),
        numpy.float32(0.5),
        numpy.datetime64("2026-01-01T00:00:00", "ns"),
        numpy.longdouble(1.5),
        numpy.clongdouble(1.5 + 2j),
        numpy.zeros((1,) * 32),
    ]


@pytest.mark.parametrize("number", range(12))
def test_arrays(number):
    numpy = pytest.importorskip("numpy")
    array = arrays()[number]
    back = unpack(pack({"it": array}))["it"]
    numpy.testing.assert_array_equal(back, array)
    if array.ndim:
        assert (back.dtype, back.shape, back.flags.writeable) == (array.dtype, array.shape, True)
    elif isinstance(array, numpy.generic) and isinstance(back, (numpy.generic, numpy.ndarray)):
        assert type(back) is type(array)


def test_arrays_of_many_dimensions():
    numpy = pytest.importorskip("numpy", minversion="2.0")
    shape = (1,) * 64
    assert unpack(pack(numpy.zeros(shape))).shape == shape


def test_masked_arrays():
    """Without their mask, what is masked would be data."""
    numpy = pytest.importorskip("numpy")
    with pytest.raises(NotData, match="value is a masked array: pass value.filled"):
        pack(numpy.ma.masked_equal([1, -999], -999))


def test_array_of_objects():
    numpy = pytest.importorskip("numpy")
    with pytest.raises(NotData, match="tolist"):
        pack(numpy.array([object()]))


@pytest.mark.parametrize(
    ("items", "dtype"),
    [
        (["a", "é\U0001f600", "", "\ud800"], object),
        (["a", None, 1, "b"], object),
        ([], object),
        (["a", None, "", "é"], "string"),
        ([None, None], "string"),
    ],
)
def test_columns_of_texts(items, dtype):
    pandas = pytest.importorskip("pandas")
    column = pandas.Series(items, dtype=dtype, index=[f"row {n}" for n in range(len(items))])
    back = unpack(pack(column))
    pandas.testing.assert_series_equal(back, column)
    assert [type(item) for item in back] == [type(item) for item in column]


def test_frames():
    pandas = pytest.importorskip("pandas")
    numpy = pytest.importorskip("numpy")
    frame = pandas.DataFrame(
        {
            "number": [1, 2, 3],
            "part": [0.5, numpy.nan, 2],
            "text": ["a", None, "c"],
            "time": pandas.to_datetime(["2026-01-01", None, "2026-01-03"]),
            "zoned": pandas.date_range("2026-01-01", periods=3, tz="Europe/Zurich"),
            "kind": pandas.Categorical(["x", "y", "x"], ordered=True),
            "whole": pandas.array([1, None, 3], dtype="Int64"),
            "both": pandas.Series([1, "a", (2,)], dtype=object),
            5: [True, False, True],
        },
        index=pandas.Index(["r", "s", "t"], name="row"),
    )
    for given in (frame, frame.T, frame.groupby("kind", observed=True)[["number"]].sum()):
        pandas.testing.assert_frame_equal(unpack(pack(given)), given)
    many = frame.set_index(["number", "text"])
    pandas.testing.assert_frame_equal(unpack(pack(many)), many)
    for name in frame:
        pandas.testing.assert_series_equal(unpack(pack(frame[name])), frame[name])
    pandas.testing.assert_index_equal(unpack(pack(frame.index)), frame.index)
    plain = pandas.DataFrame({"a": range(3)})
    pandas.testing.assert_frame_equal(unpack(pack([plain]))[0], plain)
    assert isinstance(unpack(pack(plain)).index, pandas.RangeIndex)


@pytest.mark.parametrize("zone", ["dateutil//etc/hostname", "../UTC", "/etc/hostname", "", 1])
def test_time_zones_that_are_files(zone):
    pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="time zone"):
        unpack(message({"$": "Timestamp", "text": "2026-01-01T00:00:00Z", "zone": zone}))


def test_periods_are_no_data():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(NotData, match=r"iloc\[:, 0\]"):
        pack(pandas.DataFrame({"a": pandas.period_range("2026-01", periods=2, freq="M")}))
