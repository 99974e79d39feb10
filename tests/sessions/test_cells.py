"""What people write in a notebook's cell: tasks that go on, ``_``, and commands of IPython."""

import time
import warnings

import pytest
from steps import value

TASK = """
import asyncio
async def work():
    await asyncio.sleep(0.01)
    print("done")
    return 5
"""

#: Steps that start a task without awaiting anything.
STARTS = (
    "task = asyncio.create_task(work())",
    "task = asyncio.ensure_future(work())",
    "task = asyncio.get_running_loop().create_task(work())",
    "def start():\n    return asyncio.create_task(work())\ntask = start()",
    "task = [asyncio.create_task(work()) for _ in range(1)][0]",
)


@pytest.mark.parametrize("start", STARTS)
def test_a_task_goes_on_in_the_next_step(session, start):
    session.run(TASK)
    ran = session.run(start)
    assert (ran.error, ran.stderr) == (None, "")
    assert value(session, "await task") == 5


def test_a_function_of_an_earlier_step_starts_a_task(session):
    session.run(TASK + "def start(): return asyncio.create_task(work())")
    session.run("task = start()")
    assert value(session, "await task") == 5


#: Programs that have an event loop of their own, and code that would start tasks.
OWN = (
    "class A:\n    def start(self): return asyncio.create_task(work())\n"
    "async def main(): return await A().start()\nasyncio.run(main())",
    "loop = asyncio.new_event_loop()\nloop.run_until_complete(loop.create_task(work()))",
    "async def main(): return await asyncio.create_task(work())\nasyncio.run(main())",
)


@pytest.mark.parametrize("program", OWN)
def test_a_program_has_its_own_loop(session, program):
    session.run(TASK)
    assert value(session, program) == 5


def test_between_steps(make, place):
    """Tasks go on between the steps of a sandbox, and in this process while a step awaits."""
    session = make()
    session.run(TASK + "task = asyncio.create_task(work())")
    time.sleep(0.3)
    assert value(session, "task.done()") is (place == "sandbox")
    assert session.run("await asyncio.sleep(0.1); task.done()").value is True


def test_a_task_uses_a_tool_between_steps(make):
    def double(number: int) -> int:
        return number * 2

    async def triple(number: int) -> int:
        return number * 3

    session = make(tools={"double": double, "triple": triple})
    code = """
import asyncio
async def work():
    await asyncio.sleep(0.01)
    return double(1), await triple(1)
task = asyncio.create_task(work())
"""
    assert session.run(code).success
    time.sleep(0.1)
    assert value(session, "await task") == (2, 3)
    assert session.names == ["asyncio", "work", "task"]


#: Tasks that do not go on as they should, between two steps.
WILD = {
    "while True: pass": "wall_seconds",
    "raise SystemExit(3)": None,
    "raise KeyboardInterrupt": None,
    "asyncio.get_running_loop().stop()": None,
    "asyncio.get_running_loop().close()": None,
    "print('x' * 200_000)": None,
    "import os; os.fork()": None,
}


@pytest.mark.parametrize("act", WILD)
def test_a_wild_task_between_steps(make, place, act):
    """The host is answered, or the limit ends it."""
    if place == "here":
        pytest.skip("tasks go on while a step runs")
    session = make(timeout=2)
    session.run(f"import asyncio\nasync def work():\n    await asyncio.sleep(0.01)\n    {act}\n")
    session.run("x = 1\ntask = asyncio.create_task(work())")
    time.sleep(0.2)
    ran = session.run("x += 1\nx")
    assert (ran.killed_by, ran.value) == (WILD[act], 2)
    assert value(session, "1") == 1


def test_a_task_that_is_interrupted(session):
    """It takes the step's time, and leaves the loop whole."""
    session.run("import asyncio\nasync def work():\n    while True: pass")
    code = "task = asyncio.create_task(work())"
    assert session.run(code, timeout=0.5).killed_by == "wall_seconds"
    assert value(session, "await asyncio.sleep(0.01, 3)") == 3
    assert value(session, "task.done()") is True


def test_undo_with_a_task(session):
    session.run("import asyncio\nasync def f(): return 1\nx = 1\ntask = asyncio.create_task(f())")
    session.run("await task\nx = 2")
    session.undo()
    assert value(session, "x + await task") == 2


@pytest.mark.skipif("sys.version_info < (3, 11)", reason="lets go of it later")
def test_a_coroutine_that_is_not_awaited(session):
    """The warning names no file of this package."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        ran = session.run("async def f(): pass\ndef g(coroutine): raise ValueError\ng(f())")
    # Garbage of other tests may be warned of too.
    found = [one for one in found if one.category is RuntimeWarning]
    shown = ran.stderr + "".join(f"{one.filename}: {one.message}" for one in found)
    assert "<session>" in shown and "never awaited" in shown and "fastaudit" not in shown


def test_the_last_value(session):
    assert value(session, "40 + 2") == 42
    assert value(session, "x = _") is None
    assert value(session, "_ + 1, x") == (43, 42)
    assert (session.names, value(session, "None"), value(session, "_")) == (["x"], None, (43, 42))
    session.undo()
    assert value(session, "[1]; _") == (43, 42)
    assert value(session, "[2]") == [2]
    assert value(session, "_") == [2]


def test_a_name_that_the_code_gives_stays(session):
    session.run("from gettext import gettext as _")
    assert [value(session, "_('a')") for _ in range(2)] == ["a", "a"]
    assert session.names == ["_"]


#: Commands of IPython, and words of the error.
COMMANDS = {
    "!ls -l": "'!ls -l' is a command of IPython, which does not run here: write subprocess.run()",
    "x = !ls": "'!ls' is a command",
    "%timeit 1": "'%timeit 1' is a command of IPython, which does not run here: write Python",
    "%%bash\nls": "write subprocess.run()",
    "1\nif 1:\n    %cd /tmp": "'%cd /tmp' is a command",
}


@pytest.mark.parametrize("code", COMMANDS)
def test_commands_of_ipython(session, code):
    error = session.run(code).error
    assert (error.kind, COMMANDS[code] in error.message) == ("SyntaxError", True)
    assert COMMANDS[code] in error.traceback


def test_figures_are_inline_anyway(session):
    ran = session.run("%matplotlib inline\nif 1:\n    %matplotlib widget\nx = '''\n%d'''\n1 / 0")
    assert (ran.error.kind, ran.error.line) == ("ZeroDivisionError", 6)
    assert session.run("x = 1 %\n").error.message.startswith("invalid syntax")
