"""Steps of a session, the same in this process and in a sandbox."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from steps import value

from fastaudit_rs import AuditDenied
from fastaudit_rs.sessions.shown import COUNT


def test_names_imports_and_the_directory_last(session):
    assert value(session, "import json, os\nx = [1]\nos.mkdir('sub')\nos.chdir('sub')\nx") == [1]
    assert value(session, "x.append(2)\njson.dumps(x), os.path.basename(os.getcwd())") == (
        "[1, 2]",
        "sub",
    )


def test_output_is_that_of_the_step(session, capfd):
    result = session.run("import sys\nprint('a', 'ä')\nprint('b', file=sys.stderr)")
    assert (result.stdout, result.stderr) == ("a ä\n", "b\n")
    assert session.run("1").stdout == ""
    assert capfd.readouterr() == ("", "")


def test_a_result_tells_all(session):
    result = session.run("1 + 1")
    assert result.success
    assert (result.returncode, result.value, result.error, result.killed_by) == (0, 2, None, None)
    assert 0 <= result.duration < 5
    assert result.display == []


def test_timings(session):
    ran = session.run("import time; time.sleep(0.2)")
    spent = ran.timings
    assert spent.waited >= 0 and spent.started > 0 and 0.2 <= spent.ran < ran.duration
    assert spent.started + spent.ran + spent.reported == pytest.approx(ran.duration, abs=1e-5)
    assert ran.to_dict()["timings"]["ran"] == spent.ran
    assert session.run("while True: pass", timeout=0.3).timings.ran > 0.3


#: Steps, and the values of their last expressions.
VALUES = {
    "x = 1\nx + 1": 2,
    "x = 1": None,
    "1;": None,
    "1 ; # nothing": None,
    "(1);": None,
    "'a;b'": "a;b",
    "1; 2": 2,
    "'ä'; 'ö'": "ö",
    "": None,
    "None": None,
    "def f(): return 1\nf()": 1,
    "{'a': [1, (2, None)]}": {"a": [1, (2, None)]},
    "object": "<class 'object'>",
}


def test_the_value_is_that_of_the_last_expression(session):
    assert {code: value(session, code) for code in VALUES} == VALUES
    assert value(session, "lambda: 1").startswith("<function <lambda>")
    ran = session.run("class A:\n    def __repr__(self): raise ValueError('no')\nA()")
    assert (ran.success, ran.value, ran.value_error) == (True, None, "ValueError: no")
    ran = session.run("b'x' * (65 << 20)")
    assert ran.value is None
    assert ran.value_error == "value is too large: 65.0 MB or more, of at most 64 MB"


#: Steps, and their exit status, the kind of their exception, its message and its line.
FAILING = {
    "x = 1\n1 / 0": (1, "ZeroDivisionError", "division by zero", 2),
    "x = 1\nimport json\njson.loads('?')": (1, "json.decoder.JSONDecodeError", None, 3),
    "a b": (1, "SyntaxError", None, 1),
    "class E(Exception): pass\nraise E(1)": (1, "E", "1", 2),
    "import sys\nsys.exit(256 + 3)": (3, "SystemExit", "259", 2),
    "import sys\nsys.exit('no')": (1, "SystemExit", "no", 2),
    "raise KeyboardInterrupt": (-2, "KeyboardInterrupt", "", 1),
    "async def f():\n    raise KeyError(1)\nawait f()": (1, "KeyError", "1", 2),
    "def f(): f()\nf()": (1, "RecursionError", None, 1),
    "x = 1\nopen('/never', 'w')": (77, "fastaudit_rs.AuditDenied", None, 2),
}


def test_a_step_that_fails_is_a_result(session):
    for number, (code, (status, kind, message, line)) in enumerate(FAILING.items(), start=1):
        result = session.run(code)
        error = result.error
        assert (result.returncode, error.kind, error.line) == (status, kind, line)
        assert message in (None, error.message)
        assert kind.rpartition(".")[2] in error.traceback
        assert f'"<step {number}>"' in error.traceback
        assert "fastaudit_rs/" not in error.traceback
        assert "run_until_complete" not in error.traceback
    assert value(session, "1") == 1
    ran = session.run("raise SystemExit")
    assert (ran.returncode, ran.error) == (0, None)


def test_an_interrupt_while_an_error_is_told(session):
    """As where the host repeats one: the step has ended by then."""
    code = """n = 0
class Slow(Exception):
    @property
    def __cause__(self):
        global n; n += 1
        if n == 1: raise KeyboardInterrupt
raise Slow("told")
"""
    error = session.run(code).error
    assert (error.kind, error.message, error.line) == ("Slow", "told", 7)
    assert "line 7" in error.traceback and error.traceback.endswith("Slow: told\n")


def test_a_traceback_shows_lines_of_earlier_steps_of_its_own_session(make):
    session, other = make(), make()
    session.run("def f():\n    return 1 / 0  # mine")
    other.run("def f():\n    return 1 / 0  # not mine")
    text = session.run("f()").error.traceback
    assert "return 1 / 0  # mine" in text and "<step 1>" in text


def test_an_exception_leaves_no_frames_behind(session):
    session.run(
        "import weakref\nclass Big: pass\ndef f():\n    global ref\n    big = Big()\n"
        "    ref = weakref.ref(big)\n    1 / 0\nf()"
    )
    assert value(session, "ref() is None") is True


def test_display_takes_anything_with_a_display_of_its_own(session):
    shown = session.run(
        "class H:\n    def _repr_html_(self): return '<b>1</b>'\n"
        "class M:\n    def _repr_mimebundle_(self, include=None, exclude=None):\n"
        "        return {'text/html': '<i>', 'image/png': 'AAAA', 'application/json': {}}, {}\n"
        "class F:\n    def _repr_html_(self): raise ValueError\n"
        "display(H(), 1)\ndisplay(M())\ndisplay(F())\ndisplay({'text/html': 'r'}, raw=True)\nH()"
    ).display
    plain = [item.pop("text/plain", None) for item in shown]
    assert plain[1] == "1"
    assert shown == [
        {"text/html": "<b>1</b>"},
        {},
        {"text/html": "<i>", "image/png": b"\0\0\0", "application/json": "{}"},
        {},
        {"text/html": "r"},
        {"text/html": "<b>1</b>"},
    ]


def test_a_display_has_a_limit(make):
    session = make(output=100_000)
    shown = session.run("for _ in range(COUNT + 2): display(1)", variables={"COUNT": COUNT}).display
    [told] = shown[COUNT:]
    assert told["text/plain"].startswith(f"(2 more things left out: at most {COUNT} of ")
    [told] = session.run("display({'text/html': 'a' * (11 << 20)}, raw=True)").display
    assert told["text/plain"].startswith("(1 more thing left out: ")


def test_denials_are_told_also_if_they_are_caught(session):
    result = session.run("try:\n    open('/never', 'w')\nexcept OSError:\n    pass\n1")
    assert result.value == 1
    assert [type(denied) for denied in result.violations] == [AuditDenied]
    assert result.violations[0].path == "/never"
    assert session.run("1").violations == []


def test_inputs_are_copied(session):
    given = {"a": [1, 2]}
    assert value(session, "x['a'].append(3)\nx", variables={"x": given}) == {"a": [1, 2, 3]}
    assert given == {"a": [1, 2]}
    assert value(session, "x") == {"a": [1, 2, 3]}


@pytest.mark.slow
def test_arrays_and_frames_go_in_and_out(session):
    numpy = pytest.importorskip("numpy")
    pandas = pytest.importorskip("pandas")
    array = numpy.arange(6.0).reshape(2, 3)
    assert (value(session, "a * 2", variables={"a": array}) == array * 2).all()
    frame = pandas.DataFrame({"a": [1, 2]})
    result = session.run("f", variables={"f": frame})
    assert result.value.equals(frame)
    assert "<table" in result.display[0]["text/html"]


@pytest.mark.parametrize(
    ("options", "here", "there"),
    [
        ({"timeout": -1}, ValueError, ValueError),
        ({"timeout": "1"}, TypeError, TypeError),
        ({"snapshots": -1}, ValueError, ValueError),
        ({"snapshots": "2"}, TypeError, TypeError),
        ({"output": "much"}, ValueError, ValueError),
        ({"output": 0}, ValueError, ValueError),
        ({"tools": {"f": 1}}, TypeError, TypeError),
        ({"directory": "/nowhere/at/all"}, NotADirectoryError, TypeError),
        ({"undo_depth": -1}, TypeError, ValueError),
        ({"undo_depth": 1.5}, TypeError, TypeError),
        ({"tool_calls": 0}, ValueError, ValueError),
        ({"nonsense": 1}, TypeError, TypeError),
    ],
)
def test_arguments_of_a_session_are_checked(make, place, options, here, there):
    [name] = options
    with pytest.raises(here if place == "here" else there, match=f"{name}|/nowhere"):
        make(**options)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"code": 1}, TypeError),
        ({"variables": {"x": object()}}, TypeError),
        ({"variables": {1: 1}}, TypeError),
        ({"variables": {"a b": 1}}, ValueError),
        ({"variables": {"if": 1}}, ValueError),
        ({"tools": {"f": 1}}, TypeError),
        ({"tools": {"a.b": len}}, ValueError),
        ({"timeout": "1"}, TypeError),
        ({"timeout": -1}, ValueError),
    ],
)
def test_arguments_are_checked_before_anything_runs(session, options, error):
    with pytest.raises(error):
        session.run(**{"code": "x = 1", **options})
    assert session.names == []


def test_names(session):
    session.run("x = 1\nimport json\ndef f(): pass\n_y = 2", variables={"z": 1})
    assert session.names == ["z", "x", "json", "f", "_y"]
    session.run("del x")
    assert session.names == ["z", "json", "f", "_y"]


def test_get(session):
    session.run("x = {'a': (1, 2)}\nf = lambda: 1")
    assert session.get("x") == {"a": (1, 2)}
    with pytest.raises(KeyError, match="nothing"):
        session.get("nothing")
    with pytest.raises(TypeError, match="function"):
        session.get("f")
    # Names of the session are none of these.
    for name in ("_", "display", "__name__"):
        with pytest.raises(KeyError, match=name):
            session.get(name)
    session.run("display = 3")
    assert session.get("display") == 3


def test_await_at_the_top(session):
    assert value(session, "import asyncio\nawait asyncio.sleep(0, 5)") == 5
    session.reset()
    code = "import asyncio\nfound = asyncio.get_running_loop().is_running()\n"
    assert value(session, f"{code}await asyncio.sleep(0, found)") is True
    assert value(session, "task = asyncio.ensure_future(asyncio.sleep(0, 6))\nawait task") == 6
    assert value(session, "async def f(): return 7\nasyncio.run(f())") == 7
    assert value(session, "await asyncio.sleep(0, 8)") == 8


@pytest.mark.parametrize(
    "code",
    [
        "while True:\n    pass",
        "import asyncio\nawait asyncio.sleep(60)",
        "import asyncio\nasyncio.run(asyncio.sleep(60))",
        "for _ in range(10**12):\n    sum(range(1000))",
        "while True:\n    try:\n        while True: pass\n    except KeyboardInterrupt:\n"
        "        n = globals().get('n', 0) + 1\n        if n > 2: raise",
    ],
)
def test_a_time_limit_ends_a_step(session, code):
    session.run("x = 1")
    began = time.monotonic()
    result = session.run(code, timeout=0.3)
    assert 0.3 <= time.monotonic() - began < 10
    assert result.killed_by == "wall_seconds"
    assert result.timed_out
    assert value(session, "x") == 1


def test_an_interrupt_ends_a_step(session):
    session.run("x = 1")
    interrupted = []
    timer = threading.Timer(0.3, lambda: interrupted.append(session.interrupt()))
    timer.start()
    result = session.run("while True:\n    pass", timeout=60)
    timer.join()
    assert interrupted == [True]
    assert (result.killed_by, result.success) == ("interrupt", False)
    assert value(session, "x") == 1
    assert session.interrupt() is False


def test_tools_of_the_host(session):
    called = []

    def add(a, b=1):
        called.append((a, b))
        return a + b

    assert value(session, "add(1) + add(2, b=3)", tools={"add": add}) == 7
    assert called == [(1, 1), (2, 3)]
    assert value(session, "add(1)") == 2
    assert session.names == []


def test_output_of_a_function_is_that_of_the_host(session, capfd):
    def say():
        print("host")

    async def say_later():
        print("later")

    tools = {"say": say, "say_later": say_later}
    result = session.run("print(1)\nsay()\nawait say_later()\nprint(2)", tools=tools)
    assert result.stdout == "1\n2\n"
    assert capfd.readouterr().out == "host\nlater\n"


def test_a_function_raises_in_the_step(session):
    def fail():
        raise ValueError("no")

    result = session.run(
        "try:\n    fail()\nexcept ValueError as error:\n    got = str(error)\ngot\nfail()",
        tools={"fail": fail},
    )
    assert (result.error.kind, result.error.message, result.error.line) == ("ValueError", "no", 6)
    assert value(session, "got") == "no"


def test_coroutine_functions_are_awaited_side_by_side(session):
    waiting = 0
    most = 0

    async def wait(n):
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        await asyncio.sleep(0.05)
        waiting -= 1
        return n

    code = "import asyncio\nawait asyncio.gather(*(wait(n) for n in range(5)))"
    assert value(session, code, tools={"wait": wait}) == [0, 1, 2, 3, 4]
    assert most == 5

    async def main():
        return await session.arun(code)

    assert asyncio.run(main()).value == [0, 1, 2, 3, 4]


def test_coroutine_functions_run_in_the_loop_of_arun(session):
    async def main():
        event = asyncio.Event()

        async def wait():
            await event.wait()
            return id(asyncio.get_running_loop())

        asyncio.get_running_loop().call_later(0.1, event.set)
        result = await session.arun("await wait()", tools={"wait": wait}, timeout=20)
        assert result.value == id(asyncio.get_running_loop()), result.error

    asyncio.run(main())


@pytest.mark.parametrize("waits", ["", "await "], ids=["function", "coroutine function"])
def test_a_tool_raises_in_the_step(session, waits):
    def fail(kind):
        raise {"own": KeyError("k"), "other": asyncio.QueueFull("full")}[kind]

    async def later(kind):
        fail(kind)

    result = session.run(
        f"try:\n    {waits}fail('own')\nexcept KeyError as error:\n    got = error.args\n"
        f"{waits}fail('other')",
        tools={"fail": later if waits else fail},
    )
    assert session.get("got") == ("k",)
    assert result.error.kind == "fastaudit_rs.ToolError"
    assert result.error.message == "QueueFull: full"


def test_what_a_step_imports_from_the_future_lasts(session):
    assert session.run("def f(a: Missing): pass\nf.__annotations__").error.kind == "NameError"
    assert session.run("from __future__ import annotations").success
    assert session.run("def f(a: Missing): pass\nf.__annotations__").value == {"a": "Missing"}


@pytest.mark.parametrize("waits", ["", "await "], ids=["function", "coroutine function"])
@pytest.mark.parametrize("is_arun", [False, True])
def test_a_tool_that_exits_ends_no_host(session, waits, is_arun):
    def leave():
        raise SystemExit("usage: leave [-h]")

    async def later():
        leave()

    async def arun(code, **more):
        return await session.arun(code, **more)

    def run(code, **more):
        return asyncio.run(arun(code, **more)) if is_arun else session.run(code, **more)

    result = run(f"{waits}leave()", tools={"leave": later if waits else leave}, timeout=20)
    assert "SystemExit" in str(result.error) and "usage: leave [-h]" in str(result.error)
    assert run("1 + 1").value == 2


def test_a_loop_waits_for_no_step(session):
    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        result = await session.arun("import time\ntime.sleep(0.3)\n1")
        ticking.cancel()
        return ticks, result.value

    ticks, found = asyncio.run(main())
    assert found == 1
    assert ticks > 5


def test_cancelling_interrupts_the_step(session):
    async def main():
        session.run("x = 1")
        task = asyncio.create_task(session.arun("while True: pass"))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await session.arun("x")).value

    assert asyncio.run(main()) == 1


@pytest.mark.slow
def test_output_comes_as_it_is_written(session):
    async def main():
        stream = session.stream(
            "import time\nfor n in range(3):\n    print(n)\n    time.sleep(0.2)"
        )
        found = []
        with pytest.raises(RuntimeError):
            _ = stream.result
        async for output in stream:
            found.append((output.name, output.text, time.monotonic()))
        return found, stream.result

    found, result = asyncio.run(main())
    assert "".join(text for _, text, _ in found) == "0\n1\n2\n" == result.stdout
    assert {name for name, _, _ in found} == {"stdout"}
    assert found[-1][2] - found[0][2] > 0.2


def test_a_stream_can_be_closed(session):
    async def main():
        stream = session.stream("print(1)\nwhile True: pass")
        async for _ in stream:
            break
        await stream.aclose()
        return stream.result.killed_by, (await session.arun("2")).value

    assert asyncio.run(main()) == ("interrupt", 2)


def test_display_of_ipython_is_that_of_the_step(session, place):
    """Imported by the step, or before: by the tests. No session imports it by itself."""
    pytest.importorskip("IPython")
    ran = session.run(
        "import sys\n"
        "before = 'IPython' in sys.modules\n"
        "import IPython.display\n"
        "from IPython.display import HTML, Image, Markdown, display\n"
        "display(HTML('<b>1</b>'), 2)\n"
        "IPython.display.display(Markdown('*3*'))\n"
        "handle = display(4, display_id='x')\n"
        "handle.update(5)\n"
        "display({'text/html': 'r'}, raw=True)\n"
        "before, handle.display_id"
    )
    assert ran.error is None, ran.error.traceback
    assert ran.stdout == ""
    assert [thing.get("text/html") for thing in ran.display][:1] == ["<b>1</b>"]
    assert [thing.get("text/plain") for thing in ran.display[1:2]] == ["2"]
    assert ran.display[2]["text/markdown"] == "*3*"
    assert [thing["text/plain"] for thing in ran.display[3:5]] == ["4", "5"]
    assert ran.display[5] == {"text/html": "r"}
    assert ran.value == (place == "here", "x")
    ran = session.run("display(6)\nIPython.display.display(7)")
    assert ran.display == [{"text/plain": "6"}, {"text/plain": "7"}]


def test_undo_goes_back_one_step(session):
    session.run("import os\nx = 1\nos.mkdir('sub')")
    session.run("x = 2\ny = 1\nos.chdir('sub')")
    session.undo()
    assert session.names == ["os", "x"]
    assert value(session, "x, os.path.isdir('sub')") == (1, True)


def test_undo_keeps_the_tools(session):
    """They are the host's, and no variables."""
    session.run("x = 1", tools={"f": lambda: 1, "taken": lambda: 4})
    session.run("taken = 4")
    snapshot = session.snapshot()
    session.run("x = f()", tools={"f": lambda: 2})
    session.undo()
    assert (session.names, value(session, "x, f()")) == (["taken", "x"], (1, 2))
    session.run("x = g()", tools={"g": lambda: 3})
    session.undo()
    assert (session.names, value(session, "x, g()")) == (["taken", "x"], (1, 3))
    session.restore(snapshot)
    assert (session.names, value(session, "f(), g(), taken")) == (["taken", "x"], (2, 3, 4))


def test_undo_keeps_the_name_of_the_last_value(session, tmp_path):
    """It is the code's own once code gives it a value."""
    session.run("1")
    session.run("2")
    session.undo()
    assert (session.names, value(session, "_")) == ([], 1)
    session.run("_ = 3")
    session.run("4")
    session.undo()
    assert (session.names, value(session, "_")) == (["_"], 3)
    session.reset()
    session.run("_ = 5")
    session.run("x = 6")
    session.undo()
    session.save(tmp_path / "record")
    session.load(tmp_path / "record")
    assert session.names == ["_"]


def test_undo_without_a_step(session):
    with pytest.raises(RuntimeError):
        session.undo()


def test_reset_begins_anew(session):
    session.run("import os\nx = 1\nos.mkdir('sub')\nos.chdir('sub')")
    session.reset()
    assert session.names == []
    assert value(session, "import os\nos.path.isdir('sub')") is True


def test_modules_of_its_own_are_imported_anew(session):
    session.run("import sys\nsys.path.insert(0, '')\nopen('own_module.py', 'w').write('x = 1')")
    assert value(session, "import own_module\nown_module.x") == 1
    session.reset()
    session.run("open('own_module.py', 'w').write('x = 22')")
    code = "import sys\nsys.path.insert(0, '')\nsys.dont_write_bytecode = True\n"
    assert value(session, code + "import own_module\nown_module.x") == 22


def test_a_closed_session_runs_nothing(make):
    tools = {"double": double}
    with make(tools=tools) as session:
        assert value(session, "await double(2)") == 4
    session.close()
    acts = [lambda: session.names, session.reset, session.undo, lambda: session.run("1")]
    acts += [lambda: session.run("1", tools=tools), lambda: asyncio.run(session.arun("1"))]
    for act in acts:
        with pytest.raises(RuntimeError, match="^the session is closed$"):
            act()

    async def main():
        async with make() as session:
            assert (await session.arun("2")).value == 2
        with pytest.raises(RuntimeError, match="closed"):
            await session.arun("1")

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("is_async", [False, True])
def test_close_ends_the_step_that_runs(make, is_async):
    session = make()
    begun = threading.Event()
    code = "print('begun', flush=True)\nbegun()\nwhile True: pass"
    tools = {"begun": begun.set}
    closing = threading.Thread(target=lambda: begun.wait(30) and session.close())
    closing.start()
    run = session.arun if is_async else session.run
    ran = run(code, tools=tools)
    ran = asyncio.run(ran) if is_async else ran
    assert (ran.killed_by, ran.error.kind) == ("interrupt", "KeyboardInterrupt")
    assert (ran.stdout, ran.success) == ("begun\n", False)
    closing.join()
    with pytest.raises(RuntimeError, match="^the session is closed$"):
        session.run("1")


@pytest.mark.slow
def test_a_session_runs_one_step_at_a_time(session, place):
    thread = threading.Thread(target=session.run, args=("import time\ntime.sleep(0.5)",))
    thread.start()
    time.sleep(0.2)
    uses = [lambda: session.run("1")]
    if place == "sandbox":
        uses += [session.undo, session.reset, lambda: session.names]
    for use in uses:
        with pytest.raises(RuntimeError, match="runs a step already"):
            use()
    thread.join()
    assert value(session, "1") == 1


async def double(n):
    """A coroutine tool of the host that takes a moment."""
    await asyncio.sleep(0.3)
    return 2 * n


@pytest.mark.slow
def test_a_step_that_is_refused_leaves_functions_to_the_one_that_runs(make):
    """In the same event loop, and in another thread."""
    session = make(tools={"double": double}, timeout=5)
    code = "import time\ntime.sleep(0.3)\nawait double(3)"

    async def refused():
        with pytest.raises(RuntimeError, match="already"):
            await session.arun("1")

    async def main():
        task = asyncio.create_task(session.arun(code))
        await asyncio.sleep(0.1)
        await refused()
        with pytest.raises(RuntimeError, match="already"):
            session.run("1")
        return await task

    ran = asyncio.run(main())
    assert (ran.value, ran.error) == (6, None)

    results = []
    for step in (code, "await double(3)"):
        thread = threading.Thread(target=lambda step=step: results.append(session.run(step)))
        thread.start()
        time.sleep(0.1)
        asyncio.run(refused())
        thread.join()
    assert [(ran.value, ran.error) for ran in results] == [(6, None)] * 2


def test_sessions_side_by_side(make):
    code = "import time\nfor _ in range(20):\n    print({!r})\n    time.sleep(0.005)"
    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(make().run, code.format(name)) for name in "ab"]
    assert [run.result().stdout for run in runs] == ["a\n" * 20, "b\n" * 20]


def test_too_much_output_ends_the_step(make):
    session = make(output=100_000)
    result = session.run("while True:\n    print('x' * 1000)")
    assert result.killed_by == "output"
    assert 50_000 < len(result.stdout) <= 100_000


def test_files_that_change_are_told(session):
    result = session.run(
        "open('a.txt', 'w').write('1')\nimport os\nos.mkdir('d')\nopen('d/b.txt', 'w').write('1')"
    )
    assert result.changed == ["a.txt", "d/b.txt"]
    assert session.run("1").changed == []


def test_standard_input(session):
    ran = session.run(
        "import sys\nname = input('Who? ')\nname, sys.stdin.readline(), sys.stdin.read()",
        stdin="Ada\n1\n2\nä",
    )
    assert (ran.value, ran.stdout) == (("Ada", "1\n", "2\nä"), "Who? ")
    ran = session.run("sys.stdin.buffer.read()", stdin=b"\xff\0\r\n")
    assert ran.value == b"\xff\0\r\n"
    # The next step has none of what is left, and a module reads it as the step does.
    session.run("import builtins\nbuiltins.input()", stdin="1\n2\n")
    ended = [session.run(code).error for code in ("input('?')", "builtins.input()")]
    assert [error.kind for error in ended] == ["EOFError"] * 2
    assert ended[0].message == "the step has no standard input: the host gives it with stdin="
    assert value(session, "sys.stdin.read()") == ""
    assert session.run("input()", stdin="").error.message == "EOF when reading a line"
    assert "input" not in session.names
    # Code may have an input of its own.
    code = (
        "import io\nold, sys.stdin = sys.stdin, io.StringIO('own')\nline = input()\nsys.stdin = old"
    )
    assert value(session, f"{code}\nline") == "own"


def test_long_code(session):
    ran = session.run(f"x = {'ä' * 2_000_000!r}\nlen(x), input()", stdin="1", variables={"y": 1})
    assert (ran.error, ran.value) == (None, (2_000_000, "1"))
    assert session.run("'\udcff'").error.kind == "UnicodeEncodeError"


def test_wrong_input(session):
    with pytest.raises(TypeError, match="stdin must be str or bytes, not int: pass the text"):
        session.run("1", stdin=3)
    assert session.run("input()", stdin="\udcff").value == "\udcff"


def test_exit_ends_the_step_alone(session):
    assert session.run("exit(3)").returncode == 3
    assert value(session, "1") == 1
