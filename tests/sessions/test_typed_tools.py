"""Tools with types, in each place: what code passes, what a function gets, what comes back."""

import dataclasses
import datetime
import enum
import sys
import typing
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from fastaudit_rs import Policy, Sandbox

try:
    # pydantic takes that of the standard library from Python 3.12 on.
    from typing_extensions import TypedDict
except ImportError:
    from typing import TypedDict


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


@dataclasses.dataclass
class Item:
    name: str
    price: float = 1.0
    size: Size = Size.SMALL


class Order(TypedDict):
    item: Item
    count: int


class Thing:
    """A class that says nothing of its data."""


def ran(session, code, **tools):
    """The value of a step that may call these tools."""
    result = session.run(code, tools=tools)
    assert result.error is None, result.error
    assert result.value_error is None
    return result.value


def raised(session, code, **tools):
    """The error of a step, as `kind: text`."""
    error = session.run(code, tools=tools).error
    return f"{error.kind}: {error.message}"


#: Expressions of a step, and what a tool gets.
PASSED = {
    "datetime.date(2026, 1, 2)": datetime.date(2026, 1, 2),
    "datetime.datetime(2026, 1, 2, 3, 4, 5, 6, fold=1)": datetime.datetime(
        2026, 1, 2, 3, 4, 5, 6, fold=1
    ),
    "datetime.datetime(2026, 7, 2, tzinfo=zoneinfo.ZoneInfo('Europe/Berlin'))": datetime.datetime(
        2026, 7, 2, tzinfo=ZoneInfo("Europe/Berlin")
    ),
    "datetime.datetime(2026, 7, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=-3)))": (
        datetime.datetime(2026, 7, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=-3)))
    ),
    "datetime.time(1, 2, 3, 4)": datetime.time(1, 2, 3, 4),
    "datetime.timedelta(-1, 5, 7)": datetime.timedelta(-1, 5, 7),
    "decimal.Decimal('1.10')": Decimal("1.10"),
    "uuid.UUID(int=5)": uuid.UUID(int=5),
    "pathlib.PurePosixPath('/a/b')": Path("/a/b"),
    "pathlib.Path('a')": Path("a"),
    "{1, 2}": {1, 2},
    "frozenset({1})": frozenset({1}),
    "1j": 1j,
    "{(1, datetime.date(2026, 1, 2)): [decimal.Decimal(1)]}": {
        (1, datetime.date(2026, 1, 2)): [Decimal(1)]
    },
    "bytearray(b'a')": b"a",
}

IMPORTS = "import datetime, decimal, pathlib, uuid, zoneinfo\n"


def test_values_arrive_as_they_are(session):
    got = []

    def echo(value, *, key=None):
        got.append((value, key))
        return value

    code = f"values = [{', '.join(PASSED)}]\n"
    code += "[echo(x) for x in values] == values and echo(1, key=values)"
    assert ran(session, IMPORTS + code, echo=echo) == 1
    for (value, _), wanted in zip(got, PASSED.values(), strict=False):
        assert value == wanted
        assert type(value) is type(wanted)
    zoned = got[2][0]
    assert zoned.utcoffset() == datetime.timedelta(hours=2)
    assert got[1][0].fold == 1
    assert got[-1] == (1, list(PASSED.values()))


def test_they_are_variables_and_values_of_steps_too(session):
    given = list(PASSED.values())
    result = session.run("x", variables={"x": given})
    assert result.value == given == session.get("x")
    assert list(map(type, result.value)) == list(map(type, given))


def test_arrays_frames_and_images(session):
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    images = pytest.importorskip("PIL.Image")
    picture = images.new("RGB", (3, 2), (1, 2, 3))

    def double(array: numpy.ndarray) -> numpy.ndarray:
        return 2 * array

    def total(frame: pandas.DataFrame) -> pandas.Series:
        return frame.sum()

    def draw():
        return picture

    def width(image: images.Image) -> int:
        assert type(image) is images.Image
        assert image.tobytes() == picture.tobytes()
        return image.width

    tools = {"double": double, "total": total, "draw": draw, "width": width}
    session.run("1", tools=tools)
    values = {"a": numpy.arange(3), "f": pandas.DataFrame({"x": [1, 2]})}
    result = session.run(
        "double(a).tolist(), total(f)['x'], width(draw()), draw().mode", variables=values
    )
    assert result.error is None, result.error
    assert result.value == ([0, 2, 4], 3, 3, "RGB")
    assert raised(session, "double([1])") == (
        "TypeError: tool 'double': array must be a numpy.ndarray, not a list"
    )


def test_frames_of_polars(place):
    polars = pytest.importorskip("polars")
    one = Policy(packages=["polars", "numpy"])
    if place == "sandbox":
        pytest.importorskip("sandlock")
        one = Sandbox()

    def double(frame: polars.DataFrame) -> polars.DataFrame:
        assert type(frame) is polars.DataFrame
        return frame.with_columns(polars.col("x") * 2)

    frame = polars.DataFrame({"x": [1, 2], "day": [datetime.date(2026, 1, 2), None]})
    given = {"variables": {"f": frame}, "tools": {"double": double}}
    code = "double(f)['x'].to_list(), double(frame=f).schema == f.schema"
    with one.session() as session:
        result = session.run(code, **given)
        assert result.error is None, result.error
        assert result.value == ([2, 4], True)
        assert session.run("double(f)").value.equals(double(frame), null_equal=True)
        assert raised(session, "double([1])") == (
            "TypeError: tool 'double': frame must be a polars.DataFrame, not a list"
        )
    if place == "sandbox":
        one.close()


def test_objects_of_the_host_become_data(session):
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):
        when: datetime.date
        inner: list["Size"]

    def all_of_them():
        item = Item("tea", 2.0, Size.LARGE)
        return [item, Size.LARGE, Model(when="2026-01-02", inner=["small"]), {"a": {Size.SMALL}}]

    assert ran(session, "all_of_them()", all_of_them=all_of_them) == [
        {"name": "tea", "price": 2.0, "size": "large"},
        "large",
        {"when": datetime.date(2026, 1, 2), "inner": ["small"]},
        {"a": {"small"}},
    ]
    assert session.run("x", variables={"x": Item("salt")}).value["name"] == "salt"


class Test:
    """What a function gets by its annotations."""

    def test_data_become_what_they_name(self, session):
        pytest.importorskip("pydantic")
        got = []

        def tell(
            item: Item,
            when: datetime.date,
            sizes: list[Size],
            price: Decimal | None = None,
            where: Path = Path(),
            *more: float,
            **rest: tuple[int, str],
        ) -> None:
            got.extend([item, when, sizes, price, where, more, rest])

        ran(
            session,
            "tell({'name': 'tea', 'size': 'large'}, '2026-01-02', ('small',), '1.5', 'a/b', 1, 2,"
            " x=[1, 'a'])",
            tell=tell,
        )
        assert got == [
            Item("tea", 1.0, Size.LARGE),
            datetime.date(2026, 1, 2),
            [Size.SMALL],
            Decimal("1.5"),
            Path("a/b"),
            (1.0, 2.0),
            {"x": (1, "a")},
        ]
        assert type(got[5][0]) is float

    def test_coroutine_functions_too(self, session):
        async def later(when: datetime.datetime, sizes: Sequence[Size]):
            return [when, sizes]

        code = "await later('2026-01-02T03:04:05Z', ['small'])"
        assert ran(session, code, later=later) == [
            datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc),
            ["small"],
        ]
        assert raised(session, "await later(1, [])") == (
            "TypeError: tool 'later': when must be a datetime, not an int"
        )

    @pytest.mark.parametrize(
        ("annotation", "given", "wanted"),
        [
            (int, "True", 1),
            (float, "2", 2.0),
            (Mapping[str, float], "{'a': 1}", {"a": 1.0}),
            (set[int], "[1, 1]", {1}),
            (tuple[int, ...], "[1, 2]", (1, 2)),
            (int | str, "'1'", "1"),
            (str | datetime.date, "datetime.date(2026, 1, 2)", datetime.date(2026, 1, 2)),
            (typing.Literal["a", 1], "1", 1),
            (Size | None, "'large'", Size.LARGE),
            (Size | None, "None", None),
            (datetime.timedelta, "90", datetime.timedelta(seconds=90)),
            (uuid.UUID, "str(uuid.UUID(int=5))", uuid.UUID(int=5)),
            (typing.Annotated[int, "how many"], "3", 3),
            (Order, "{'item': {'name': 'a'}, 'count': 2}", {"item": Item("a"), "count": 2}),
            (dict[str, list[Item]], "{'a': [{'name': 'b'}]}", {"a": [Item("b")]}),
            (typing.Any, "[1]", [1]),
        ],
        ids=str,
    )
    def test_each(self, session, annotation, given, wanted):
        pytest.importorskip("pydantic")
        got = []

        def take(value):
            got.append(value)

        take.__annotations__["value"] = annotation
        ran(session, f"{IMPORTS}take({given})", take=take)
        assert got == [wanted]
        assert type(got[0]) is type(wanted)

    @pytest.mark.parametrize(
        ("annotation", "given", "told"),
        [
            (int, "'1'", "TypeError: value must be an int, not a str"),
            (str, "None", "TypeError: value must be a str, not None"),
            (float, "10**400", "ValueError: value: int too large to convert to float"),
            (
                list[dict[str, int]],
                "[{'a': 1}, {'b': 'c'}]",
                "TypeError: value[1]['b'] must be an int, not a str",
            ),
            (int | str | None, "[]", "TypeError: value must be an int, a str or None, not a list"),
            (int | None, "'a'", "TypeError: value must be an int, not a str"),
            (Size, "'huge'", "ValueError: value must be one of 'small', 'large', not 'huge'"),
            (typing.Literal[1, "a"], "True", "ValueError: value must be one of 1, 'a', not True"),
            (tuple[int, int], "[1]", "ValueError: value must have 2 items, not 1"),
            (datetime.date, "'soon'", "ValueError: value: Invalid isoformat string: 'soon'"),
            (Decimal, "'1e99999'", "ValueError: value: a decimal has an exponent beyond 10000"),
            (
                Item,
                "{'name': 1, 'price': 'much'}",
                "ValueError: value.name: Input should be a valid string; value.price:"
                " Input should be a valid number, unable to parse string as a number",
            ),
            (list[Item], "[{}]", "ValueError: value[0].name: Field required"),
        ],
        ids=str,
    )
    def test_wrong_data_are_told(self, session, annotation, given, told):
        pytest.importorskip("pydantic")

        def take(value):
            raise AssertionError("it is not called")

        take.__annotations__["value"] = annotation
        wanted = told.replace("Error: ", "Error: tool 'take': ", 1)
        assert raised(session, f"take({given})", take=take) == wanted

    def test_large_data_are_refused_in_a_moment(self, session):
        """What would take long, or memory, before it is told of."""
        pydantic = pytest.importorskip("pydantic")

        class Basket(pydantic.BaseModel):
            counts: list[int]

        def take(price: Decimal = Decimal(), size: Size = Size.SMALL, basket: Basket = None):
            raise AssertionError("it is not called")

        session.run("1", tools={"take": take})
        for code, told in {
            "take(1 << 8_000_000)": "price: a decimal has more than 10000 digits",
            "take(size=1 << 8_000_000)": "size must be one of 'small', 'large', not an int",
            "take(size='x' * 9_000_000)": f"size must be one of 'small', 'large', not '{'x' * 50}'",
            "take(basket={'counts': ['a'] * 200_000})": "basket: 200000 errors",
        }.items():
            assert raised(session, code) == f"ValueError: tool 'take': {told}"

    def test_keys_with_long_numbers(self, session):
        def take(counts: dict[int, int]) -> int:
            return len(counts)

        assert ran(session, "take({10 ** 5000: 1})", take=take) == 1
        assert raised(session, "take({10 ** 5000: 'a'})") == (
            "TypeError: tool 'take': counts[an int] must be an int, not a str"
        )

    def test_a_default_may_be_given(self, session):
        def take(when: datetime.date = None, count: int = 2) -> list:  # noqa: RUF013
            return [when, count]

        assert ran(session, "take(None), take('2026-01-02')", take=take) == (
            [None, 2],
            [datetime.date(2026, 1, 2), 2],
        )

    def test_text_annotations_are_read_where_the_function_is(self, session):
        class Near(enum.Enum):
            A = 1

        def take(size: "Size", near: "list[Near]") -> "Missing":  # noqa: F821
            return [size is Size.LARGE, near == [Near.A], Near is not None]

        assert ran(session, "take('large', [1])", take=take) == [True, True, True]

    def test_methods_partials_and_objects(self, session):
        import functools

        class Shop:
            def price(self, size: Size) -> str:
                return size.name

            def __call__(self, when: datetime.date) -> int:
                return when.year

        def price(factor: int, size: Size) -> str:
            return size.name * factor

        code = "price('large'), twice('small'), year('2026-01-02')"
        tools = {"price": Shop().price, "twice": functools.partial(price, 2), "year": Shop()}
        assert ran(session, code, **tools) == ("LARGE", "SMALLSMALL", 2026)


class TestUnknown:
    """Annotations that say nothing of data are told of when the session is made."""

    def test_a_class(self, make):
        def take(thing: Thing):
            pass

        with pytest.raises(
            TypeError,
            match="tool 'take': thing is annotated with Thing, which code cannot pass: annotate it",
        ):
            make(tools={"take": take})

    def test_a_name_that_is_not_there(self, make):
        def take(thing: "Nowhere"):  # noqa: F821
            pass

        with pytest.raises(TypeError, match="thing is annotated with Nowhere.*not known"):
            make(tools={"take": take})

    def test_one_that_need_not_be_given(self, session):
        def take(name: str, thing: Thing | None = None, *things: Thing):
            return name

        assert ran(session, "take('a')", take=take) == "a"
        assert raised(session, "take('a', thing=None)") == (
            "TypeError: tool 'take': thing cannot be given: it is annotated with Thing | None"
        )

    def test_pydantic_is_not_there(self, make, monkeypatch):
        import sys

        monkeypatch.setitem(sys.modules, "pydantic", None)

        def take(item: Item, size: Size):
            pass

        with pytest.raises(
            TypeError, match="tool 'take': item is annotated with Item, .*: pip install pydantic"
        ):
            make(tools={"take": take})
        del take.__annotations__["item"]
        make(tools={"take": take})

    @pytest.mark.parametrize("kind", ["plain", "async", "method"])
    def test_generators(self, make, kind):
        def plain():
            yield 1

        async def later():
            yield 1

        class Made:
            def __call__(self):
                yield 1

        one = {"plain": plain, "async": later, "method": Made()}[kind]
        with pytest.raises(TypeError, match=r"tools\['take'\]: .*return a list"):
            make(tools={"take": one})


class TestGuests:
    """Objects of classes that code makes."""

    @pytest.mark.parametrize(
        ("made", "told"),
        [
            ("class A: pass\nx = A()", "which cannot be passed by value: pass data, dates"),
            ("import enum\nclass A(enum.Enum):\n    B = 1\nx = A.B", "pass value.value"),
            (
                "import dataclasses\n@dataclasses.dataclass\nclass A: pass\nx = A()",
                r"pass dataclasses.asdict\(value\)",
            ),
            ("x = range(3)", r"pass list\(value\)"),
            ("x = open", "value is an object of builtin_function_or_method"),
        ],
    )
    def test_are_refused(self, session, made, told):
        import re

        def take(value):
            raise AssertionError("it is not called")

        found = raised(session, f"{made}\ntake(value=x)", take=take)
        assert found.startswith("TypeError: tool 'take': value is an object of ")
        assert re.search(told, found)
        found = raised(session, "take([{'a': x}])")
        assert "value[0]['a'] is an object of" in found

    def test_subclasses_that_lie_become_their_base(self, session):
        got = []

        def take(*values):
            got.extend(values)

        code = """
import datetime, decimal, pathlib, uuid
def lie(*args, **kwargs):
    raise SystemError("not to be called")
class Text(str):
    __str__ = __eq__ = __hash__ = __len__ = lie
class Day(datetime.date):
    isoformat = __str__ = __reduce__ = lie
    year = month = property(lie)
class Moment(datetime.datetime):
    isoformat = __str__ = lie
    year = tzinfo = property(lie)
class Number(decimal.Decimal):
    __str__ = as_tuple = lie
class Id(uuid.UUID):
    __str__ = lie
    hex = property(lie)
class Key(int):
    __hash__ = lambda self: 1
take({Text("a")} if 0 else [Text("a")], Day(2026, 1, 2), Moment(2026, 1, 2), Number("1.5"),
     Id(int=5), {Key(n): 1 for n in range(3)})
"""
        ran(session, code, take=take)
        wanted = [
            ["a"],
            datetime.date(2026, 1, 2),
            datetime.datetime(2026, 1, 2),
            Decimal("1.5"),
            uuid.UUID(int=5),
            {0: 1, 1: 1, 2: 1},
        ]
        assert got == wanted
        assert list(map(type, got)) == list(map(type, wanted))
        assert type(got[0][0]) is str

    @pytest.mark.parametrize(
        "made",
        [
            "decimal.Decimal('1e999999')",
            "decimal.Decimal('0e-999999')",
            "decimal.Decimal('1' * 20000)",
            "datetime.datetime(2026, 1, 1, tzinfo=Zone())",
            "evil_path",
            "evil_id",
        ],
    )
    def test_odd_objects_are_refused(self, session, made):
        def take(value):
            raise AssertionError("it is not called")

        code = f"""{IMPORTS}
class Zone(datetime.tzinfo):
    key = "../../etc/passwd"
    def utcoffset(self, when):
        return None
class EvilPath(pathlib.PurePosixPath):
    def __str__(self):
        return 1
evil_path = EvilPath("a")
evil_path._str = evil_path
evil_id = uuid.UUID(int=5)
object.__setattr__(evil_id, "int", -5)
take(value={made})
"""
        result = session.run(code, tools={"take": take})
        if made == "evil_path" and result.error.kind == "AssertionError":
            pytest.fail("a path that is none")
        assert result.error.kind in ("TypeError", "ValueError"), result.error

    def test_a_zone_by_a_name_opens_no_other_file(self, session):
        got = []

        def take(value):
            got.append(value)

        code = f"""{IMPORTS}
class Zone(datetime.tzinfo):
    key = "../../../etc/passwd"
    def utcoffset(self, when):
        return datetime.timedelta(hours=1)
take(datetime.datetime(2026, 1, 1, tzinfo=Zone()))
"""
        ran(session, code, take=take)
        assert got[0].tzinfo == datetime.timezone(datetime.timedelta(hours=1))

    def test_code_that_replaces_what_reads_json(self, make, place, monkeypatch):
        if place != "here":
            pytest.skip("its process is not that of the host")
        import json

        monkeypatch.setattr(json, "loads", json.loads)
        got = []
        session = make(tools={"take": got.append})
        code = """
import json
class Evil(str): pass
class Key(str): pass
loads = json.loads
for form in (Evil("a"), [Evil("a")], {Key("a"): 1}, {"$": "tuple", "items": [Evil("a")]}):
    json.loads = lambda text: {"value": [[form], {"$": "dict", "keys": [], "items": []}],
                               "lengths": []}
    try:
        take({1})
    except ValueError:
        pass
json.loads = loads
"""
        ran(session, code)
        assert got == []

    def test_cycles_and_depth(self, session):
        def take(value):
            raise AssertionError("it is not called")

        code = "a = [{1}]\na.append(a)\ntake(a)"
        assert session.run(code, tools={"take": take}).error.kind in ("TypeError", "ValueError")


class TestSchemas:
    def test_a_tool_has_one(self):
        pytest.importorskip("pydantic")

        @Policy().tool
        def buy(item: Item, count: int = 1, note: str | None = None, *, when: datetime.date):
            """Buy something."""

        schema = buy.schema
        assert schema["name"] == "buy"
        assert schema["description"] == "Buy something."
        parameters = schema["parameters"]
        assert parameters["required"] == ["item", "when"]
        assert parameters["properties"]["count"] == {"type": "integer", "default": 1}
        assert parameters["properties"]["when"] == {"type": "string", "format": "date"}
        assert parameters["properties"]["item"]["properties"]["price"]["type"] == "number"
        assert parameters["properties"]["item"]["properties"]["size"]["$ref"] == "#/$defs/Size"
        assert parameters["$defs"]["Size"]["enum"] == ["small", "large"]
        buy.schema["parameters"].clear()
        assert buy.schema == schema

    def test_classes_of_one_name(self):
        pydantic = pytest.importorskip("pydantic")

        def made(kind):
            class Part(pydantic.BaseModel):
                value: kind
                parts: "list[Part]" = []  # noqa: RUF012

            return Part

        one, other = made(int), made(str)

        @Policy().tool
        def both(one: list[one], again: one | None, other: list[other]):
            pass

        parameters = both.schema["parameters"]
        kinds = {
            name: part["properties"]["value"]["type"] for name, part in parameters["$defs"].items()
        }
        assert kinds == {"Part": "integer", "Part2": "string"}
        assert parameters["properties"]["other"]["items"]["$ref"] == "#/$defs/Part2"
        assert "Part2" in str(parameters["$defs"]["Part2"])
        assert "Part2" not in str(parameters["$defs"]["Part"])

    def test_code_reads_it(self, session):
        def price(size: Size) -> float:
            """The price."""
            return 1.0

        assert ran(session, "price.schema", price=price) == {
            "name": "price",
            "description": "The price.",
            "parameters": {
                "type": "object",
                "properties": {"size": {"enum": ["small", "large"]}},
                "required": ["size"],
            },
        }
        code = "import inspect\nstr(inspect.signature(price)).replace(\"'\", '')"
        assert ran(session, code) in ("(size: Size) -> float", f"(size: {__name__}.Size) -> float")


class ShopError(Exception):
    pass


def test_an_error_of_a_tool_is_told_alike(session):
    def fail(text):
        raise ShopError(text)

    code = """
def told(*args):
    try:
        fail(*args)
    except Exception as error:
        return type(error).__name__, error.kind, error.tool, str(error)
told("no tea"), told("")
"""
    kind = f"{__name__}.ShopError"
    assert ran(session, code, fail=fail) == (
        ("ToolError", kind, "fail", "ShopError: no tea"),
        ("ToolError", kind, "fail", "ShopError"),
    )


def test_the_number_of_calls_of_a_step(make):
    async def later():
        return 1

    session = make(tools={"add": lambda a: a + 1, "later": later}, tool_calls=3)
    assert raised(session, "for n in range(4):\n    add(n)") == (
        "RuntimeError: more than 3 calls of tools in a step"
    )
    assert ran(session, "add(1) + add(2) + await later()") == 6
    assert "more than 3" in raised(session, "for n in range(4):\n    await later()")
    with pytest.raises(ValueError, match="tool_calls must be positive"):
        make(tool_calls=0)


@pytest.mark.parametrize("side", ["events", "callee"])
def test_how_calls_are_watched(side):
    orjson = pytest.importorskip("orjson")
    if side == "events" and sys.version_info < (3, 12):
        pytest.skip("no sys.monitoring before 3.12")
    with Policy(native=["numpy"]).session(calls=side) as session:
        session.run("import orjson")
        assert "orjson.dumps" in raised(session, "orjson.dumps(1)")
    assert orjson.dumps(1) == b"1"


def test_too_much(session):
    numpy = pytest.importorskip("numpy")

    def make_much():
        return numpy.zeros(3 << 20)

    def take(value):
        raise AssertionError("it is not called")

    assert raised(session, "make_much()", make_much=make_much, take=take) == (
        "ValueError: tool 'make_much': its result is too large: 24.0 MB or more, of at most 16 MB"
    )
    result = session.run("take(x)", variables={"x": numpy.zeros(3 << 20)})
    told = "tool 'take': value is too large: 24.0 MB or more, of at most 16 MB"
    assert result.error.message == told
    told = r"variables\['x'\] is too large: 80.0 MB or more, of at most 64 MB"
    with pytest.raises(ValueError, match=told):
        session.run("1", variables={"x": numpy.zeros(10 << 20)})
