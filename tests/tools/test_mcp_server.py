"""The MCP server's tool, by the protocol's own client, in one process: what a model is told."""

import asyncio
import base64
import contextlib
import re
import textwrap
import time

import pytest

mcp = pytest.importorskip("mcp")

from egress_servers import served  # noqa: E402

from fastaudit_rs import Limits, Network, Policy, Sandbox  # noqa: E402
from fastaudit_rs.tools import mcp_files  # noqa: E402
from fastaudit_rs.tools.mcp_server import server  # noqa: E402

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 8


@pytest.fixture(params=["here", "sandbox"])
def opens(request, tmp_path):
    """Opens sessions in one of the places."""
    if request.param == "here":
        return lambda: Policy(write=[str(tmp_path)]).session(directory=tmp_path, timeout=20)
    pytest.importorskip("sandlock")

    @contextlib.contextmanager
    def sandboxed():
        with Sandbox(limits=Limits(wall_seconds=20)) as sandbox, sandbox.session() as session:
            yield session

    return sandboxed


def talk(opens, conversation, mode="auto", **options):
    """Have a client talk to a server."""

    async def begin():
        async with mcp.Client(server(opens, **options), mode=mode) as client:

            def run(code, **more):
                progress = more.pop("progress", None)
                return client.call_tool(
                    "run_python", {"code": code, **more}, progress_callback=progress
                )

            return await conversation(client, run)

    return asyncio.run(asyncio.wait_for(begin(), 60))


def texts(result):
    return [block.text for block in result.content if block.type == "text"]


def failed(result):
    """The text of a call that ran nothing."""
    assert result.is_error and result.structured_content is None
    return texts(result)[0]


def told(result):
    return result.structured_content


def test_names_last(opens):
    async def conversation(client, run):
        first = await run("import math\nx = 20\nprint('hi')")
        return first, await run("math.floor(x * 2.1)")

    first, second = talk(opens, conversation)
    assert (texts(first), first.is_error) == (["stdout:\nhi"], False)
    assert (told(first)["stdout"], told(first)["value"]) == ("hi\n", None)
    assert (texts(second), told(second)["value"]) == (["value:\n42"], 42)
    assert told(second)["error"] is None and told(second)["denials"] == []


def test_the_tool_explains_itself():
    """What code may do stands in its description, and in what the server says of itself."""

    async def conversation(client, run):
        return (await client.list_tools()).tools, client.instructions

    rules = Policy(write=["/srv/out"], network=False).session(timeout=60).rules_for_model()
    (tool, reset), instructions = talk(
        Policy().session, conversation, rules=rules, instructions="Of a shop."
    )
    assert (tool.name, reset.name) == ("run_python", "reset_python")
    assert "last from call to call" in tool.description
    assert "- Write files in: /srv/out\n" in tool.description
    assert instructions.startswith("Of a shop.\n\nThe code may:") and "60 seconds" in instructions
    assert tool.input_schema["required"] == ["code"]
    assert set(tool.input_schema["properties"]) == {"code", "timeout"}
    assert {"stdout", "value", "error", "denials", "changed"} <= set(
        tool.output_schema["properties"]
    )


def test_a_denial(opens):
    async def conversation(client, run):
        ended = await run("open('/srv/a', 'w')")
        went_on = await run("try: open('/srv/b', 'w')\nexcept OSError: print('on')")
        return ended, went_on, await run("import os; os.system('ls')")

    ended, went_on, command = talk(opens, conversation)
    assert ended.is_error and told(ended)["error"]["kind"] == "fastaudit_rs.AuditDenied"
    [denied] = told(ended)["denials"]
    assert (denied["rule"], denied["event"], denied["path"]) == ("write", "open", "/srv/a")
    assert "'/srv" in denied["hint"] and denied["hint"] in texts(ended)[0]
    assert not went_on.is_error and told(went_on)["denials"][0]["path"] == "/srv/b"
    assert texts(went_on)[0].startswith("stdout:\non\n\ndenied:\nDenied: open the file '/srv/b'")
    assert told(command)["denials"][0]["command"] == "ls"


def test_errors_files_and_images(opens):
    code = (
        f"class Shown:\n    def _repr_png_(self): return {PNG!r}\n"
        "    def __repr__(self): return 'a figure'\ndisplay(Shown())"
    )

    async def conversation(client, run):
        failed = await run("print('before')\n1 / 0")
        return failed, await run("open('a.txt', 'w').close()"), await run(code)

    failed, wrote, image = talk(opens, conversation)
    assert failed.is_error
    error = {"kind": "ZeroDivisionError", "message": "division by zero", "line": 2}
    assert told(failed)["error"] == error
    assert texts(failed)[0].startswith("stdout:\nbefore\n\nerror:\nTraceback")
    assert told(wrote)["changed"] == ["a.txt"]
    _, shown = image.content
    assert (shown.type, shown.mime_type) == ("image", "image/png")
    assert base64.b64decode(shown.data) == PNG


def test_an_image_that_is_none(opens):
    """A model's application would refuse all of the conversation for it."""

    async def conversation(client, run):
        return await run("display({'image/png': b'no image', 'text/plain': 'no image'}, raw=True)")

    result = talk(opens, conversation)
    assert [block.type for block in result.content] == ["text"]
    assert texts(result)[0] == "displayed:\nno image"


@pytest.mark.slow
def test_progress_while_it_runs(opens):
    heard = []

    async def progress(written, total, message):
        heard.append((written, message, time.monotonic()))

    async def conversation(client, run):
        await run("x = 1")
        code = "import time\nprint('first', flush=True)\ntime.sleep(0.6)\nprint('second')"
        await run(code, progress=progress)
        return time.monotonic()

    ended = talk(opens, conversation)
    assert "".join(message for _, message, _ in heard) == "first\nsecond\n"
    assert heard[0][2] < ended - 0.4
    assert [written for written, _, _ in heard] == sorted({written for written, _, _ in heard})
    assert heard[-1][0] == len("first\nsecond\n")


def test_much_output_is_few_notifications(opens):
    heard = []

    async def progress(written, total, message):
        heard.append((written, len(message)))

    async def conversation(client, run):
        return await run("for i in range(8_000): print(i)", progress=progress)

    result = talk(opens, conversation)
    assert 1 <= len(heard) < 100
    assert heard[-1][0] == sum(len(f"{i}\n") for i in range(8_000))
    assert max(length for _, length in heard) < 5_000
    assert len(texts(result)[0]) < 21_000 and "characters left out" in told(result)["stdout"]
    assert told(result)["stdout"].endswith("7999")


@pytest.mark.slow
def test_a_limit_of_time(opens):
    async def conversation(client, run):
        return await run("print('began', flush=True)\nwhile True: pass", timeout=0.5)

    result = talk(opens, conversation)
    assert result.is_error and told(result)["ended_by"] == "wall_seconds"
    assert texts(result)[0].startswith("stdout:\nbegan\n")
    assert re.search(r"stopped after 0\.\d+ s by the time limit", texts(result)[0])


@pytest.mark.slow
@pytest.mark.parametrize(("undo_depth", "names"), [(0, False), (1, True)])
def test_a_process_that_ended(undo_depth, names):
    """Names from before are kept where the session keeps a state."""
    pytest.importorskip("sandlock")

    @contextlib.contextmanager
    def sandboxed():
        with Sandbox() as sandbox, sandbox.session(undo_depth=undo_depth) as session:
            yield session

    async def conversation(client, run):
        await run("x = 1")
        ended = await run("x = 2\nimport signal, time; signal.setitimer(0, 0.01); time.sleep(9)")
        return ended, await run("globals().get('x')"), await run("3")

    ended, after, later = talk(sandboxed, conversation)
    assert ended.is_error and "reset()" not in texts(ended)[0]
    assert "reset()" not in told(ended)["error"]["message"]
    assert not after.is_error and told(after)["value"] == (1 if names else None)
    assert told(after)["restarted"] is not names
    assert ("names and imports of earlier calls are gone" in texts(after)[0]) is not names
    assert not told(later)["restarted"]


@pytest.mark.slow
def test_requests_over_the_network():
    pytest.importorskip("sandlock")
    pytest.importorskip("h11")
    pytest.importorskip("trustme")

    with served() as site:
        hosts = ["example.com:443", f"localhost:{site.port}"]
        policy = Policy.preset("sandbox").replace(network=Network(hosts=hosts))

        @contextlib.contextmanager
        def sandboxed():
            with Sandbox(policy) as sandbox, sandbox.session() as session:
                yield session

        async def conversation(client, run):
            url = f"http://localhost:{site.port}/page?key=1"
            opened = f"with urllib.request.urlopen({url!r}) as answer: answer.read()"
            return await run(f"import urllib.request\n{opened}\nanswer.status")

        result = talk(sandboxed, conversation)
    assert told(result)["value"] == 200, texts(result)
    [request] = told(result)["requests"]
    expected = {"port": site.port, "method": "GET", "path": "/page", "status": 200}
    assert expected.items() < request.items() and request["verdict"] == "allowed"


def test_values_that_json_cannot_hold(opens):
    async def conversation(client, run):
        codes = ["10**5000", "float('nan')", "{1: ('a', None)}", "b'x'", "'\\ud800'", "object"]
        return [told(await run(code))["value"] for code in codes]

    many, nan, nested, data, half, kind = talk(opens, conversation)
    assert "digits" in many and nan == "nan" and nested == {"1": ["a", None]}
    assert data == "b'x'" and half == "?" and "object" in kind


def test_texts_that_are_no_utf8(opens):
    async def conversation(client, run):
        return await run("raise ValueError('\\ud800' + 'x')"), await run("'on'")

    broken, after = talk(opens, conversation)
    assert told(broken)["error"]["kind"] == "ValueError" and broken.is_error
    assert told(after)["value"] == "on"


def test_wrong_calls(opens):
    async def conversation(client, run):
        missing = await client.call_tool("run_python", {"cod": "1"})
        other = await client.call_tool("run_python", {"code": 1})
        return missing, other, await run("syntax error"), await run("1")

    missing, other, syntax, after = talk(opens, conversation)
    assert missing.is_error and "code" in texts(missing)[0]
    assert other.is_error
    assert told(syntax)["error"]["kind"] == "SyntaxError"
    assert told(after)["value"] == 1


def test_the_limit_of_the_host_is_the_most(tmp_path):
    async def conversation(client, run):
        return await run("while True: pass", timeout=3600)

    result = talk(lambda: Policy().session(timeout=0.5), conversation)
    assert told(result)["ended_by"] == "wall_seconds" and told(result)["seconds"] < 10


def test_unknown_arguments_are_refused(opens):
    """They were left out without a word, and nothing said which there are."""

    async def conversation(client, run):
        await run("x = 1")
        wrong = await run("x = 2", cwd="/tmp")
        return (
            wrong,
            await run("1", timeout=0),
            await run("x"),
            await client.call_tool("reset_python", {"code": "1"}),
        )

    wrong, no_time, after, reset = talk(opens, conversation)
    assert failed(wrong) == "unknown argument 'cwd': run_python takes code, timeout"
    assert "timeout" in failed(no_time)
    assert told(after)["value"] == 1
    assert failed(reset) == "unknown argument 'code': reset_python takes no arguments"


def test_a_fresh_session(opens):
    async def conversation(client, run):
        first = await client.call_tool("reset_python", {})
        await run("x = 1\nopen('a', 'w').close()")
        again = await client.call_tool("reset_python", {})
        return first, again, await run("'x' in dir(), __import__('os').listdir()"), await run("2")

    first, again, after, later = talk(opens, conversation)
    assert not first.is_error and texts(again) == ["A fresh session has begun."]
    assert told(after)["value"][0] is False and "a" in told(after)["value"][1]
    assert told(after)["restarted"] and "names and imports of earlier" in texts(after)[0]
    assert not told(later)["restarted"]


def test_files_that_the_code_made_are_resources(opens):
    code = """
        import os
        os.makedirs('out/.cache')
        open('out/é 1.csv', 'w').write('a,b')
        open('out/b.bin', 'wb').write(b'\\xff\\0')
        open('out/.cache/c', 'w').close()
        open('large', 'wb').truncate(5_000_001)
    """

    async def conversation(client, run):
        before = (await client.list_resources()).resources
        made = await run(textwrap.dedent(code))
        listed = (await client.list_resources()).resources
        read = [(await client.read_resource(one.uri)).contents[0] for one in listed]
        removed = await run("os.remove('out/b.bin')")
        with pytest.raises(mcp.MCPError, match="no such file"):
            await client.read_resource(listed[-1].uri)
        with pytest.raises(mcp.MCPError, match="no such file"):
            await client.read_resource("fastaudit-rs://files/..%2F..%2Fetc/passwd")
        return before, made, listed, read, removed

    before, made, listed, read, removed = talk(opens, conversation)
    links = [block for block in made.content if block.type == "resource_link"]
    assert before == [] and removed.content[1:] == []
    assert [(link.name, link.size, link.mime_type) for link in links] == [
        ("out/b.bin", 2, "application/octet-stream"),
        ("out/é 1.csv", 3, "text/csv"),
    ]
    assert [one.uri for one in listed] == [link.uri for link in reversed(links)]
    assert (read[0].text, read[0].mime_type) == ("a,b", "text/csv")
    assert base64.b64decode(read[1].blob) == b"\xff\0"


def test_files_are_listed_while_a_call_notes_others(tmp_path, monkeypatch):
    files, notes = mcp_files.ChangedFiles(), []
    monkeypatch.setattr(mcp_files, "_kind", lambda name: notes.pop()() if notes else None)
    with Policy(write=[str(tmp_path)]).session(directory=tmp_path) as session:
        files.note(session, session.run("for name in 'ab': open(name, 'w').close()"))
        ran = session.run("open('c', 'w').close()")
        # As a call does that ends in another thread just then.
        notes.append(lambda: files.note(session, ran) and None)
        assert [one.name for one in files.listed()] == ["b", "a"]
        assert [one.name for one in files.listed()] == ["c", "b", "a"]


def test_what_a_link_leads_to_is_no_resource(opens, tmp_path):
    """The code puts a link in the place of a file that it made."""
    (tmp_path / "b").write_text("old")

    async def conversation(client, run):
        await run("open('a', 'w').close()")
        [listed] = (await client.list_resources()).resources
        await run("import os\nos.remove('a')\nos.symlink('/etc/passwd', 'a')")
        await run("os.path.lexists('a') or os.symlink(os.path.abspath('c'), 'a')")
        with pytest.raises(mcp.MCPError, match="no such file"):
            await client.read_resource(listed.uri)
        with pytest.raises(mcp.MCPError, match="no such file"):
            # It is there, and no step has changed it.
            await client.read_resource("fastaudit-rs://files/b")
        return True

    assert talk(opens, conversation)


def test_many_files_with_odd_names(opens):
    code = """
        import os
        os.makedirs('a' * 200 + '/b')
        for name in ('x\\ny', '%2e%2e', 'a' * 200 + '/b/c', *map(str, range(90))):
            open(name, 'w').close()
        try: open(b'z\\xff', 'w').close()
        except OSError: pass
    """

    async def conversation(client, run):
        made = await run(textwrap.dedent(code))
        names = {one.name: one.uri for one in (await client.list_resources()).resources}
        return made, names, [await client.read_resource(uri) for uri in names.values()]

    made, names, read = talk(opens, conversation)
    assert not made.is_error and len(names) == len(read) >= 93
    assert len([block for block in made.content if block.type == "resource_link"]) == 20
    assert "%2e%2e" in names and "a" * 200 + "/b/c" in names


def test_a_flood_of_denials_and_files_stays_short(opens):
    """A client may put all of the structured content before its model."""
    code = """
        import os
        os.makedirs('.cache')
        for number in range(300):
            open(f'{number}', 'w').close()
            open(f'.cache/{number}', 'w').close()
            try: open(f'/srv/{number}', 'w')
            except OSError: pass
    """

    async def conversation(client, run):
        return await run(textwrap.dedent(code))

    result = talk(opens, conversation)
    assert (len(told(result)["denials"]), len(told(result)["changed"])) == (50, 100)
    assert not any(name.startswith(".") for name in told(result)["changed"])
    assert len(texts(result)[0]) < 21_000


def test_long_texts_of_denials_and_errors_stay_short(opens):
    code = """
        import os
        for number in range(60):
            try: open('/srv/' + 'd/' * 20_000, 'w')
            except OSError: pass
            try: os.system('z' * 100_000)
            except OSError: pass
        raise type('E' * 100_000, (Exception,), {})
    """

    async def conversation(client, run):
        return await run(textwrap.dedent(code)), await run("os.system('z' * 1_000)")

    many, one = talk(opens, conversation)
    assert len(told(many)["denials"]) == 50 and len(str(told(many))) < 100_000
    assert "characters left out" in told(many)["error"]["kind"]
    assert "characters left out" in told(many)["denials"][0]["path"]
    assert told(one)["denials"][0]["command"] == "z" * 1_000


def test_resources_of_the_host_are_beside(tmp_path):
    made = server(lambda: Policy(write=[str(tmp_path)]).session(directory=tmp_path))

    @made.resource("shop://items")
    def items() -> str:
        return "tea"

    async def begin():
        async with mcp.Client(made) as client:
            await client.call_tool("run_python", {"code": "open('a', 'w').close()"})
            uris = [one.uri for one in (await client.list_resources()).resources]
            return uris, (await client.read_resource("shop://items")).contents[0].text

    assert asyncio.run(begin()) == (["shop://items", "fastaudit-rs://files/a"], "tea")


def test_commands_for_terminals_do_not_reach_the_client(opens):
    heard = []

    async def progress(written, total, message):
        heard.append(message)

    async def conversation(client, run):
        return await run("print('\x1b[31mred\x1b[0m')", progress=progress)

    result = talk(opens, conversation)
    assert texts(result) == ["stdout:\nred"] and told(result)["stdout"] == "red\n"
    assert "".join(heard) == "red\n"


def test_a_session_that_does_not_open():
    def broken():
        raise OSError("no room")

    async def conversation(client, run):
        return await run("1")

    result = talk(broken, conversation)
    assert result.is_error and "no room" in texts(result)[0]


def test_tools_and_functions_of_the_host(tmp_path):
    """A host has its own tools beside, and its functions in the code."""

    async def conversation(client, run):
        names = [tool.name for tool in (await client.list_tools()).tools]
        other = await client.call_tool("add", {"a": 1, "b": 2})
        return names, other, await run("price('tea') * 2")

    def session():
        return Policy().session(tools={"price": lambda item: 3.5})

    made = server(session, name="shop")

    @made.tool()
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async def begin():
        async with mcp.Client(made) as client:
            return await conversation(
                client, lambda code: client.call_tool("run_python", {"code": code})
            )

    names, other, bill = asyncio.run(begin())
    assert names == ["run_python", "reset_python", "add"]
    assert texts(other) == ["3"] and told(bill)["value"] == 7.0


def test_sessions_are_closed(tmp_path):
    closed = []

    @contextlib.contextmanager
    def noted():
        with Policy().session() as session:
            yield session
        closed.append(session)

    async def conversation(client, run):
        await run("1")
        assert closed == []

    talk(noted, conversation)
    assert len(closed) == 1
    with pytest.raises(RuntimeError, match="closed"):
        closed[0].run("1")
