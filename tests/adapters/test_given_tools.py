"""Tools of agent packages given to sessions as they are, and sessions given to the packages."""

import asyncio
import enum
import typing

import pytest

from fastaudit_rs import Policy, Sandbox


class Size(enum.Enum):
    SMALL = "small"


def value(session, code):
    ran = session.run(code)
    assert ran.error is None, ran.error
    assert ran.value_error is None
    return ran.value


def error(session, code):
    found = session.run(code).error
    return f"{found.kind}: {found.message}"


@pytest.fixture
def opened(place):
    """`opened(tools)`: a session in the place."""
    import contextlib

    with contextlib.ExitStack() as stack:

        def open_one(tools):
            policy = Policy(native=["PIL"])
            where = policy if place == "here" else stack.enter_context(Sandbox(policy))
            return stack.enter_context(where.session(tools=tools))

        yield open_one


class TestLangChain:
    @pytest.fixture(autouse=True)
    def package(self):
        pytest.importorskip("langchain_core")

    def test_functions(self, opened):
        import pydantic
        from langchain_core.tools import tool

        class Item(pydantic.BaseModel):
            name: str

        @tool
        def add(one: int, other: int = 2) -> int:
            """Add two numbers."""
            return one + other

        @tool
        async def later(item: Item) -> Item:
            """Have it later."""
            assert type(item) is Item
            return item

        session = opened([add, later])
        assert value(session, "add(1), add(1, 3), add(other=4, one=1)") == (3, 4, 5)
        assert value(session, "await later({'name': 'tea'})") == {"name": "tea"}
        assert error(session, "add('x')") == (
            "ValueError: tool 'add': one: Input should be a valid integer, unable to parse string "
            "as an integer"
        )
        assert error(session, "await later({})") == (
            "ValueError: tool 'later': item.name: Field required"
        )
        assert error(session, "add(1, 2, 3)").startswith("TypeError: add() takes 2 positional")
        assert value(session, "add.__doc__, add.schema['parameters']['required']") == (
            "Add two numbers.",
            ["one"],
        )

    def test_a_class_of_tools_by_another_name(self, opened):
        from langchain_core.tools import BaseTool

        class Search(BaseTool):
            name: str = "web-search"
            description: str = "Search."

            def _run(self, query: str) -> str:
                return query.upper()

        assert value(opened({"search": Search()}), "search('tea')") == "TEA"
        with pytest.raises(ValueError, match=r"'web-search' .* write 'web_search'"):
            opened([Search()])

    def test_a_session_is_a_tool(self):
        from langchain_core.tools import StructuredTool

        with Policy().session() as session:
            tool = StructuredTool.from_function(session.run, name="python")
            assert set(tool.args) == {"code", "stdin", "timeout"}
            schema = tool.tool_call_schema.model_json_schema()
            assert set(schema["properties"]) == {"code", "stdin", "timeout"}
            ran = tool.invoke(
                {"type": "tool_call", "id": "1", "name": "python", "args": {"code": "6 * 7"}}
            )
            assert "42" in ran.content

    def test_its_tool_closes_its_session(self):
        from fastaudit_rs.adapters.langchain import python_tool

        with python_tool(Policy()) as tool:
            assert "42" in tool.invoke({"code": "6 * 7"})
        with pytest.raises(RuntimeError, match="closed"):
            tool.sessions.run("a", "1")


class TestPydanticAI:
    @pytest.fixture(autouse=True)
    def package(self):
        pytest.importorskip("pydantic_ai")

    def test_functions(self, opened):
        from pydantic_ai import Tool

        def order(size: Size, count: int = 1) -> list[Size]:
            return [size] * count

        async def later(**given):
            return given

        schema = {
            "type": "object",
            "properties": {"note": {"type": "string"}, "when": {"type": "integer"}},
            "required": ["when"],
        }
        made = Tool.from_schema(later, name="later", description="Later.", json_schema=schema)
        session = opened([Tool(order, name="buy", description="Buy some."), made])
        assert value(session, "buy('small', 2)") == ["small", "small"]
        assert error(session, "buy('huge')") == (
            "ValueError: tool 'buy': size must be one of 'small', not 'huge'"
        )
        assert value(session, "await later(3, note='a')") == {"when": 3, "note": "a"}
        assert value(session, "buy.__doc__, later.__doc__") == ("Buy some.", "Later.")
        assert value(session, "later.schema['parameters']") == schema

    def test_names_that_no_parameter_of_python_has(self, opened):
        from pydantic_ai import Tool

        async def send(**given):
            return given

        names = {"from": {}, "a b": {}, "to": True, "self": {}}
        schema = {"type": "object", "properties": names}
        made = Tool.from_schema(send, name="send", description="Send.", json_schema=schema)
        given = {"from": 1, "a b": 2, "self": 3}
        assert value(opened([made]), f"await send('me', **{given})") == {"to": "me", **given}

    def test_one_that_takes_the_context_of_a_run(self, opened):
        from pydantic_ai import RunContext, Tool

        def order(ctx: RunContext[int], count: int) -> int:
            return count

        with pytest.raises(TypeError, match=r"tools\['order'\] takes a RunContext"):
            opened([Tool(order)])

    @pytest.mark.parametrize("method", ["run", "arun"])
    def test_a_session_is_a_tool(self, method):
        from pydantic_ai import Tool

        with Policy().session() as session:
            schema = Tool(getattr(session, method)).function_schema.json_schema
        assert set(schema["properties"]) == {"code", "stdin", "timeout"}

    def test_the_model_is_told_of_a_step(self):
        from pydantic_ai import Agent, Tool
        from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
        from pydantic_ai.models.function import FunctionModel

        codes = ["6 * 7", "open('/srv/x', 'w')"]

        def model(messages, info):
            if codes:
                return ModelResponse([ToolCallPart("run", {"code": codes.pop(0)})])
            return ModelResponse([TextPart("done")])

        with Policy().session() as session:
            ran = Agent(FunctionModel(model), tools=[Tool(session.run)]).run_sync("Count.")
        parts = [part for message in ran.all_messages() for part in message.parts]
        told = [x.model_response_str() for x in parts if isinstance(x, ToolReturnPart)]
        assert told[0] == "value:\n42"
        assert "Denied: open the file '/srv/x'" in told[1]

    @pytest.mark.parametrize(
        ("options", "kind", "told"),
        [
            ({"timeout": -1}, ValueError, "timeout must be positive"),
            ({"timeout": "1"}, TypeError, "timeout must be a number"),
            ({"tool_calls": 0}, ValueError, "tool_calls must be positive"),
            ({"limits": 1}, TypeError, "limits"),
            ({"place": "sandbox", "directory": "/tmp"}, TypeError, "directory"),
            ({"tools": {"a": 1}}, TypeError, r"tools\['a'\]"),
            ({"tools": 1}, TypeError, "tools must be a mapping"),
        ],
    )
    def test_wrong_options_are_told_at_once(self, options, kind, told):
        from fastaudit_rs.adapters.pydantic_ai import PythonToolset

        with pytest.raises(kind, match=told):
            PythonToolset(Policy(), **options)


class TestSmolagents:
    @pytest.fixture(autouse=True)
    def package(self):
        pytest.importorskip("smolagents")

    def test_functions(self, opened):
        import smolagents

        @smolagents.tool
        def price(item: str, factor: int | None = None) -> float:
            """Tell a price.

            Args:
                item: What is to be bought.
                factor: How many.
            """
            return 2.0 * (factor or 1)

        class Draw(smolagents.Tool):
            name = "draw"
            description = "Draw something."
            inputs: typing.ClassVar = {"width": {"type": "integer", "description": "The width."}}
            output_type = "image"

            def forward(self, width: int):
                from PIL import Image

                return Image.new("RGB", (width, 2))

        session = opened([price, Draw()])
        assert value(session, "price('tea'), price('tea', 3), price(factor=2, item='a')") == (
            2,
            6,
            4,
        )
        assert value(session, "draw(3).size") == (3, 2)
        assert "missing 1 required" in error(session, "price()")
        signature = "import inspect\nstr(inspect.signature(price)).replace(\"'\", '')"
        assert value(session, signature) == "(item: str, factor: int | None = None)"

    @pytest.mark.parametrize(
        "answer",
        [
            "{1, 2}",
            "__import__('datetime').date(2026, 1, 2)",
            "__import__('numpy').arange(3)",
            "__import__('pandas').DataFrame({'a': [1]})",
            "__import__('PIL.Image').Image.new('L', (2, 2))",
        ],
    )
    def test_an_answer_may_be_anything_that_is_passed(self, place, answer):
        pytest.importorskip("pandas")
        from smolagents import FinalAnswerTool

        from fastaudit_rs.adapters.smolagents import GuardedExecutor

        policy = Policy(packages=["numpy", "pandas"], native=["PIL", "pyarrow"])
        with GuardedExecutor(policy, place, authorized_imports=["*"]) as executor:
            executor.send_tools({"final_answer": FinalAnswerTool()})
            ended = executor(f"x = {answer}\nfinal_answer(x)")
            assert ended.is_final_answer
            assert type(ended.output) is type(eval(answer))

    def test_additional_arguments(self, place):
        images = pytest.importorskip("PIL.Image")
        from fastaudit_rs.adapters.smolagents import GuardedExecutor

        with GuardedExecutor(Policy(native=["PIL"]), place) as executor:
            executor.send_variables({"image": images.new("RGB", (3, 2)), "sizes": {Size.SMALL}})
            assert executor("image.size, sizes").output == ((3, 2), {"small"})


@pytest.mark.parametrize("method", ["run", "arun"])
def test_the_openai_sdk_makes_a_tool_of_a_session(method):
    """It awaits a tool that is a coroutine function by its own account alone."""
    agents = pytest.importorskip("agents")
    from agents.tool_context import ToolContext

    given = '{"code": "6 * 7"}'
    context = ToolContext(context=None, tool_name=method, tool_call_id="1", tool_arguments=given)
    with Policy().session() as session:
        tool = agents.function_tool(getattr(session, method))
        told = asyncio.run(tool.on_invoke_tool(context, given))
    assert set(tool.params_json_schema["properties"]) == {"code", "stdin", "timeout"}
    assert str(told) == "value:\n42"
