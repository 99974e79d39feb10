"""The session of an adapter: turns of steps, processes that ended, and imports of packages."""

import asyncio
import json
import threading

import pytest
from programs import printed

from fastaudit_rs import Limits, Policy, SandboxError
from fastaudit_rs.adapters.steps import Steps, as_data, described
from fastaudit_rs.sessions.base import Session

POLICY = Policy.preset("workspace")
MAKE = Steps


@pytest.fixture
def steps(make):
    return make()


def test_steps_take_turns_in_the_order_that_they_were_asked_for(steps):
    async def ask():
        codes = [
            "import time\ntime.sleep(0.1)\ndone = []",
            *(f"done.append({n})" for n in range(9)),
        ]
        await asyncio.gather(*map(steps.arun, codes))
        return (await steps.arun("done")).value

    assert asyncio.run(ask()) == list(range(9))
    # Another event loop, and none.
    assert asyncio.run(steps.arun("done.append(9)")).success
    assert steps.run("done").value == list(range(10))


def test_a_step_that_is_cancelled_leaves_its_turn_to_the_next(steps):
    async def ask():
        running = asyncio.create_task(steps.arun("x = 1\nwhile True: pass"))
        waiting = asyncio.create_task(steps.arun("x = 2"))
        last = asyncio.create_task(steps.arun("x"))
        await asyncio.sleep(0.2)
        waiting.cancel()
        await asyncio.sleep(0.05)
        assert not last.done()
        running.cancel()
        ran = await asyncio.gather(running, waiting, last, return_exceptions=True)
        return [type(one).__name__ for one in ran[:2]], ran[2].value

    assert asyncio.run(ask()) == (["CancelledError", "CancelledError"], 1)


#: Uses more memory than it may.
HUNGRY = "data = b'x' * (500 << 20)"


def test_a_process_that_ended_is_not_the_end():
    pytest.importorskip("sandlock")
    steps = Steps(POLICY, "sandbox", limits=Limits(memory="200M"))
    steps.run("x = 1")
    told = steps.run(HUNGRY).for_model()
    assert "MemoryError: the step took more memory" in told
    assert "the next step has the names from before this" in told and "reset" not in told
    assert steps.run("x").value == 1
    asyncio.run(steps.arun(HUNGRY))
    assert asyncio.run(steps.arun("x")).value == 1
    steps.close()


class Lying(Session):
    """A session whose process breaks the rules in the course of a step."""

    def __init__(self):
        self.ran, self._streams = [], set()

    def run(self, code, **options):
        self.ran.append(code)
        raise SandboxError("the session's process broke the rules")

    async def arun(self, code, **options):
        self.run(code)

    def undo(self):
        self.ran.append("undone")

    close = get = interrupt = names = reset = stream = None


Lying.__abstractmethods__ = frozenset()


def test_a_step_whose_process_breaks_the_rules_is_not_run_again():
    session = Lying()
    assert "broke the rules" in Steps(session).run("1").for_model()
    assert "broke the rules" in asyncio.run(Steps(session).arun("2")).for_model()
    assert session.ran == ["1", "undone", "2", "undone"]


@pytest.mark.slow
def test_a_step_that_runs_on_keeps_its_thread():
    def run_on(seconds):
        threading.Timer(0.1, session.interrupt).start()
        message = steps.run(f"time.sleep({seconds})").error.message
        assert "was undone: it runs on" in message

    with POLICY.session() as session:
        steps = Steps(session)
        steps.run("import time\nx = 1")
        run_on(2)
        assert steps.run("x").value == 1
        run_on(2)
        assert steps.run("2").value == 2
        assert steps.run("x").value == 1
    with pytest.raises(RuntimeError, match="closed"):
        steps.run("1")


def test_a_result_as_data(steps):
    code = "try: open('/srv/x', 'w')\nexcept OSError: pass\n"
    code += "class A:\n    def _repr_html_(self): return '<b>' + chr(0xD800)\n"
    code += "display(A())\nraise ValueError(chr(0xD800))"
    told = as_data(steps.run(code))
    json.dumps(told, ensure_ascii=False).encode()
    assert (told["returncode"], told["killed_by"], told["changed"]) == (1, None, [])
    assert (told["error"]["kind"], told["error"]["line"]) == ("ValueError", 6)
    assert [denied["path"] for denied in told["denied"]] == ["/srv/x"]
    assert [shown["text/html"] for shown in told["display"]] == ["<b>?"]


def test_a_description_tells_of_functions():
    async def ask(question: str) -> str:
        """Ask somebody.

        It may take long.
        """

    class Unsigned:
        """Do something."""

        __signature__ = 3

        def __call__(self):
            pass

    tools = {"ask": ask, "most": Unsigned(), "plain": lambda a, *b: 0}
    told = described(tools).splitlines()
    assert told[-3] == "- await ask(question: str) -> str: Ask somebody."
    assert told[-2] == "- most(...): Do something."
    assert told[-1] == "- plain(a, *b)"
    assert "functions" not in described(None)
    assert described([ask]).splitlines()[-1] == told[-3]
    with pytest.raises(TypeError, match="tools must be a mapping .*write {'ask': ask}"):
        described(ask)
    with pytest.raises(TypeError, match=r"tools\[1\] is a function without a name"):
        described([ask, lambda: 1])
    with pytest.raises(ValueError, match="two have the name 'ask'"):
        described([ask, ask])


@pytest.mark.parametrize("module", ["smolagents", "langchain", "pydantic_ai"])
def test_nothing_imports_an_adapter_and_each_says_what_it_needs(module):
    package = {"langchain": "langchain_core"}.get(module, module)
    code = f"""
import sys
import fastaudit_rs, fastaudit_rs.sandbox, fastaudit_rs.tools.cli
assert not [name for name in sys.modules if "adapters" in name or name == {package!r}]
sys.modules[{package!r}] = None
try:
    import fastaudit_rs.adapters.{module}
except ImportError as error:
    print(error)
"""
    extra = module.replace("_", "-")
    assert f"pip install 'fastaudit-rs[{extra}]'" in printed(code)
