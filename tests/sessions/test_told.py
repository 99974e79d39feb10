"""A result of a step in words for a model, and steps under a policy that denies imports."""

import copy
import dataclasses
import json
import pickle
from dataclasses import replace

import pytest

from fastaudit_rs import Limits, Policy, Sandbox
from fastaudit_rs.results import Error, Result

RAN = Result(returncode=0, stdout="", stderr="", duration=0.0, killed_by=None)


def test_parts_are_told_under_their_names(session):
    code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nx = 6\nx * 7"
    assert session.run(code).for_model() == "stdout:\nout\n\nstderr:\nerr\n\nvalue:\n42"
    assert session.run("x = 1").for_model() == "It ran, and printed nothing."
    assert session.run("''").for_model() == "value:\n''"


def test_an_error_is_its_traceback(session):
    told = session.run("def f():\n    1 / 0\nf()").for_model()
    assert told.startswith("error:\nTraceback (most recent call last):\n")
    assert "line 2, in f" in told and told.endswith("ZeroDivisionError: division by zero")
    assert "^" not in told
    assert "^" in session.run("def f(:").for_model()


def test_denials_are_told_once_with_their_hints(session):
    code = "try: open('/srv/a', 'w')\nexcept OSError: pass\n"
    told = session.run(code * 2).for_model()
    assert told.startswith("denied:\nDenied: open the file '/srv/a' for writing: not in ")
    assert told.count("Denied: ") == 1 and told.count("To allow it: ") == 1
    told = session.run(f"{code}open('/srv/b', 'w')").for_model()
    error, denied = told.split("\n\ndenied:\n")
    assert (
        error.startswith("error:\nTraceback")
        and "open the file '/srv/b' for writing: not in" in error
    )
    assert "To allow it: " in error and "/srv/b" not in denied.splitlines()[0]
    assert denied.startswith("Denied: open the file '/srv/a'") and denied.count("not in ") == 1


@pytest.mark.slow
def test_ends_are_told(session):
    told = session.run("print('a')\nwhile True: pass", timeout=0.5).for_model()
    assert told.startswith("stdout:\na\n\n") and "ended by the limit wall_seconds" in told
    assert "SystemExit: 3" in session.run("raise SystemExit(3)").for_model()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"returncode": 3}, "ended:\nexit status 3"),
        ({"returncode": -9}, "ended:\nexit status -9"),
        ({"returncode": -9, "killed_by": "memory"}, "ended:\nit was ended by the limit memory"),
        ({"killed_by": "interrupt"}, "ended:\nit was interrupted"),
        ({"value_error": "too large"}, "no value:\ntoo large"),
        ({"display": [{"image/png": b"", "text/plain": ""}]}, "displayed:\nimage/png, text/plain"),
        ({"error": Error("E", "m"), "returncode": 1}, "error:\nE: m"),
    ],
)
def test_other_parts(fields, told):
    assert Result(**{**vars(RAN), **fields}).for_model() == told


def test_long_parts_lose_their_middle():
    ran = Result(**{**vars(RAN), "stdout": "a" * 50 + "b" * 50 + "\n", "value": 1})
    told = ran.for_model(max_chars=11)
    assert told == "stdout:\naaaaa\n… 89 characters left out …\nbbbbbb\n\nvalue:\n1"
    assert ran.for_model(100).startswith("stdout:\n" + "a" * 50 + "b" * 50 + "\n\n")


def test_halves_of_characters_are_told_in_valid_text(session):
    told = session.run("raise ValueError('a' + chr(0xD800))").for_model()
    assert told.endswith(("ValueError: a?", "ValueError: a\\ud800"))
    told.encode()


@pytest.mark.parametrize(
    ("max_chars", "error"), [("1", TypeError), (True, TypeError), (0, ValueError)]
)
def test_wrong_lengths(max_chars, error):
    with pytest.raises(error, match="max_chars must be"):
        RAN.for_model(max_chars)


@pytest.fixture
def importing(place, tmp_path):
    """A session whose code may import one module."""
    policy = Policy(write=[str(tmp_path)], imports=["math"])
    if place == "here":
        with policy.session(directory=tmp_path) as session:
            yield session
        return
    pytest.importorskip("sandlock")
    with Sandbox(policy.replace(write=[]), Limits()) as sandbox, sandbox.session() as session:
        yield session


def test_values_are_told_where_imports_are_denied(importing):
    assert importing.run("import math\nlen").value == "<built-in function len>"
    assert importing.run("[object]").value.startswith("[<class 'object'>]")
    with pytest.raises(TypeError, match="cannot be passed by value"):
        importing.run("x = object()")
        importing.get("x")


def test_tools_of_a_step_take_back_their_names(session):
    tools = {"double": lambda x: 2 * x}
    assert session.run("double = 3\ndouble", tools=tools).value == 3
    assert session.run("double").value == 3
    assert session.run("double(4)", tools=tools).value == 8


def test_a_value_that_has_no_text(session):
    """Python writes no numbers of so many digits."""
    assert "digits" in session.run("10**5000").for_model()


def test_what_the_host_alone_may_do_is_not_told():
    message = "the step ended its process (exit status 0): reset() starts another, undo() goes back"
    ran = replace(RAN, returncode=-9, error=Error("SystemExit", message))
    assert ran.for_model() == "error:\nSystemExit: the step ended its process (exit status 0)"


def test_a_result_as_data(session):
    code = "try: open('/srv/a', 'w')\nexcept OSError: pass\n"
    code += "class A:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n'\n"
    code += "display(A())\n(1, {'a': [None]})"
    ran = session.run(code)
    told = json.loads(ran.to_json())
    assert told == ran.to_dict()
    assert list(told) == [field.name for field in dataclasses.fields(Result)]
    assert told["value"] == [1, {"a": [None]}] and told["returncode"] == 0
    assert [denied["path"] for denied in told["violations"]] == ["/srv/a"]
    assert [shown["image/png"] for shown in told["display"]] == ["iVBORw0KGgo="]
    session.run("raise ValueError(chr(0xD800))").to_json().encode()
    assert session.run("float('nan')").to_dict()["value"] == "nan"
    assert session.run("{(1, 2): 3}").to_dict()["value"] == "{(1, 2): 3}"
    failed = session.run("1 / 0").to_dict()["error"]
    assert (failed["kind"], failed["line"]) == ("ZeroDivisionError", 1)


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_session_says_how_it_is_kept(session, copied):
    with pytest.raises(TypeError, match=r"a session cannot be pickled or copied: save\(to\) keeps"):
        copied(session)
