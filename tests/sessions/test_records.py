"""Records of sessions: what lasts of one, in each place, and in another process."""

import os
import stat
import textwrap
import time

import pytest
from programs import printed
from steps import value

from fastaudit_rs import DirectoryStore, Policy
from fastaudit_rs.sessions.record import MAGIC, SessionRecord
from fastaudit_rs.sessions.values import pack

#: Steps, and those that use what they have made, with their values.
MADE = """
import math, xml.dom as dom
import os.path
from collections import OrderedDict as Ordered, Counter
limit, basket, word = 10, {"tea": [1, 2.5], (1, 2): {3}}, b"w"
"""
DEFINED = '''
import functools
# Comments and text in lines of their own stay.
@functools.lru_cache
def twice(n: int = limit) -> int:
    """Twice."""
    text = """
  two
"""
    return 2 * n  # here

class Base:
    size = limit
    def grow(self): return self.size + twice(1)

async def later(): return "later"

if True:
    def nested(): return 1
    class Odd(Base): pass
'''
USES = {
    "limit, basket, word": (10, {"tea": [1, 2.5], (1, 2): {3}}, b"w"),
    "math.pi > 3, dom.Node.TEXT_NODE, os.path.basename('a/b')": (True, 3, "b"),
    "Ordered(a=1)['a'], Counter('aab')['a']": (1, 2),
    "twice(), twice.__doc__, Odd().grow(), nested()": (20, "Twice.", 12, 1),
    "await later()": "later",
}


@pytest.fixture
def store(tmp_path):
    return DirectoryStore(tmp_path / "store")


def test_names_last(make, store):
    with make(id="anna") as session:
        value(session, MADE)
        value(session, DEFINED)
        record = session.save(store)
        assert record.lost == {}
        assert set(record.names) == set(session.names)
    assert list(store) == ["anna"]
    session = make(id="anna")
    value(session, "other = 1")
    assert set(session.load(store).names) == set(record.names)
    assert "other" not in session.names
    for code, expected in USES.items():
        assert value(session, code) == expected, code
    # It can be saved again.
    again = session.save(store)
    assert (set(again.names), again.lost) == (set(record.names), {})
    assert value(make(id="anna"), "1") == 1


def test_a_record_is_that_of_both_places(tmp_path, directory, store):
    pytest.importorskip("sandlock")
    from fastaudit_rs import Sandbox

    with Sandbox() as sandbox:
        here = Policy(write=[str(directory)]).session(directory=directory)
        there = sandbox.session()
        for source, target in ((here, there), (there, here)):
            value(source, MADE)
            value(source, DEFINED)
            source.save(tmp_path / "record")
            source.reset()
            target.load(str(tmp_path / "record"))
            for code, expected in USES.items():
                assert value(target, code) == expected, code
            target.reset()
        here.close()


def test_arrays_and_frames(make, store):
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    session = make(id="a")
    value(session, "import numpy as np, pandas as pd\na = np.arange(3)\nf = pd.DataFrame({'x': a})")
    session.save(store)
    session.load(store)
    assert numpy.array_equal(session.get("a"), numpy.arange(3))
    pandas.testing.assert_frame_equal(session.get("f"), pandas.DataFrame({"x": [0, 1, 2]}))
    assert value(session, "float(np.mean(f.x))") == 1


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ("collections.Counter('aab')", "an instance of collections.Counter"),
        ("[collections.defaultdict(list)]", "x[0] is an instance of collections.defaultdict"),
        ("Point(1, 2)", "an instance of Point"),
        ("Color.RED", "an instance of Color"),
        ("Name('a')", "an instance of Name"),
        (
            "numpy.ma.masked_equal([1, -999], -999)",
            "a masked array: pass x.filled(…), or x.tolist()",
        ),
        ("numpy.float64(1.5)", None),
    ],
)
def test_subclasses_of_plain_classes(make, store, made, reason):
    """They would come back as another class, and not do what they did."""
    pytest.importorskip("numpy")
    define = """
import collections, enum, numpy
Point = collections.namedtuple("Point", "x y")
class Color(enum.IntEnum): RED = 1
class Name(str): pass
"""
    with make() as session:
        session.run(f"{define}x = {made}")
        assert session.save(store).lost.get("x") == reason


def test_what_is_lost_is_told(make, store):
    tools = {"price": lambda item: 3.5}
    session = make(id="a", tools=tools)
    code = """
    class Point: pass
    point, shown = Point(), [Point()]
    square = lambda n: n * n
    def outer():
        def inner(): pass
        return inner
    inner = outer()
    numbers = (n for n in [1])
    file = open("file", "w")
    cheap = price
    kept = 1
    price = 3
    """
    value(session, textwrap.dedent(code))
    record = session.save(store)
    assert set(record.names) == {"Point", "outer", "kept"}
    assert record.lost["square"] == "a lambda" and record.lost["file"] == "a file"
    assert record.lost["point"] == "an object of Point"
    assert record.lost["shown"] == "shown[0] is an object of Point"
    assert record.lost["inner"] == "a function that no statement of a step made"
    assert record.lost.keys() - record.lost == set()
    assert {"numbers", "cheap"} < record.lost.keys()
    assert session.load(store) == record
    ran = session.run("price('tea')")
    assert (ran.value, ran.restarted, ran.lost) == (3.5, "restored", record.lost)
    told = ran.for_model()
    assert told.startswith("session:\nThe session was restored") and "square (a lambda)" in told
    assert ran.to_dict()["lost"] == record.lost
    after = session.run("1")
    assert (after.restarted, after.for_model()) == (None, "value:\n1")


def test_only_what_a_name_still_holds(make, store):
    session = make(id="a")
    value(session, "def f(): return 1\nimport math as m\nclass A: pass\ndef g(): return 1")
    value(session, "f = 3\nm = 4\nA = 'A'\ndel g")
    value(
        session,
        "def h(): return 1\nimport os\nfrom textwrap import *\nshort, there = dedent, os.path",
    )
    session.run("1 / 0\ndef h(): return 2")
    value(session, "from math import pi, floor\npi += 1\nfloor = abs\ndef k(): return 0")
    value(session, "def k(): return 1\ndef k(): return 2\nraised = k")
    session.save(store)
    session.load(store)
    assert value(session, "f, m, A, h(), pi > 4, floor(-1), k()") == (3, 4, "A", 1, True, 1, 2)
    assert "g" not in session.names
    assert value(session, "short(' a'), fill('b'), there.basename('c/d')") == ("a", "b", "d")


def test_going_back(make, store):
    """The source is that of the state that it went back to."""
    session = make(id="a")
    value(session, "def f(): return 1")
    kept = session.snapshot()
    value(session, "def f(): return 2")
    session.undo()
    assert session.save(store).lost == {}
    value(session, "def f(): return 3")
    session.restore(kept)
    value(session, "x = 1")
    assert session.save(store) == SessionRecord(["x", "f"])
    session.load(store)
    assert value(session, "f()") == 1


def test_definitions_that_need_one_another(make, store):
    session = make(id="a")
    value(session, "def base(): return 1\ndef user(n=base()): return n\nclass A: pass\n")
    value(session, "class B(A): pass\n")
    value(session, "def base(): return 2\nclass A: x = 1")
    value(session, "from __future__ import annotations\ndef late(a: Missing) -> Missing: return 5")
    session.save(store)
    assert session.load(store).lost == {}
    assert value(session, "base(), B().x, late(1)") == (2, 1, 5)


def test_lines_of_tracebacks(make, store):
    session = make(id="a")
    value(session, "def f():\n    return 1 / 0")
    session.save(store)
    session.load(store)
    error = session.run("f()").error
    assert "return 1 / 0" in error.traceback and "fastaudit_rs" not in error.traceback


def test_another_process(make, place, tmp_path, directory):
    """One process saves, another one loads."""
    code = f"""
from fastaudit_rs import Policy, Sandbox, DirectoryStore
import contextlib
with contextlib.ExitStack() as stack:
    if {place!r} == "here":
        one = Policy(write=[{str(directory)!r}])
    else:
        one = stack.enter_context(Sandbox())
    session = stack.enter_context(one.session(id="../anna"))
    ran = session.run({MADE + DEFINED!r})
    print(ran.success, session.save(DirectoryStore({str(tmp_path / "store")!r})).lost)
"""
    assert printed(code).strip() == "True {}"
    store = DirectoryStore(tmp_path / "store")
    assert list(store) == ["../anna"]
    session = make(id="../anna")
    session.load(store)
    for code, expected in USES.items():
        assert value(session, code) == expected, code


def test_ids(make, store):
    first, second = make(), make()
    assert first.id != second.id
    assert all(one.isalnum() and len(one) < 30 for one in (first.id, second.id))
    with pytest.raises(TypeError, match="id must be a str, not int"):
        make(id=1)
    with pytest.raises(ValueError, match="id must not be empty"):
        make(id="")
    with pytest.raises(KeyError, match="the store has no record of the id 'x'"):
        make(id="x").load(store)


def test_a_session_that_cannot(make, store):
    session = make(id="a")
    value(session, "x = 1")
    for to in (3, None, b"file"):
        with pytest.raises(TypeError, match="to must be a path or a mutable mapping"):
            session.save(to)
    with pytest.raises(FileNotFoundError) as raised:
        session.save(store._directory + "/missing/file")
    assert raised.value.filename == store._directory + "/missing/file"
    with pytest.raises(FileNotFoundError):
        session.load(store._directory + "/missing")
    assert session.get("x") == 1
    session.close()
    for method in (session.save, session.load):
        with pytest.raises((RuntimeError, KeyError)):
            method(store)


# Records that somebody has made up.

NESTED = 0
for _ in range(200):
    NESTED = [NESTED]


def made(**parts):
    return MAGIC + pack({"sources": [], "values": {}, "lost": {}, **parts}, arrays=False)


WRONG = {
    "another file": b"hello",
    "nothing": b"",
    "the head alone": MAGIC,
    "cut off": made(values={"x": pack(list(range(99)))})[:-9],
    "no mapping": MAGIC + pack([1], arrays=False),
    "other parts": MAGIC + pack({"sources": []}, arrays=False),
    "more parts": made(code="1"),
    "a dunder": made(values={"__builtins__": pack(1)}),
    "a dunder by a statement": made(sources=[["__builtins__", "__builtins__ = 1"]]),
    "no identifier": made(values={"a b": pack(1)}),
    "a keyword": made(sources=[["for", "def f(): pass"]]),
    "a long name": made(values={"a" * 1000: pack(1)}),
    "a value that is not packed": made(values={"x": 1}),
    "a statement that is none": made(sources=[["x", 1]]),
    "a statement without a name": made(sources=["def f(): pass"]),
    "reasons": made(lost={"x": 1}),
    "a long reason": made(lost={"x": "a" * 10_000}),
    "lengths": MAGIC + b"\0" * 7 + b"\x10" + b'{"lengths":[9]} ',
    "a text": MAGIC.decode(),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_record(session, name):
    value(session, "x = 1")
    with pytest.raises(ValueError, match="the record of the id .*(is no record|must have bytes)"):
        session.load({session.id: WRONG[name]})
    assert session.get("x") == 1


HOSTILE = {
    "not the one that it says": [["x", "def y(): pass"]],
    "no definition": [["x", "x = open('/etc/passwd')"]],
    "more than one": [["x", "def x(): pass\nopen('/srv/hostile', 'w')"]],
    "an import of several": [["x", "import x, os"]],
    "all names of a module": [["x", "from math import *"]],
    "what is denied": [["x", "@(lambda f: open('/srv/hostile', 'w'))\ndef x(): pass"]],
    "an exit": [["x", "class x: raise SystemExit(3)"]],
    "an interrupt": [["x", "class x: raise KeyboardInterrupt"]],
    "a package that is not there": [["x", "import no_such_package as x"]],
    "no code": [["x", "def x(:"]],
    "null": [["x", "def x(): '\0'"]],
    "deep": [["x", "def x(): return " + "(" * 5000]],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_record(make, name):
    """Its statements run in the session, one by one, or are lost."""
    session = make(tools={"price": lambda item: 3.5})
    values = {"z": pack(1), "broken": b"1234", "price": pack(0)}
    record = session.load({session.id: made(sources=HOSTILE[name], values=values)})
    assert record.lost.keys() == {"x", "broken", "price"}
    assert record.names == ["z"]
    assert value(session, "z, price('tea')") == (1, 3.5)
    assert not os.path.exists("/srv/hostile")


def test_a_definition_replaces_nothing_of_the_session(make):
    source = "def f(a=[globals().update(price=0, __name__='x', z=2, display=1)]): return 1"
    session = make(tools={"price": lambda item: 3.5})
    record = session.load({session.id: made(sources=[["f", source]], values={"z": pack(1)})})
    assert record.lost == dict.fromkeys(("display", "price"), "the session has it")
    code = "price('tea'), z, __name__, callable(display)"
    assert value(session, code) == (3.5, 1, session.run("__name__").value, True)


def test_a_definition_may_call_a_tool(make):
    """As it did when it was made."""
    calls = []

    def register(name: str) -> int:
        calls.append(name)
        return len(calls)

    session, store = make(tools={"register": register}), {}
    value(session, "def f(n=register('f')): return n")
    session.save(store)
    other = make(tools={"register": register})
    store[other.id] = store[session.id]
    assert other.load(store).lost == {}
    assert (value(other, "f()"), calls) == (2, ["f", "f"])


def test_a_record_that_takes_too_long(make, place, monkeypatch):
    source = "class f:\n    while True: pass"
    session = make(timeout=0.5)
    if place == "here":
        monkeypatch.setattr("fastaudit_rs.sessions.here.BETWEEN", 0.5)
    begun = time.monotonic()
    record = session.load({session.id: made(sources=[["f", source]], values={"x": pack(1)})})
    assert record.lost == {"f": "KeyboardInterrupt: "} and record.names == ["x"]
    assert time.monotonic() - begun < 20
    assert value(session, "x") == 1


def test_a_guest_that_makes_its_record_up(make, place):
    """Code that has got around its guard says anything: the host has data, or an error."""
    session = make()
    value(session, "x = 1")
    hack = """
import sys
for name in list(sys.modules):
    if name.endswith("sessions.kept"):
        sys.modules[name].record = lambda *_: %r
"""
    if place == "here":
        pytest.skip("hostile code in this process can do all that the host can")
    for data in (MAGIC, MAGIC + b"12345678", made(code="1"), made(lost={"a b": "x"})):
        session.run(hack % data.removeprefix(MAGIC))
        with pytest.raises((RuntimeError, TypeError)):
            session.save({})


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "SystemExit", "RecursionError"])
def test_objects_that_raise(make, raised):
    """They are lost, and the host is not ended by them."""
    pytest.importorskip("numpy")
    session, store = make(), {}
    code = f"""
        import numpy
        class Hostile:
            @property
            def __class__(self): raise {raised}
            def __getattr__(self, name): raise {raised}
            __eq__ = __hash__ = __call__ = __iter__ = __class__.fget
        hostile, x = Hostile(), 1
        class Name(str):
            __eq__ = lambda *_: True
            __hash__ = str.__hash__
        globals()[Name("odd")] = 2
        """
    assert session.run(textwrap.dedent(code)).error is None
    record = session.save(store)
    assert "x" in record.names and "hostile" in record.lost
    with pytest.raises((TypeError, RuntimeError)):
        session.get("hostile")
    session.load(store)
    assert session.get("x") == 1


def test_too_large(make):
    session = make()
    value(session, "a = bytes(40 << 20)\nb = bytes(40 << 20)\nc = 1")
    store = {}
    record = session.save(store)
    assert record.names == ["a", "c"]
    assert record.lost["b"] == "too large: 40.0 MB or more, of at most 64 MB in all"


class TestDirectoryStore:
    IDS = ("a", "A", "..", ".", "../x", "a/b", "ä€😀", "a b", "%41", "a\n", "x.session", "-", "~")

    def test_ids_are_names_of_files(self, tmp_path):
        store = DirectoryStore(tmp_path / "store")
        for number, id in enumerate(self.IDS):
            store[id] = str(number).encode()
        assert sorted(store) == sorted(self.IDS) and len(store) == len(self.IDS)
        assert [store[id] for id in self.IDS] == [b"%d" % n for n in range(len(self.IDS))]
        assert os.listdir(tmp_path) == ["store"]
        files = list((tmp_path / "store").iterdir())
        assert len({file.name.lower() for file in files}) == len(self.IDS)
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700
        del store["../x"]
        assert "../x" not in store
        for act in (store.__getitem__, store.__delitem__):
            with pytest.raises(KeyError):
                act("../x")

    def test_other_files_are_none_of_it(self, tmp_path):
        store = DirectoryStore(tmp_path)
        store["a"] = b"1"
        for name in ("b", "B.session", "%zz.session", "%ff.session", ".x.tmp", "c d.session"):
            (tmp_path / name).write_bytes(b"x")
        assert list(store) == ["a"]

    def test_what_cannot_be(self, tmp_path):
        store = DirectoryStore(tmp_path)
        with pytest.raises(ValueError, match="too long for the name of a file"):
            store["a" * 300] = b""
        with pytest.raises(ValueError, match="must not be empty"):
            store[""] = b""
        with pytest.raises(TypeError, match="an id must be a str, not int"):
            store[1] = b""
        with pytest.raises(UnicodeEncodeError):
            store["\ud800"] = b""
        os.mkfifo(tmp_path / "pipe.session")
        with pytest.raises(OSError, match="no regular file"):
            store["pipe"]
        assert [one for one in os.listdir(tmp_path) if one.endswith(".tmp")] == []

    def test_a_failure_leaves_the_old_one(self, tmp_path):
        store = DirectoryStore(tmp_path)
        store["a"] = b"1"
        with pytest.raises(TypeError):
            store["a"] = "text"
        assert store["a"] == b"1" and os.listdir(tmp_path) == ["a.session"]


def test_any_mapping_is_a_store(session):
    store = {}
    value(session, "x = 1")
    session.save(store)
    assert type(store[session.id]) is bytes
    session.load(store)
    assert session.get("x") == 1
