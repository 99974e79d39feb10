"""A step, where its code runs: its value, its exception, its display."""

import asyncio
import linecache

import pytest

from fastaudit_rs.sessions import shown as shown_module
from fastaudit_rs.sessions import step
from fastaudit_rs.sessions.values import unpack


class Steps:
    """Steps that share names."""

    def __init__(self, **limits):
        self.names = {"__name__": "__main__"}
        self.loop, self.sources = step.Loop(), step.Sources()
        self.shown = shown_module.Shown(**limits)
        self.names["display"] = self.shown.display
        self.number = 0

    def run(self, code, **options):
        self.number += 1
        self.shown.begin()
        return step.run(
            self.names, code, self.number, self.loop, self.shown, self.sources, **options
        )

    def value(self, code):
        outcome = self.run(code)
        assert outcome.error is None, outcome.error.traceback
        return outcome.value and unpack(outcome.value)


@pytest.fixture
def steps():
    steps = Steps()
    yield steps
    steps.loop.close()
    steps.sources.clear()


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("x = 1\nx + 1", 2),
        ("x = 1", None),
        ("1;", None),
        ("1 ; # nothing", None),
        ("(1);", None),
        ("'a;b'", "a;b"),
        ("1; 2", 2),
        ("'ä'; 'ö'", "ö"),
        ("", None),
        ("None", None),
        ("def f(): return 1\nf()", 1),
        ("{'a': [1, (2, None)]}", {"a": [1, (2, None)]}),
        ("import asyncio\nawait asyncio.sleep(0, 5)", 5),
        ("object", "<class 'object'>"),
    ],
)
def test_the_value_is_that_of_the_last_expression(steps, code, value):
    assert steps.value(code) == value


def test_names_and_tasks_last(steps):
    steps.value("import asyncio\nfound = []\nasync def later(): found.append(1)")
    steps.value("task = asyncio.create_task(later()) if False else None")
    steps.value("async def start():\n    return asyncio.create_task(later())")
    steps.value("task = await start(); await task")
    assert steps.value("found") == [1]


@pytest.mark.parametrize(
    ("code", "status", "kind", "message", "line"),
    [
        ("x = 1\n1 / 0", 1, "ZeroDivisionError", "division by zero", 2),
        ("x = 1\nimport json\njson.loads('?')", 1, "json.decoder.JSONDecodeError", None, 3),
        ("a b", 1, "SyntaxError", None, 1),
        ("class E(Exception): pass\nraise E(1)", 1, "E", "1", 2),
        ("import sys\nsys.exit(3)", 3, "SystemExit", "3", 2),
        ("import sys\nsys.exit(256 + 3)", 3, "SystemExit", "259", 2),
        ("import sys\nsys.exit('no')", 1, "SystemExit", "no", 2),
        ("raise KeyboardInterrupt", -2, "KeyboardInterrupt", "", 1),
        ("async def f():\n    raise KeyError(1)\nawait f()", 1, "KeyError", "1", 2),
        ("def f(): f()\nf()", 1, "RecursionError", None, 1),
    ],
)
def test_an_exception_is_data(steps, code, status, kind, message, line):
    outcome = steps.run(code)
    assert (outcome.status, outcome.error.kind, outcome.error.line) == (status, kind, line)
    assert message is None or outcome.error.message == message
    assert kind.rpartition(".")[2] in outcome.error.traceback
    assert "fastaudit_rs" not in outcome.error.traceback
    assert "run_until_complete" not in outcome.error.traceback


def test_an_exit_with_success_is_no_error(steps):
    outcome = steps.run("raise SystemExit")
    assert (outcome.status, outcome.error) == (0, None)


def test_a_traceback_shows_lines_of_earlier_steps_of_its_own_session(steps):
    other = Steps()
    steps.run("def f():\n    return 1 / 0  # mine")
    other.run("def f():\n    return 1 / 0  # not mine")
    text = steps.run("f()").error.traceback
    assert "return 1 / 0  # mine" in text
    assert "<step 1>" in text
    other.sources.clear()


def test_old_lines_are_dropped(steps):
    for _ in range(step.REMEMBERED + 5):
        steps.run("1")
    kept = [name for name in linecache.cache if name.startswith("<step ")]
    assert len(kept) <= step.REMEMBERED + 5
    steps.sources.clear()
    assert f"<step {step.REMEMBERED + 5}>" not in linecache.cache


@pytest.mark.parametrize(
    "hostile",
    [
        "class E(Exception):\n    def __str__(self): raise ValueError",
        "class E(Exception):\n    def __str__(self): return 1",
        "class E(Exception):\n    def __str__(self): raise SystemExit",
        "class E(Exception): pass\nE.__module__ = 1",
        "class E(Exception):\n    @property\n    def __cause__(self): 1 / 0",
        "class E(BaseException):\n    def __getattribute__(self, name): raise KeyError(name)",
        "class S(str):\n    def __str__(self): 1 / 0\n    def __len__(self): 1 / 0\n"
        "class E(Exception):\n    def __str__(self): return S('a')",
    ],
)
def test_an_exception_whose_text_fails_ends_the_step_only(steps, hostile):
    outcome = steps.run(f"{hostile}\nraise E")
    assert outcome.status == 1
    assert outcome.error.kind == "E"
    assert type(outcome.error.message) is str
    assert steps.value("1") == 1


def test_an_exception_leaves_no_frames_behind(steps):
    steps.run("class Big: pass\nimport weakref\ndef f():\n    global ref\n    big = Big()")
    steps.run(
        "def f():\n    global ref\n    big = Big()\n    ref = weakref.ref(big)\n    1 / 0\nf()"
    )
    assert steps.value("ref() is None") is True


def test_what_cannot_be_passed_is_its_repr(steps):
    assert steps.value("lambda: 1").startswith("<function <lambda>")
    outcome = steps.run("class A:\n    def __repr__(self): raise ValueError('no')\nA()")
    assert (outcome.status, outcome.value) == (0, None)
    assert outcome.value_error == "ValueError: no"


def test_a_large_value_is_told(steps):
    outcome = steps.run("'x' * 3_000_000", most=1 << 20)
    assert outcome.value is None
    assert outcome.value_error == "too large: 2.9 MB of data, of at most 1 MB"


def test_display_takes_anything_with_a_display_of_its_own(steps):
    outcome = steps.run(
        "class H:\n    def _repr_html_(self): return '<b>1</b>'\n"
        "class M:\n    def _repr_mimebundle_(self, include=None, exclude=None):\n"
        "        return {'text/html': '<i>', 'image/png': 'AAAA', 'application/json': {}}, {}\n"
        "class F:\n    def _repr_html_(self): raise ValueError\n"
        "display(H(), 1)\ndisplay(M())\ndisplay(F())\ndisplay({'text/html': 'r'}, raw=True)\nH()"
    )
    plain = [item.pop("text/plain", None) for item in outcome.display]
    assert outcome.display == [
        {"text/html": "<b>1</b>"},
        {},
        {"text/html": "<i>", "image/png": b"\0\0\0", "application/json": "{}"},
        {},
        {"text/html": "r"},
        {"text/html": "<b>1</b>"},
    ]
    assert plain[1] == "1"


def test_a_display_has_a_limit():
    steps = Steps(most=1000, count=3)
    outcome = steps.run("for _ in range(5): display(1)\n")
    assert outcome.display[3:] == [
        {"text/plain": "(2 more things left out: at most 3 of 0.001 MB)"}
    ]
    outcome = steps.run("display('a' * 2000)")
    assert outcome.display == [{"text/plain": "(1 more thing left out: at most 3 of 0.001 MB)"}]


@pytest.mark.slow
def test_figures_are_shown_and_closed(steps, recwarn):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    mine = pyplot.figure()
    outcome = steps.run(
        "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\nplt.figure(); plt.plot([2]);"
    )
    assert [sorted(item) for item in outcome.display] == [["image/png", "text/plain"]] * 2
    assert all(item["image/png"].startswith(b"\x89PNG") for item in outcome.display)
    assert steps.value("len(plt.get_fignums())") == 1
    assert pyplot.gcf() is mine
    assert not mine.axes
    pyplot.close(mine)
    assert not [one for one in recwarn if "non-interactive" in str(one.message)]


def test_a_frame_is_a_value_and_a_display(steps):
    pandas = pytest.importorskip("pandas")
    outcome = steps.run("import pandas\npandas.DataFrame({'a': [1]})")
    assert unpack(outcome.value).equals(pandas.DataFrame({"a": [1]}))
    assert "<table" in outcome.display[0]["text/html"]


def test_an_interrupted_await_is_cancelled(steps):
    steps.run("import asyncio\nended = []")

    def interrupt():
        raise KeyboardInterrupt

    steps.loop = step.Loop(lambda loop: loop.call_later(0.1, interrupt))
    outcome = steps.run("try:\n    await asyncio.sleep(9)\nfinally:\n    ended.append(1)")
    assert outcome.status == step.INTERRUPTED
    assert steps.value("ended") == [1]


def test_a_closed_loop_is_replaced(steps):
    steps.value("import asyncio\nawait asyncio.sleep(0)")
    steps.value("asyncio.run(asyncio.sleep(0))")
    asyncio.set_event_loop(None)
    assert steps.value("await asyncio.sleep(0, 3)") == 3
