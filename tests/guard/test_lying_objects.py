"""Objects that answer differently each time they are asked for a path or a number."""

import collections
import io
import itertools
import os
import shutil
import sqlite3
from pathlib import Path, PosixPath

import pytest

from fastaudit_rs import AuditDenied, Policy

OPENERS = {
    "open": lambda given: open(given, "w"),
    "open, unbuffered": lambda given: open(given, "wb", 0),
    "open, an opener": lambda given: open(given, "w", opener=os.open),
    "io.FileIO": lambda given: io.FileIO(given, "w"),
    "io.FileIO, to append": lambda given: io.FileIO(given, "a"),
    "os.open": lambda given: os.open(given, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    "os.truncate": lambda given: os.truncate(given, 0),
    "os.chmod": lambda given: os.chmod(given, 0o600),
    "os.chown": lambda given: os.chown(given, 1, 1),
    "os.utime": os.utime,
    "os.remove": os.remove,
    "os.rename": lambda given: os.rename(given, given),
    "shutil.copyfile": lambda given: shutil.copyfile(os.devnull, given),
    "sqlite3.connect": lambda given: sqlite3.connect(given).execute("create table made(x)"),
}


def in_turn(*answers):
    answers = itertools.cycle(answers)

    def answer(self, *args):
        given = next(answers)
        if isinstance(given, type):
            raise given
        return given

    return answer


NUMBERS = {
    "none": {},
    "no index": {"__index__": in_turn(TypeError)},
    "a negative index": {"__index__": in_turn(-5)},
    "a huge index": {"__index__": in_turn(1 << 70)},
    "an index that is text": {"__index__": in_turn("text")},
    "a float": {"__float__": in_turn(0.0)},
    "no float": {"__float__": in_turn(TypeError)},
    "an int": {"__int__": in_turn(0)},
    "a complex": {"__complex__": in_turn(0j)},
    "a descriptor": {"fileno": in_turn(0)},
}


@pytest.fixture(params=["mk_audit", "Policy"])
def guard(request, mk_audit, places):
    if request.param == "Policy":
        return Policy(write=[places.ok]).guard()()
    return mk_audit([places.ok])()


def seen(places):
    found = {}
    for name in os.listdir(places.out):
        path = os.path.join(places.out, name)
        status = os.stat(path)
        found[name] = (status.st_mode, status.st_mtime_ns, status.st_uid, Path(path).read_bytes())
    return found


def stays(places, guard, function, *args):
    """Does it under the guard, and sees that nothing outside changed."""
    Path(places.ok, "file").touch()
    Path(places.out, "theirs").write_text("theirs")
    before = seen(places)
    with guard:
        try:
            result = function(*args)
        except Exception as error:
            result = error
    del result
    assert seen(places) == before


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("opener", OPENERS)
def test_a_path_like_that_may_be_a_number(places, guard, opener, numbers):
    ours, theirs = places.ok + "/file", places.out + "/theirs"
    for answers in ((theirs, ours), (ours, theirs), (theirs,), (ours, ours, theirs)):
        made = type("Made", (), {"__fspath__": in_turn(*answers), **NUMBERS[numbers]})
        stays(places, guard, OPENERS[opener], made())


@pytest.mark.parametrize("opener", OPENERS)
def test_an_int_or_text_of_a_subclass(places, guard, opener):
    theirs = places.out + "/theirs"
    other = {
        "__fspath__": in_turn(theirs),
        "__str__": in_turn(theirs),
        "__index__": in_turn(1 << 20),
    }
    text = type("Text", (str,), other)
    number = type("Number", (int,), other)
    for made in (text(places.ok + "/file"), number(-1), number(1 << 40)):
        stays(places, guard, OPENERS[opener], made)


def alternating(places, **names):
    ours, theirs = places.ok + "/file", places.out + "/made"
    answer = in_turn(*(ours, theirs) * 2)
    made = {name: kind(answer) for name, kind in names.items()}
    return type("Made", (PosixPath,), made)(ours)


def by_attribute(answer):
    def get(self, name):
        return answer(self) if name == "_str" else object.__getattribute__(self, name)

    return get


def dropping(answer):
    def set_attribute(self, name, value):
        if name != "_str":
            object.__setattr__(self, name, value)

    return set_attribute


@pytest.mark.parametrize(
    "names",
    [
        {"__fspath__": lambda answer: answer},
        {"__str__": lambda answer: answer},
        {"_str": property},
        {"__getattribute__": by_attribute},
        {"__setattr__": dropping, "__getattr__": by_attribute},
        {"__setattr__": dropping, "_format_parsed_parts": lambda answer: answer},
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("opener", ["sqlite3.connect", "io.FileIO"])
def test_a_path_of_a_subclass(places, guard, opener, names):
    for _ in range(4):
        stays(places, guard, OPENERS[opener], alternating(places, **names))


@pytest.mark.parametrize("opener", ["sqlite3.connect", "io.FileIO"])
def test_a_native_method_under_the_name(places, guard, opener):
    ours, theirs = places.ok + "/file", places.out + "/made"
    queue = type("Queue", (collections.deque,), {"__fspath__": collections.deque.popleft})
    lines = type("Lines", (io.StringIO,), {"__fspath__": io.StringIO.readline})
    for answers in ([ours, theirs], [theirs, ours], [ours, ours, theirs]):
        stays(places, guard, OPENERS[opener], queue(answers * 3))
        stays(places, guard, OPENERS[opener], lines("\n".join(answers)))


@pytest.mark.parametrize("opener", ["sqlite3.connect", "io.FileIO"])
@pytest.mark.parametrize("where", ["the class", "the module", "its str", "sys.modules"])
def test_pathlib_that_is_not_the_standard_library_s(places, guard, opener, where, monkeypatch):
    ours, theirs = places.ok + "/file", places.out + "/made"
    import pathlib
    import sys
    import types

    pure = pathlib.PurePath
    answer = in_turn(ours, theirs)

    def attack():
        if where == "the class":
            with monkeypatch.context() as patch:
                patch.setattr(pure, "__fspath__", answer)
                return OPENERS[opener](Path(ours))
        if where == "its str":
            with monkeypatch.context() as patch:
                module = sys.modules[pure.__fspath__.__module__]
                patch.setattr(module, "str", answer, raising=False)
                return OPENERS[opener](Path(ours))
        other = type("PurePath", (), {"__fspath__": answer, "__str__": object.__str__})
        with monkeypatch.context() as patch:
            if where == "the module":
                patch.setattr(pathlib, "PurePath", other)
            else:
                fake = types.SimpleNamespace(PurePath=other)
                patch.setitem(sys.modules, "pathlib", fake)
            return OPENERS[opener](other())

    for _ in range(2):
        stays(places, guard, attack)


def test_paths_of_ordinary_code_pass(places, guard):
    class Own(type(Path())):
        def suffixed(self, suffix):
            return self.with_name(self.name + suffix)

    with guard:
        for path in (Path(places.ok), Own(places.ok)):
            sqlite3.connect(path / "database").execute("create table if not exists made(x)")
            io.FileIO(path / "file", "w").close()
            open(path / "file", "w").close()
            os.close(os.open(path / "file", os.O_WRONLY))
        for entry in os.scandir(places.ok):
            io.FileIO(entry, "a").close()
        file = open(places.ok + "/file", "w")
        open(file.fileno(), "w", closefd=False).close()
        io.FileIO(file.fileno(), "w", closefd=False).close()
        os.truncate(file.fileno(), 0)
        with pytest.raises(AuditDenied):
            io.FileIO(Path(places.out, "file"), "w")
