"""A result of a step in words for a model, and steps under a policy that denies imports."""

import contextlib
import copy
import dataclasses
import json
import pickle
import re
import textwrap
from dataclasses import replace

import pytest

from fastaudit_rs import Limits, Policy, Sandbox
from fastaudit_rs.results import Error, ModelContent, Result

PNG = b"\x89PNG\r\n\x1a\n"

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
    told = session.run("x = 1\nprint('a')\nwhile True: pass", timeout=0.5).for_model()
    assert told.startswith("stdout:\na\n\n")
    stopped = r"stopped after 0\.\d+ s by the time limit \(wall_seconds\); its variables are kept"
    assert re.search(stopped, told), told
    assert session.run("x").value == 1
    assert "SystemExit: 3" in session.run("raise SystemExit(3)").for_model()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"returncode": 3}, "ended:\nexit status 3"),
        ({"returncode": -9}, "ended:\nexit status -9"),
        (
            {"returncode": -9, "killed_by": "memory"},
            "ended:\nit was stopped after 0 s by the memory limit (memory)",
        ),
        (
            {"returncode": -9, "killed_by": "new"},
            "ended:\nit was stopped after 0 s by the limit new",
        ),
        ({"killed_by": "interrupt"}, "ended:\nit was interrupted"),
        ({"value_error": "too large"}, "no value:\ntoo large"),
        (
            {"display": [{"image/png": PNG, "text/plain": "a figure"}, {"image/png": PNG}]},
            "displayed:\nimage 1: a figure\nimage 2",
        ),
        ({"display": [{"image/png": b"", "text/plain": "no figure"}]}, "displayed:\nno figure"),
        ({"display": [{"text/html": "<b>"}]}, "displayed:\ntext/html"),
        (
            {"value": "   x\n0  1", "display": [{"text/html": "", "text/plain": "   x\n0  1"}]},
            "value:\n   x\n0  1",
        ),
        ({"stdout": "a" + "\x1b[31m" * 5_000}, "stdout:\na"),
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


def test_output_is_what_a_terminal_shows(session):
    """A model that reads commands for a terminal repeats them, or takes them for text."""
    code = r"print('\x1b[1;31mred\x1b[0m\x1b]0;title\x07 10%\r 100%\nab\bc\x07\tend\r')"
    ran = session.run(f"{code}\nraise ValueError('\\x1b[2Jcleared')")
    told = ran.for_model()
    assert told.startswith("stdout:\n 100%\nac\\x07\tend\n\nerror:\n"), told
    assert told.endswith("ValueError: cleared") and "\x1b[1;31m" in ran.stdout


def test_a_denial_in_a_library_is_told_in_a_few_lines(importing):
    """The library raises an error of its own, with all of the denial in its text."""
    code = "import urllib.request\nurllib.request.urlopen('http://a.org')"
    told = importing(True, network=False).run(code).for_model()
    assert told.count("Denied: look up the host 'a.org'") == 1
    assert told.count("To allow it: ") == 1 and "Call chain: " not in told
    assert "line 2, in <module>" in told and "urllib.error.URLError: " in told
    assert len(told.splitlines()) < 12


def test_a_denial_that_is_told_nowhere_else_is_kept(session):
    code = "try: open('/srv/a', 'w')\nexcept OSError: open('/srv/b', 'w')"
    told = session.run(code).for_model()
    assert "'/srv/a'" in told and "'/srv/b'" in told


def test_frames_of_libraries_are_left_out(session):
    told = session.run("import json\njson.loads('{')").for_model()
    assert told.count("  File ") == 4 and "frames of libraries" not in told
    told = session.run("import copy\ncopy.deepcopy([[[[(n for n in [])]]]])").for_model()
    assert "frames of libraries …" in told and "in <module>\n    copy.deepcopy" in told
    assert told.count("  File ") == 2


@pytest.mark.slow
def test_a_figure_that_is_the_value_is_shown_once(importing):
    pytest.importorskip("matplotlib")
    code = "import matplotlib.pyplot as plt\nfig, axes = plt.subplots()\n"
    session = importing(True, packages="data", native=True, env=True, threads="inherit")
    assert len(session.run(f"{code}fig").display) == 1
    told = session.run(f"{code}other = plt.figure()\nfig").for_model()
    assert told.count("image 1") == 1 and told.count("image 2") == 1 and "image 3" not in told


@pytest.mark.slow
def test_the_data_of_a_chart(importing):
    """A host draws it anew, or checks it, without reading pixels."""
    pytest.importorskip("matplotlib")
    session = importing(True, packages="data", native=True, env=True, threads="inherit")
    code = """
        import matplotlib.pyplot as plt
        figure, (left, right) = plt.subplots(1, 2)
        left.plot([1, 2, 3], [4, float('nan'), 6], label='cost')
        left.scatter([1], [2])
        left.set(title='Costs', xlabel='year', ylabel='EUR')
        right.bar(['tea', 'salt'], [3.5, 0.5])
        right.barh([1, 2], [5, 6])
    """
    [shown] = session.run(textwrap.dedent(code)).display
    left, right = json.loads(shown["application/vnd.fastaudit.chart+json"])["axes"]
    assert (left["title"], left["x_label"], left["y_label"]) == ("Costs", "year", "EUR")
    line, points = left["series"]
    assert line == {"type": "line", "label": "cost", "x": [1.0, 2.0, 3.0], "y": [4.0, None, 6.0]}
    assert points == {"type": "scatter", "label": "", "x": [1.0], "y": [2.0]}
    bars, flat = right["series"]
    assert (bars["x"], bars["y"]) == (["tea", "salt"], [3.5, 0.5])
    assert flat["x"] == [5.0, 6.0] and len(flat["y"]) == 2
    assert set(shown) == {"image/png", "text/plain", "application/vnd.fastaudit.chart+json"}
    assert set(session.run("plt.figure()").display[0]) == {"image/png", "text/plain"}


def test_content_for_a_model(session, place):
    code = "import base64\ndisplay({'image/png': PNG}, raw=True)\nopen('a.txt', 'w').close()\n"
    made = "import os\nos.makedirs('.cache/b')\nopen('.cache/b/c', 'w').close()\n3"
    ran = session.run(code + made, variables={"PNG": PNG})
    assert ran.changed == [".cache/b/c", "a.txt"]
    content = ran.content_for_model()
    assert content == ModelContent("value:\n3\n\ndisplayed:\nimage 1", [PNG], ["a.txt"], False)
    assert session.run("1 / 0").content_for_model().is_error
    assert session.run("open('/srv/a', 'w')").content_for_model().is_error


@pytest.mark.parametrize(
    ("images", "kept", "told"),
    [
        ([PNG + b"\0" * 4_000_000], 0, "image 1: 4.0 MB, at most 10 of 3.5 MB, 10 MB together"),
        ([PNG + b"\0" * 3_000_000] * 4, 3, "image 4: 3.0 MB"),
        ([PNG] * 12, 10, "image 12: 0.0 MB"),
        ([PNG + b"\0" * 10 + b"\xff\xff\0\0\0\1"], 0, "image 1: 65535 x 1 pixels"),
        ([b"no image"], 0, ""),
    ],
)
def test_images_that_a_service_refuses_are_left_out(images, kept, told):
    content = Result(**{**vars(RAN), "display": [{"image/png": one} for one in images]})
    content = content.content_for_model()
    assert len(content.images) == kept and told in content.text
    assert ("images left out" in content.text) is bool(told)


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
    """`importing(modules, **fields)`: a session whose code may import these."""
    with contextlib.ExitStack() as stack:

        def make(modules, **fields):
            policy = Policy(write=[str(tmp_path)], imports=modules, **fields)
            if place == "here":
                return stack.enter_context(policy.session(directory=tmp_path))
            pytest.importorskip("sandlock")
            sandbox = stack.enter_context(Sandbox(policy.replace(write=[]), Limits()))
            return stack.enter_context(sandbox.session())

        yield make


def test_values_are_told_where_imports_are_denied(importing):
    session = importing(["math"])
    assert session.run("import math\nlen").value == "<built-in function len>"
    assert session.run("[object]").value.startswith("[<class 'object'>]")
    with pytest.raises(TypeError, match="cannot be passed by value"):
        session.run("x = object()")
        session.get("x")


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
