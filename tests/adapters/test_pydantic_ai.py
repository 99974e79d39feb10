"""The toolset for agents of Pydantic AI, with the package and a scripted model."""

import asyncio
import json

import pytest
from loops import awaited

from fastaudit_rs import Policy

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from fastaudit_rs.adapters.pydantic_ai import PythonToolset

pytestmark = pytest.mark.slow

POLICY = Policy.preset("workspace")


def scripted(*codes):
    """A model that calls the tool with each code in turn, and answers then."""
    left = list(codes)
    seen = []

    def answer(messages, info):
        seen[:] = info.function_tools
        wanted = left.pop(0) if left else "done"
        if wanted == "done":
            return ModelResponse([TextPart("It is 17.")])
        several = [wanted] if isinstance(wanted, str) else wanted
        return ModelResponse([ToolCallPart("python", {"code": code}) for code in several])

    model = FunctionModel(answer)
    model.seen = seen
    return model


def answers(ran):
    return [
        part
        for message in ran.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_conversation_of_five_steps(place, is_async):
    kept = {}

    async def keep(name: str, text: str) -> int:
        """Keep a note."""
        kept[name] = text
        return len(text)

    model = scripted(
        "primes = [2, 3, 5]",
        "open('/srv/primes', 'w').write(str(primes))",
        "open('primes', 'w').write(str(primes))\nprint('kept', await keep('a', str(primes)))",
        "primes[3]",
        "primes.append(7)\nsum(primes)",
    )
    agent = Agent(model, toolsets=[PythonToolset(POLICY, place, tools={"keep": keep})])
    ran = asyncio.run(agent.run("Sum.")) if is_async else agent.run_sync("Sum.")
    assert ran.output == "It is 17."
    told = [answer.content for answer in answers(ran)]
    assert told[0] == "It ran, and printed nothing."
    assert told[1].startswith("error:\nTraceback") and "To allow it: write = [" in told[1]
    assert told[2] == "stdout:\nkept 9" and kept == {"a": "[2, 3, 5]"}
    assert told[3].endswith("IndexError: list index out of range")
    assert told[4] == "value:\n17"
    metadata = [answer.metadata for answer in answers(ran)]
    assert [one["returncode"] for one in metadata] == [0, 77, 0, 1, 0]
    assert metadata[1]["denied"][0]["path"] == "/srv/primes"
    kept_messages = json.loads(ran.all_messages_json())
    assert kept_messages[4]["parts"][0]["metadata"] == metadata[1]
    assert [one["is_error"] for one in metadata] == [False, True, False, True, False]
    (tool,) = model.seen
    assert "- Write files in: the working directory" in tool.description
    assert ("2 GB of memory" in tool.description) is (place == "sandbox")
    assert "- await keep(name: str, text: str) -> int: Keep a note." in tool.description
    assert tool.parameters_json_schema["properties"]["code"]["description"] == "The Python code."
    assert tool.parameters_json_schema["required"] == ["code"]


def test_figures_reach_the_model_and_files_the_host(place, tmp_path):
    shown = "class A:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n'\n"
    options = {"directory": tmp_path} if place == "here" else {}
    toolset = PythonToolset(POLICY, place, **options)
    model = scripted(f"{shown}open('a', 'w').write('b')\nA()")
    ran = Agent(model, toolsets=[toolset]).run_sync("Draw.")
    [answer] = answers(ran)
    text, image = answer.content
    assert text.endswith("displayed:\nimage 1")
    assert (image.data, image.media_type) == (b"\x89PNG\r\n\x1a\n", "image/png")
    assert answer.metadata["files"] == {"a": "Yg=="}
    assert json.loads(ran.all_messages_json())


def test_calls_of_a_message_run_in_turn(place):
    codes = ["import time\ntime.sleep(0.2)\nn = 1", "n += 1\nn", "n += 1\nn"]
    ran = Agent(scripted(codes), toolsets=[PythonToolset(POLICY, place)]).run_sync("Count.")
    told = [answer.content for answer in answers(ran)]
    assert told == ["It ran, and printed nothing.", "value:\n2", "value:\n3"]


def test_each_run_has_a_session_which_ends_with_it(place):
    made = []

    class Noted(PythonToolset):
        async def for_run(self, ctx):
            made.append(await super().for_run(ctx))
            return made[-1]

    toolset = Noted(POLICY, place)
    for _ in range(2):
        codes = ["'x' in globals()", "x = 1", "x"]
        ran = Agent(scripted(*codes), toolsets=[toolset]).run_sync("Look.")
        assert [answer.content for answer in answers(ran)][::2] == ["value:\nFalse", "value:\n1"]
    assert made[0] is not made[1]
    for one in made:
        with pytest.raises(RuntimeError, match="closed"):
            one._steps.run("1")


def test_runs_share_a_session_of_the_host():
    with POLICY.session() as session:
        toolset = PythonToolset(session, name="python", description="Run.", id="run")
        for codes in (["x = 1"], ["x + 1"]):
            model = scripted(*codes)
            ran = Agent(model, toolsets=[toolset]).run_sync("Go on.")
        assert answers(ran)[0].content == "value:\n2"
        assert (toolset.id, model.seen[0].description) == ("run", "Run.")
        assert session.get("x") == 1


def test_it_runs_in_runs_alone():
    toolset = PythonToolset(POLICY)
    with pytest.raises(RuntimeError, match="in a run of an agent"):
        asyncio.run(toolset._run_python("1"))


def test_a_run_leaves_the_threads_of_the_loop_to_the_host(place):
    """A coroutine function can be asked too: it runs in the loop that the session is made for."""
    asked = []

    async def on_ask(denied):
        asked.append(denied.event)
        return "deny"

    options = {"approvable": Policy(write=["/srv"])} if place == "sandbox" else {}

    async def main():
        toolset = PythonToolset(POLICY, place, on_ask=on_ask, **options)
        async with await toolset.for_run(None) as own:
            return [await own._run_python(code) for code in ("1", "open('/srv/a', 'w')")]

    first, second = awaited(main)
    assert first.return_value == "value:\n1"
    assert (second.metadata["returncode"], asked) == (77, ["open"])


def test_wrong_arguments():
    with pytest.raises(ValueError, match="place must be"):
        PythonToolset(POLICY, "there")
    with pytest.raises(TypeError, match="policy must be"):
        PythonToolset("workspace")
    with pytest.raises(ValueError, match="timeout must be positive"):
        PythonToolset(POLICY, timeout=-1)
    with pytest.raises(TypeError, match="tools must be a mapping"):
        PythonToolset(POLICY, tools=3)
    with pytest.raises(TypeError, match="no_such"):
        PythonToolset(POLICY, no_such=1)
