"""The tool for the OpenAI Agents SDK, with the package and a scripted model."""

import base64
import json

import pytest
from loops import awaited

from fastaudit_rs import Policy

pytest.importorskip("agents")

from agents import Agent, Runner, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from fastaudit_rs.adapters.openai_agents import python_tool

pytestmark = pytest.mark.slow

POLICY = Policy.preset("workspace")
MAKE = python_tool


@pytest.fixture(autouse=True)
def untraced():
    set_tracing_disabled(True)


class Scripted(Model):
    """A model that calls the tool with each code in turn, and answers then."""

    def __init__(self, *codes):
        self.left = list(codes)
        self.inputs = []

    async def get_response(self, system_instructions, input, model_settings, tools, **options):
        self.tools = tools
        self.inputs.append(input)
        output = []
        if self.left:
            arguments = self.left.pop(0)
            for number, one in enumerate(arguments if isinstance(arguments, list) else [arguments]):
                text = one if one.startswith("{") else json.dumps({"code": one})
                output.append(
                    ResponseFunctionToolCall(
                        type="function_call",
                        name="python",
                        arguments=text,
                        call_id=f"{len(self.inputs)} {number}",
                    )
                )
        else:
            text = ResponseOutputText(type="output_text", text="It is 17.", annotations=[])
            output.append(
                ResponseOutputMessage(
                    id="1", type="message", role="assistant", status="completed", content=[text]
                )
            )
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args, **options):
        raise NotImplementedError


def run(tool, *codes):
    model = Scripted(*codes)
    agent = Agent("Analyst", model=model, tools=[tool])
    # The threads of the loop's executor are the host's.
    ran = awaited(lambda: Runner.run(agent, "Go."))
    items = [item for item in ran.new_items if item.type == "tool_call_output_item"]
    return ran, model, items


def test_a_conversation_of_five_steps(make):
    kept = {}

    def keep(name: str, text: str) -> int:
        """Keep a note."""
        kept[name] = text
        return len(text)

    tool = make(tools={"keep": keep}, timeout=20)
    ran, model, items = run(
        tool,
        "primes = [2, 3, 5]",
        "open('/srv/primes', 'w').write(str(primes))",
        "open('primes', 'w').write(str(primes))\nprint('kept', keep('a', str(primes)))",
        "primes[3]",
        "primes.append(7)\nsum(primes)",
    )
    assert ran.final_output == "It is 17."
    told = [item.output for item in items]
    assert told[0] == "It ran, and printed nothing."
    assert told[1].startswith("error:\nTraceback") and "To allow it: write = [" in told[1]
    assert told[2] == "stdout:\nkept 9" and kept == {"a": "[2, 3, 5]"}
    assert told[3].endswith("IndexError: list index out of range") and told[4] == "value:\n17"
    data = json.loads(json.dumps([item.custom_data for item in items]))
    assert [one["is_error"] for one in data] == [False, True, False, True, False]
    assert data[1]["denied"][0]["path"] == "/srv/primes"
    [one] = model.tools
    assert "- keep(name: str, text: str) -> int: Keep a note." in one.description
    assert "- Limits: 20 seconds a call" in one.description
    assert one.params_json_schema["required"] == ["code"]


def test_figures_reach_the_model(make):
    shown = "class A:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n'\nA()"
    _, model, _ = run(make(), shown)
    text, image = model.inputs[-1][-1]["output"]
    assert text["type"] == "input_text" and text["text"].endswith("displayed:\nimage 1")
    head, _, data = image["image_url"].partition(",")
    assert (image["type"], head) == ("input_image", "data:image/png;base64")
    assert base64.b64decode(data) == b"\x89PNG\r\n\x1a\n"
    _, model, _ = run(make(images=False), shown)
    assert model.inputs[-1][-1]["output"].endswith("displayed:\nimage 1")


def test_calls_of_a_message_run_in_turn(make):
    codes = ["import time\ntime.sleep(0.2)\nn = 1", "n += 1\nn", "n += 1\nn"]
    _, _, items = run(make(), codes)
    outputs = [item.output for item in items]
    assert outputs == ["It ran, and printed nothing.", "value:\n2", "value:\n3"]


@pytest.mark.parametrize("wrong", ['{"cod": "1"}', '{"code": 1}', '{"code": "1", "x": 2}', "{"])
def test_wrong_arguments_of_the_model(make, wrong):
    _, _, (item, after) = run(make(), wrong, "1")
    assert item.output.startswith("The arguments must be a JSON object with the text `code`")
    assert item.custom_data is None and after.output == "value:\n1"


def test_a_session_of_the_host():
    with POLICY.session() as session, python_tool(session, description="Run.") as tool:
        assert (tool.name, tool.description, tool.session) == ("python", "Run.", session)
        _, _, [item] = run(tool, "x = 2\nx")
        assert item.output == "value:\n2"
        tool.close()
        assert session.get("x") == 2


def test_wrong_arguments():
    with pytest.raises(TypeError, match="no_such"):
        python_tool(POLICY, no_such=1)
    with pytest.raises(ValueError, match="timeout must be positive"):
        python_tool(POLICY, timeout=-1)
