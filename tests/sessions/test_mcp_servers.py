"""The tools of MCP servers as functions of the code, in both places."""

import asyncio
import contextlib
import gc
import json
import os
import socket
import subprocess
import sys
import time
import types

import programs
import pytest
from repository import ROOT
from sandboxes import LOOSE, OURS

mcp = pytest.importorskip("mcp")

from fastaudit_rs import MCP, Pending, Policy, Sandbox  # noqa: E402
from fastaudit_rs.adapters.steps import described  # noqa: E402

SUPPORT = ROOT / "tests" / "support"
SHOP = [sys.executable, str(SUPPORT / "mcp_shop.py")]
#: What calls of the tools of SHOP would print, and what `MCP` names it by.
NAME = f"{os.path.basename(sys.executable)} mcp_shop.py"


def raw(*tools, calls=None, **more):
    """A server that says of its tools what it is told to."""
    given = {"tools": tools, "calls": calls or {}, **more}
    return [sys.executable, str(SUPPORT / "mcp_raw.py"), json.dumps(given)]


def tool(name, **schema):
    return {"name": name, "inputSchema": {"type": "object", **schema}}


@pytest.fixture
def opens(place):
    """`opens(tools, …)`: a session in the place."""
    if place == "sandbox":
        pytest.importorskip("sandlock")
    with contextlib.ExitStack() as stack:

        def open_one(tools, **options):
            where = Policy()
            if place == "sandbox":
                asks = "on_ask" in options
                where = stack.enter_context(Sandbox(approvable=Policy() if asks else None))
            return stack.enter_context(where.session(tools=tools, **options))

        yield open_one


def value(session, code):
    ran = session.run(code)
    assert ran.error is None, ran.error
    return ran.value


def error(session, code):
    found = session.run(code).error
    return f"{found.kind}: {found.message}"


def ended(process):
    """Wait until a process is no more."""
    for _ in range(100):
        if not os.path.exists(f"/proc/{process}"):
            return True
        time.sleep(0.1)
    return False


def test_tools_are_functions(opens):
    session = opens(MCP(SHOP))
    assert value(session, "price('tea'), price(item='salt', count=3), price('tea', 2)") == (
        3.5,
        1.5,
        7.0,
    )
    assert value(session, "list_items()") == {"tea": 3.5, "salt": 0.5}
    order = {"item": "tea", "count": 2}
    assert value(session, "total({'item': 'tea', 'count': 2})") == order
    assert value(session, "price.__doc__, price.schema['parameters']['required']") == (
        "The price of an item.",
        ["item"],
    )
    code = "import inspect\n[one.name for one in inspect.signature(price).parameters.values()]"
    assert value(session, code) == ["item", "count"]
    text, image = value(session, "label('tea')")
    assert (text, image["mime_type"]) == ("tea", "image/png")
    assert image["data"].startswith(b"\x89PNG")
    assert session.names == ["inspect"]


@pytest.mark.slow
def test_what_a_call_cannot_be(opens):
    session = opens(MCP(SHOP))
    assert error(session, "price()").startswith(
        f"RuntimeError: tool 'price' of MCP server '{NAME}': Error executing tool price"
    )
    assert "got multiple values for argument 'item'" in error(session, "price('tea', item='tea')")
    assert "takes 2 positional arguments but 3 were given" in error(session, "price(1, 2, 3)")
    assert error(session, "price(b'tea')") == (
        "TypeError: tool 'price': item has a bytes, which JSON has not: pass data or text"
    )
    assert "item cannot be JSON" in error(session, "price(float('nan'))")
    assert "item has text that is no valid Unicode" in error(session, "price('\\ud800')")
    # It lives on.
    assert value(session, "price('tea')") == 3.5
    code = "from datetime import date\nfrom decimal import Decimal\n"
    call = "environment(date(2026, 1, 2)), environment(Decimal('1.5')), environment(name='x')"
    assert value(session, code + call) == (None, None, None)


def test_who_is_asked(opens):
    asked = []

    def ask(denied):
        asked.append(denied)
        return "once"

    session = opens(MCP(SHOP), on_ask=ask)
    assert value(session, "price('tea'), remove('tea'), remove(item='salt')") == (
        3.5,
        ["salt"],
        [],
    )
    assert [one.message for one in asked] == [
        f"Denied: call the tool 'remove' of MCP server '{NAME}' with {{\"item\": \"tea\"}}",
        f"Denied: call the tool 'remove' of MCP server '{NAME}' with {{\"item\": \"salt\"}}",
    ]
    assert asked[0].tool == "remove" and asked[0].event == "fastaudit.tool"
    assert asked[0].answers == ("once", "step", "guard", "pattern", "deny", "never")


def test_nobody_to_ask(opens):
    session = opens(MCP(SHOP))
    ran = session.run("remove('tea')")
    assert (ran.returncode, ran.error.kind) == (77, "fastaudit_rs.AuditDenied")
    [denied] = ran.violations
    assert denied.tool == "remove" and "on_ask=" in denied.hint and "ask=False" in denied.hint
    assert "To allow it: on_ask=" in ran.for_model()
    # A denial that the code swallows is told, too.
    ran = session.run("try: remove('tea')\nexcept PermissionError: pass\nlist_items()")
    assert ran.value == {"tea": 3.5, "salt": 0.5} and len(ran.violations) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ask", "denied"),
    [(False, 0), (True, 3), (["price"], 1), (None, 2)],
)
def test_the_host_says_what_is_asked_about(ask, denied):
    """The hints of a server are its own word."""
    with Policy().session(tools=MCP(SHOP, ask=ask)) as session:
        code = "for call in (lambda: price('tea'), lambda: remove('tea'), clear):\n"
        ran = session.run(code + "    try: call()\n    except PermissionError: pass")
        assert ran.success and len(ran.violations) == denied


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "first", "second"), [("once", 2, 2), ("step", 1, 1), ("guard", 1, 0)]
)
def test_one_approval_for_a_batch(opens, answer, first, second):
    asked = []

    def ask(denied):
        asked.append(denied)
        return answer

    session = opens(MCP(SHOP), on_ask=ask)
    code = "stock = []\nfor item in ('tea', 'salt'): stock += [remove(item)]\nstock"
    assert value(session, code) == [["salt"], []]
    assert len(asked) == first
    session.run("for item in ('tea', 'salt'):\n    try: remove(item)\n    except RuntimeError: 0")
    assert len(asked) - first == second


@pytest.mark.slow
def test_answers_for_a_server_and_for_good(opens):
    answers = iter(["never", "pattern"])
    session = opens(MCP(SHOP), on_ask=lambda denied: next(answers))
    for _ in range(2):
        ran = session.run("remove('tea')")
        assert ran.returncode == 77 and "the answer was never" in ran.violations[0].answer
    # Another tool is asked about; and what was denied for good stays so.
    assert value(session, "clear(), clear()") == ("all gone", "all gone")
    assert session.run("remove('tea')").returncode == 77


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (False, "the answer was no"),
        (None, "there was no answer"),
        ("yes", "on_ask must return 'once', 'step', 'guard'"),
        (3, "on_ask must return 'once', 'step', 'guard'"),
    ],
)
def test_other_answers_deny(opens, answer, told):
    ran = opens(MCP(SHOP), on_ask=lambda denied: answer).run("remove('tea')")
    assert ran.returncode == 77 and told in ran.violations[0].answer


@pytest.mark.slow
def test_an_on_ask_that_fails(opens):
    def ask(denied):
        raise KeyError("nobody")

    ran = opens(MCP(SHOP), on_ask=ask).run("remove('tea')")
    assert ran.returncode == 77 and "on_ask raised KeyError: 'nobody'" in ran.violations[0].answer


@pytest.mark.slow
def test_an_on_ask_of_an_event_loop(opens):
    async def ask(denied):
        await asyncio.sleep(0)
        return "step"

    async def main():
        async with MCP(SHOP) as shop:
            session = opens(shop, on_ask=ask)
            return await session.arun("remove('tea'), remove('salt'), price.__name__")

    assert asyncio.run(main()).value == (["salt"], [], "price")


@pytest.mark.slow
def test_an_answer_that_comes_later(opens):
    session = opens(MCP(SHOP), on_ask=lambda denied: "pending")
    ran = session.run("before = 1\nfor item in ('tea', 'salt'): remove(item)\nlist_items()")
    assert ran.killed_by == "pending" and session.names == []
    stored = json.loads(json.dumps(ran.pending.to_dict()))
    assert Pending.from_dict(stored).answers[:2] == ("once", "step")
    ran = session.answer(ran.pending.id, "step")
    assert (ran.error, ran.value, session.names) == (None, {}, ["before", "item"])


@pytest.mark.slow
def test_an_answer_in_advance(opens):
    session = opens(MCP(SHOP), on_ask=lambda denied: "deny")
    denied = session.run("remove('tea')").violations[0]
    for answer in ("once", "step"):
        session.allow(denied, answer)
        ran = session.run("price('tea')\nremove('tea')\nremove('tea')")
        # A second time there is no such item; with "once" nobody may.
        assert ran.returncode == (77 if answer == "once" else 1)
        session.run("restock()")
    session.allow(denied, "guard")
    assert value(session, "remove('tea'), remove('salt')") == (["salt"], [])


@pytest.mark.slow
def test_code_words_no_question_about_a_tool():
    """An answer to it, or `allow`, would hold for the call that it tells of."""
    pytest.importorskip("sandlock")
    asked = []

    def ask(denied):
        asked.append(denied)
        return "deny"

    code = f"""{OURS}
try: remove('tea')
except PermissionError as error: told = error.to_dict() | {{"tool": "price"}}
raw({{"kind": "ask", "id": 900, "denied": told}})
raw({{"kind": "denied", "denied": told}})
price('tea')
"""
    with Sandbox(LOOSE) as sandbox, sandbox.session(tools=MCP(SHOP), on_ask=ask) as session:
        ran = session.run(code)
        assert ran.value == 3.5
        assert [one.tool for one in asked] == ["remove"] == [one.tool for one in ran.violations]


def test_a_server_ends_with_its_session(opens):
    session = opens(MCP(SHOP))
    process = value(session, "process()")
    assert os.path.exists(f"/proc/{process}")
    session.close()
    assert ended(process)


@pytest.mark.slow
def test_a_server_that_no_session_closes():
    shop = MCP(SHOP)
    session = Policy().session(tools=shop)
    process = value(session, "process()")
    del session, shop
    for _ in range(100):
        # What the session made goes in a thread of its own.
        gc.collect()
        if not os.path.exists(f"/proc/{process}"):
            return
        time.sleep(0.1)
    pytest.fail("the server runs on")


@pytest.mark.slow
def test_a_server_for_several_sessions():
    with MCP(SHOP) as shop, Policy().session(tools=shop) as one:
        process = value(one, "process()")
        one.close()
        with Policy().session(tools=shop) as other:
            assert value(other, "process()") == process
    assert ended(process)


@pytest.mark.slow
def test_tools_of_a_step(opens):
    session = opens(None)
    ran = session.run("price('tea')", tools=[MCP(SHOP)])
    assert ran.value == 3.5
    process = value(session, "process()")
    session.close()
    assert ended(process)


@pytest.mark.slow
def test_a_run_of_a_sandbox():
    pytest.importorskip("sandlock")
    asked = []

    def ask(denied):
        asked.append(denied.tool)
        return "step"

    with Sandbox(on_ask=ask, approvable=Policy()) as sandbox:
        code = "shop_remove('tea'), shop_remove('salt'), shop_process(), price()"
        tools = {"shop": MCP(SHOP), "price": lambda: 7}
        *left, process, price = sandbox.run(code, value=True, tools=tools).value
        assert (left, price, asked) == ([["salt"], []], 7, ["shop_remove"])
        assert ended(process)
        ran = asyncio.run(sandbox.arun("process()", value=True, tools=MCP(SHOP)))
        assert ended(ran.value)
    with Sandbox() as sandbox:
        assert len(sandbox.run("remove('tea')", tools=MCP(SHOP)).violations) == 1


@pytest.mark.slow
def test_a_server_that_ends_is_started_anew(opens):
    """In this process code calls it then: the server is the host's all the same."""
    session = opens(MCP(SHOP, timeout=20))
    process = value(session, "process()")
    message = f"tool 'crash' of MCP server '{NAME}' cannot be reached, or has ended"
    assert error(session, "crash()").startswith(f"ConnectionError: {message}")
    assert value(session, "process()") not in (process, None)
    assert value(session, "price('tea')") == 3.5
    assert session.run("process()").violations == []


@pytest.mark.slow
def test_a_server_that_answers_late(opens):
    session = opens(MCP(SHOP, timeout=3))
    process = value(session, "process()")
    told = f"TimeoutError: tool 'hang' of MCP server '{NAME}' gave no answer in 3 s, and is "
    assert error(session, "hang(30)").startswith(told)
    assert value(session, "price('tea')") == 3.5
    assert ended(process)


@pytest.mark.slow
def test_a_result_that_is_too_large(opens):
    # The client of `mcp` takes the longer, the longer the line is: 20 s on a busy machine.
    session = opens(MCP(SHOP, timeout=300))
    found = error(session, "big(17_000_000)")
    assert found.startswith("ValueError: tool 'big': its result ") and "16 MB" in found
    assert value(session, "len(big(1_000_000))") == 1_000_000


@pytest.mark.slow
def test_its_environment(opens, monkeypatch):
    monkeypatch.setenv("SECRET", "of the host")
    session = opens(MCP(SHOP, env={"TOKEN": "t"}))
    assert value(session, "environment('TOKEN'), environment('SECRET')") == ("t", None)


@pytest.mark.slow
def test_names():
    mixed = [tool("read-file"), tool("get.it")]
    with Policy().session(tools=MCP(raw(*mixed))) as session:
        assert value(session, "read_file.__name__, get_it.__name__") == ("read_file", "get_it")
    with Policy().session(tools={"x": MCP(raw(tool("open"), tool("1")))}) as session:
        assert value(session, "x_open.__name__, x_1.__name__") == ("x_open", "x_1")
    with Policy().session(tools=MCP(raw(tool("open"), tool("f")), only=["f"])) as session:
        assert value(session, "f.__name__") == "f"


def opening(*tools, **options):
    """The error of a session with such tools."""
    with pytest.raises(Exception) as caught:
        Policy().session(tools=MCP(raw(*tools), name="raw", **options))
    return f"{caught.type.__name__}: {caught.value}"


MALFORMED = "RuntimeError: MCP server 'raw' gave a malformed answer"
OF_PYTHON = "has the name of a function of Python"
#: What a server may not say of a tool, and words of the error.
WRONG = {
    "open": (tool("open"), f"ValueError: tool 'open' of MCP server 'raw' {OF_PYTHON}"),
    "import": (
        tool("import"),
        "tool 'import' of MCP server 'raw' has a name that code cannot have",
    ),
    "1": (tool("1"), "tool '1' of MCP server 'raw' has a name that code cannot have"),
    "no name": (tool(""), "tool '' of MCP server 'raw' has a name that code cannot have"),
    "long": (tool("1" * 1000), f"tool '{'1' * 100}…' of MCP server 'raw' has a name"),
    "escape": (tool("1\x1b[2J"), "tool '1\\\\x1b[2J' of MCP server 'raw' has a name"),
    "import hook": (tool("__build_class__"), "has a name that code cannot have"),
    "properties": (tool("f", properties=["a"]), MALFORMED),
    "required": (tool("f", required=[["a"]]), MALFORMED),
    "number": ({"name": 3}, MALFORMED),
    "large": (
        tool("f", properties={"a": {"description": "x" * 100_000}}),
        "tool 'f' of MCP server 'raw' says more than 100000 characters of itself",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_what_a_server_may_not_say(name):
    said, words = WRONG[name]
    assert words in opening(said)


@pytest.mark.parametrize("wrong", [{"properties": ["a"]}, {"required": 3}, {"required": [3]}])
def test_a_schema_that_another_client_lets_pass(wrong):
    class Client:
        session = None

        async def list_tools(self, cursor):
            one = types.SimpleNamespace(name="f", description=None, input_schema=wrong)
            return types.SimpleNamespace(tools=[one], next_cursor=None)

        async def call_tool(self, name, given):
            raise AssertionError

    async def main():
        async with MCP(Client(), name="raw") as tools:
            with pytest.raises(ValueError, match="tool 'f' of MCP server 'raw' has a malformed"):
                Policy().session(tools=tools)

    asyncio.run(main())


def test_names_that_clash():
    assert opening(tool("a-b"), tool("a_b")).startswith(
        "ValueError: tool 'a_b' of MCP server 'raw' has the name 'a_b', as another one"
    )
    with pytest.raises(ValueError, match="tools: two have the name 'f': write a mapping"):
        Policy().session(tools=[MCP(raw(tool("f"))), MCP(raw(tool("f")))])
    assert "only: MCP server 'raw' has no tool 'g'; it has 'f'" in opening(tool("f"), only=["g"])
    assert "ask: MCP server 'raw' has no tool 'g'; it has 'f'" in opening(tool("f"), ask=["g"])


@pytest.mark.slow
def test_pages_without_an_end():
    many = [tool(f"f{number}") for number in range(600)]
    with pytest.raises(RuntimeError, match="it has more than 1000 tools"):
        Policy().session(tools=MCP(raw(*many, page={"nextCursor": "more"})))
    says = r"MCP server 'raw' gave no answer in 2 s: MCP\(…, timeout=…\) waits longer"
    with pytest.raises(TimeoutError, match=says):
        Policy().session(tools=MCP(raw(page={"nextCursor": "more"}), name="raw", timeout=2))


@pytest.mark.slow
def test_schemas_that_say_little(opens):
    """Parameters that Python has not are passed by ``**``."""
    odd = tool(
        "f",
        properties={"self": True, "from": {}, "a b": {}, "c": {"type": ["x"], "anyOf": 3}},
        required=["from"],
    )
    answer = {"result": {"content": [{"type": "text", "text": "x"}]}}
    odd["inputSchema"]["$defs"] = ["x"]
    tools = MCP(raw(odd, calls={"f": answer}), ask=False)
    session = opens(tools)
    told = "- f(self=None, c=None), called with **{'from': ..., 'a b': ...}"
    assert told in described(tools)
    assert value(session, "f(**{'self': 1, 'from': 2, 'a b': 3, 'c': 4})") == "x"


DEEP = "x"
for _ in range(120):
    DEEP = [DEEP]

#: What a server answers to a call, and the value or words of the error.
ANSWERS = {
    "nothing": ({"result": {"content": []}}, None),
    "data": ({"result": {"content": [], "structuredContent": {"a": 1}}}, {"a": 1}),
    "texts": (
        {"result": {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}},
        ["a", "b"],
    ),
    "an error": (
        {"error": {"code": -32000, "message": "no\x1b[2J"}},
        "RuntimeError: tool 'f' of M",
    ),
    "a failure": ({"result": {"content": [], "isError": True}}, "server 'raw': it failed"),
    "no result": (
        {"result": {"content": 3}},
        "RuntimeError: tool 'f' of MCP server 'raw' gave a m",
    ),
    "deep": ({"result": {"content": [], "structuredContent": {"a": DEEP}}}, "Error: tool 'f': its"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERS)
def test_what_a_server_answers(opens, name):
    answer, found = ANSWERS[name]
    session = opens(MCP(raw(tool("f"), calls={"f": answer}), ask=False, name="raw", timeout=5))
    ran = session.run("f()")
    if isinstance(found, str):
        assert found in f"{ran.error.kind}: {ran.error.message}"
    else:
        assert (ran.error, ran.value) == (None, found)
    assert session.run("1").value == 1


@pytest.mark.slow
def test_a_server_that_cannot_be_reached():
    with pytest.raises(ConnectionError, match="MCP server 'none' cannot be reached"):
        Policy().session(tools=MCP(["/none"]))
    with pytest.raises(ConnectionError, match="or has ended: Connection closed"):
        Policy().session(tools=MCP([sys.executable, "-c", "pass"]))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://name:secret@127.0.0.1:{closed.getsockname()[1]}/mcp?token=secret"
    with pytest.raises(ConnectionError) as caught:
        Policy().session(tools=MCP(url))
    assert "http://127.0.0.1" in str(caught.value) and "secret" not in str(caught.value)


@pytest.mark.slow
def test_a_server_of_http(opens):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen([*SHOP, str(port)])
    try:
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        session = opens(MCP(f"http://127.0.0.1:{port}/mcp"), on_ask=lambda denied: True)
        assert value(session, "price('tea'), remove('tea')") == (3.5, ["salt"])
        session.close()
    finally:
        server.terminate()
        server.wait()


@pytest.mark.slow
def test_an_open_session(opens):
    async def main():
        async with mcp.Client(mcp.StdioServerParameters(command=SHOP[0], args=SHOP[1:])) as client:
            found = []
            for one in (client, client.session):
                async with MCP(one, ask=False) as shop:
                    session = opens(shop)
                    found.append((await session.arun("price('tea')")).value)
                    with pytest.raises(RuntimeError, match="async with MCP"):
                        MCP(one).functions()
            return found

    assert asyncio.run(asyncio.wait_for(main(), 60)) == [3.5, 3.5]


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: MCP("python server.py"), ValueError, r"write \['python', 'server.py'\]"),
        (lambda: MCP([]), ValueError, "it is empty"),
        (lambda: MCP(["python", 3]), TypeError, "server must be a list of str, not of int"),
        (lambda: MCP(3), TypeError, "server must be a command as a list, a URL, or an open"),
        (lambda: MCP(SHOP, ask="f"), TypeError, "ask must be a list of names, not str"),
        (lambda: MCP(SHOP, only=[3]), TypeError, "only must be a list of names, not of int"),
        (lambda: MCP(SHOP, env=["A"]), TypeError, "env must be a mapping"),
        (lambda: MCP(SHOP, env={"A": 1}), TypeError, "env must be a mapping of str to str"),
        (lambda: MCP(SHOP, timeout=0), ValueError, "timeout must be positive"),
        (lambda: MCP(SHOP, timeout=None), TypeError, "timeout must be a number"),
        (lambda: MCP(SHOP, name=3), TypeError, "name must be a str"),
        (lambda: MCP("http://x", env={}), ValueError, "env and cwd are for a command"),
    ],
)
def test_wrong_arguments(make, kind, words):
    with pytest.raises(kind, match=words):
        make()


def test_nothing_is_imported_before_it_is_used():
    code = "import sys, fastaudit_rs; fastaudit_rs.MCP(['x']); print('mcp' in sys.modules)"
    assert programs.python("-c", code).stdout == "False\n"
    code = "import sys; sys.modules['mcp'] = None; from fastaudit_rs import *\n"
    code += "try: Policy().session(tools=MCP(['x']))\nexcept ImportError as error: print(error)"
    assert programs.python("-c", code).stdout == "MCP needs mcp: pip install 'fastaudit-rs[mcp]'\n"
