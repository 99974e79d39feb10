"""The tool for agents of LangChain and LangGraph, with the packages and a scripted model."""

import asyncio
import base64
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from fastaudit_rs import Policy, SessionManager

pytest.importorskip("langchain")
pytest.importorskip("langgraph")

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from fastaudit_rs.adapters.langchain import python_tool

pytestmark = pytest.mark.slow

POLICY = Policy.preset("workspace")
MAKE = python_tool


class Scripted(GenericFakeChatModel):
    """A model that sends the next message, whatever it is told."""

    def bind_tools(self, tools, **options):
        return self


def calls(*codes):
    """A message that calls the tool."""
    wanted = [
        {"name": "python", "args": {"code": code}, "id": f"{number} {code}"}
        for number, code in enumerate(codes)
    ]
    return AIMessage("", tool_calls=wanted)


def answers(state):
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_conversation_of_five_steps(make, is_async, tmp_path):
    kept = {}

    def keep(name: str, text: str) -> int:
        """Keep a note."""
        kept[name] = text
        return len(text)

    tool = make(tools={"keep": keep})
    assert "- keep(name: str, text: str) -> int: Keep a note." in tool.description
    script = [
        calls("primes = [2, 3, 5]"),
        calls("open('/srv/primes', 'w').write(str(primes))"),
        calls("open('primes', 'w').write(str(primes))\nprint('kept', keep('a', str(primes)))"),
        calls("primes[3]"),
        calls("primes.append(7)\nsum(primes)"),
        AIMessage("It is 17."),
    ]
    agent = create_agent(Scripted(messages=iter(script)), [tool], checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}
    asked = {"messages": [("user", "Sum the primes.")]}
    ran = agent.ainvoke(asked, thread) if is_async else agent.invoke(asked, thread)
    state = asyncio.run(ran) if is_async else ran
    assert state["messages"][-1].content == "It is 17."
    told = [answer.content for answer in answers(state)]
    assert told[0] == "It ran, and printed nothing."
    assert told[1].startswith("error:\nTraceback") and "To allow it: write = [" in told[1]
    assert told[2] == "stdout:\nkept 9" and kept == {"a": "[2, 3, 5]"}
    assert told[3].endswith("IndexError: list index out of range")
    assert told[4] == "value:\n17"
    saved = answers(agent.get_state(thread).values)
    assert [answer.artifact for answer in saved] == [answer.artifact for answer in answers(state)]
    artifacts = json.loads(json.dumps([answer.artifact for answer in saved]))
    assert [artifact["returncode"] for artifact in artifacts] == [0, 77, 0, 1, 0]
    assert artifacts[1]["denied"][0]["path"] == "/srv/primes"
    assert artifacts[3]["error"]["kind"] == "IndexError"


def test_a_node_of_a_graph_runs_calls_of_a_message_in_turn(make):
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([make()]))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    message = calls("import time\ntime.sleep(0.2)\nn = 1", "n += 1\nn", "n += 1\nn")
    compiled = graph.compile()
    state = asyncio.run(compiled.ainvoke({"messages": message}))
    told = [answer.content for answer in answers(state)]
    assert told == ["It ran, and printed nothing.", "value:\n2", "value:\n3"]
    state = compiled.invoke({"messages": calls("n += 1", "n += 1", "n += 1")})
    assert len(answers(state)) == 3
    assert compiled.invoke({"messages": calls("n")})["messages"][-1].content == "value:\n6"


def test_figures_reach_the_model(make):
    code = "class Shown:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n'\nShown()"
    call = calls(code).tool_calls[0]
    message = make().invoke({**call, "type": "tool_call"})
    text, image = message.content_blocks
    assert text["text"].endswith("displayed:\nimage 1")
    assert (image["type"], image["mime_type"]) == ("image", "image/png")
    assert base64.b64decode(image["base64"]) == b"\x89PNG\r\n\x1a\n"
    assert message.artifact["display"][0]["image/png"] == "iVBORw0KGgo="


def test_figures_for_a_model_that_takes_none(make):
    code = "class Shown:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n'\nShown()"
    message = make(images=False).invoke({**calls(code).tool_calls[0], "type": "tool_call"})
    assert message.content.endswith("displayed:\nimage 1")


@pytest.mark.parametrize("is_async", [False, True])
def test_the_status_of_a_message_says_failure(make, is_async):
    """An agent that counts failures by it saw none."""
    tool = make(timeout=5)
    codes = ["1", "1 / 0", "open('/srv/a', 'w')", "try: open('/srv/a', 'w')\nexcept OSError: 2"]
    wanted = [{**call, "type": "tool_call"} for call in calls(*codes).tool_calls]
    if is_async:

        async def ask():
            return [await tool.ainvoke(one) for one in wanted]

        messages = asyncio.run(ask())
    else:
        messages = [tool.invoke(one) for one in wanted]
    assert [message.status for message in messages] == ["success", "error", "error", "success"]
    assert [message.tool_call_id for message in messages] == [one["id"] for one in wanted]
    assert [message.artifact["is_error"] for message in messages] == [False, True, True, False]
    assert messages[1].name == "python" and "ZeroDivisionError" in messages[1].content
    # Without a call there is no message.
    assert "ZeroDivisionError" in tool.invoke({"code": "1 / 0"})


def test_files_are_in_the_artifact(place, tmp_path):
    code = "open('a.csv', 'w').write('1,2')\nopen('large', 'wb').truncate(1_000_001)"
    options = {"directory": tmp_path} if place == "here" else {}
    with python_tool(POLICY, place, **options) as tool:
        message = tool.invoke({**calls(code).tool_calls[0], "type": "tool_call"})
    assert message.artifact["changed"] == ["a.csv", "large"]
    assert message.artifact["files"] == {"a.csv": base64.b64encode(b"1,2").decode()}
    with pytest.raises(RuntimeError, match="closed"):
        tool.sessions.run("a", "1")


@pytest.mark.parametrize("is_async", [False, True])
def test_output_is_streamed_by_a_graph(make, is_async):
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([make()]))
    graph.add_edge(START, "tools")
    compiled = graph.compile()
    asked = {"messages": calls("print('a', 1)\nprint('b')")}

    async def stream():
        return [piece async for piece in compiled.astream(asked, stream_mode="custom")]

    if is_async and sys.version_info >= (3, 11):
        pieces = asyncio.run(stream())
    else:
        pieces = [*compiled.stream(asked, stream_mode="custom")]
    assert "".join(piece["text"] for piece in pieces) == "a 1\nb\n"
    assert {(piece["tool"], piece["stream"]) for piece in pieces} == {("python", "stdout")}


def test_the_model_is_told_the_rules(make):
    description = make(timeout=7).description
    assert "- Write files in: the working directory" in description
    assert "- Limits: 7 seconds a call" in description


def test_the_event_loop_runs_meanwhile(make):
    tool = make()
    ticks = []

    async def tick():
        while True:
            ticks.append(1)
            await asyncio.sleep(0.01)

    async def both():
        ticking = asyncio.create_task(tick())
        told = await tool.ainvoke({"code": "import time\ntime.sleep(0.3)\n'done'"})
        ticking.cancel()
        return told

    assert asyncio.run(both()) == "value:\n'done'"
    assert len(ticks) > 5


def test_threads_take_turns(make):
    tool = make()
    tool.invoke({"code": "n = 0"})
    code = "import time\nm = n\ntime.sleep(0.01)\nn = m + 1"
    with ThreadPoolExecutor(5) as threads:
        list(threads.map(tool.invoke, [{"code": code}] * 5))
    assert tool.invoke({"code": "n"}) == "value:\n5"


def test_a_session_of_the_host():
    with POLICY.session(tools={"double": lambda x: 2 * x}) as session:
        tool = python_tool(session, name="run", description="Run.")
        assert (tool.name, tool.description, tool.session) == ("run", "Run.", session)
        assert tool.invoke({"code": "x = double(4)\nx"}) == "value:\n8"
        tool.close()
        assert session.get("x") == 8


def test_wrong_arguments():
    with pytest.raises(TypeError, match="no_such"):
        python_tool(POLICY, no_such=1)
    with pytest.raises(ValueError, match="place must be"):
        python_tool(POLICY, "there")


def thread(id):
    return {"configurable": {"thread_id": id}}


def test_each_thread_has_its_own_names(make):
    tool = make(tools={"price": lambda item: 3.5})
    tool.invoke({"code": "x = price('tea')"}, thread("a"))
    assert "NameError" in tool.invoke({"code": "x"}, thread("b"))
    assert "NameError" in asyncio.run(tool.ainvoke({"code": "x"}))
    assert asyncio.run(tool.ainvoke({"code": "x"}, thread("a"))) == "value:\n3.5"
    tool.invoke({"code": "x = 7"}, thread(7))
    assert tool.invoke({"code": "x"}, thread("7")) == "value:\n7"
    tool.sessions.remove("a")
    assert "NameError" in tool.invoke({"code": "x"}, thread("a"))
    with pytest.raises(RuntimeError, match="each thread has a session of its own"):
        tool.session


def test_agents_of_one_tool_keep_their_threads_apart(make):
    tool = make()
    checkpointer = InMemorySaver()

    def ask(id, *codes):
        script = iter([*map(calls, codes), AIMessage("Done.")])
        agent = create_agent(Scripted(messages=script), [tool], checkpointer=checkpointer)
        state = agent.invoke({"messages": [("user", "Go on.")]}, thread(id))
        return answers(state)[-1].content

    ask("anna", "secret = 'of anna'")
    ask("ben", "secret = 'of ben'")
    assert ask("anna", "secret") == "value:\n'of anna'"
    assert ask("ben", "secret") == "value:\n'of ben'"


def test_a_manager_of_the_host():
    store = {}

    def double(n: int) -> int:
        """Double it."""
        return 2 * n

    def made():
        return SessionManager(lambda key: POLICY.session(), store=store)

    for codes in (["x = double(4)"], ["x", "double(x)"]):
        with made() as sessions:
            tool = python_tool(sessions, tools={"double": double})
            assert "- double(n: int) -> int: Double it." in tool.description
            told = [tool.invoke({"code": code}, thread("a")) for code in codes]
            tool.close()
            assert sessions.list() == ["a"]
    assert told[0].startswith("session:\nThe session was restored")
    assert told[0].endswith("value:\n8") and told[1] == "value:\n16"
    with pytest.raises(TypeError, match="a manager makes its sessions"):
        python_tool(made(), timeout=3)


def test_a_thread_by_the_name_of_none():
    """Users may choose the ids of their threads, and this session is that of others."""
    from fastaudit_rs.adapters.langchain import NO_THREAD, thread_of

    assert thread_of({}) == thread_of({"configurable": {"thread_id": ""}}) == NO_THREAD
    with pytest.raises(ValueError, match="thread_id must not be"):
        thread_of({"configurable": {"thread_id": NO_THREAD}})
