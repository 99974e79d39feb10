"""`fastaudit-rs mcp`: a real process, and the protocol's own client."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from repository import ROOT

from fastaudit_rs.tools.cli import main

PAGE = (ROOT / "docs" / "shell.md").read_text()
COMMAND = [sys.executable, "-m", "fastaudit_rs", "mcp"]

#: Whatever this writes to descriptor 1 would break the protocol.
RAW = "import os\nos.write(1, b'{raw\\n')\nprint('printed')"


@pytest.fixture(params=[True, False], ids=["sandbox", "here"])
def place(request):
    if request.param:
        pytest.importorskip("sandlock")
    return [] if request.param else ["--no-sandbox"]


@pytest.fixture
def mcp():
    return pytest.importorskip("mcp")


@pytest.fixture
def environment(tmp_path):
    """In which temporary directories are made in one place."""
    made = tmp_path / "temporary"
    made.mkdir()
    return {**os.environ, "TMPDIR": str(made)}


def left(environment):
    return os.listdir(environment["TMPDIR"])


async def eventually(holds):
    for _ in range(100):
        if holds():
            return True
        await asyncio.sleep(0.05)
    return False


async def ask(client, code, **more):
    result = await client.call_tool("run_python", {"code": code, **more})
    return result.structured_content


async def conversation(client, out):
    """A session with all that a client may ask for."""
    heard = []

    async def progress(written, total, message):
        heard.append(message)

    tool, _ = (await client.list_tools()).tools
    assert tool.name == "run_python" and "- Write files in: " in tool.description
    assert "- Limits: 60 seconds a call" in client.instructions
    first = await ask(client, RAW)
    assert first["success"] and first["stdout"].endswith("printed\n")
    assert (await ask(client, "x = 40; os.getpid()"))["value"] > 0
    denied = await client.call_tool("run_python", {"code": f"open({out + '/a'!r}, 'w')"})
    assert denied.is_error
    [told] = denied.structured_content["denials"]
    assert (told["rule"], told["path"]) == ("write", f"{out}/a")
    assert told["hint"] in (f"--write {out}/a", f"--write {out}")
    await client.call_tool("run_python", {"code": "print('on')"}, progress_callback=progress)
    assert await eventually(lambda: "".join(heard) == "on\n"), heard
    code = "x += 1\nprint('begun')\nwhile True: pass"
    call = client.call_tool("run_python", {"code": code}, progress_callback=progress)
    endless = asyncio.ensure_future(call)
    assert await eventually(lambda: "".join(heard) == "on\nbegun\n"), heard
    endless.cancel()
    await asyncio.wait([endless])
    assert (await ask(client, "x + 1"))["value"] == 42
    await client.call_tool("reset_python", {})
    assert (await ask(client, "'x' in dir()"))["value"] is False


@contextlib.contextmanager
def calling(options, environment, code):
    """A server on standard input and output, and a call that runs there."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    call = {"name": "run_python", "arguments": {"code": code}}
    sent = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ]
    with subprocess.Popen(
        [*COMMAND, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        for message in sent:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()
            if message.get("id") == 1:
                assert json.loads(process.stdout.readline())["id"] == 1
        yield process


@pytest.mark.slow
class TestStdio:
    @pytest.fixture
    def talk(self, mcp, environment, places):
        def talk(talks, *options):
            started = mcp.StdioServerParameters(
                command=COMMAND[0], args=[*COMMAND[1:], *options], env=environment
            )

            async def begin():
                async with mcp.Client(started) as client:
                    return await talks(client)

            return asyncio.run(asyncio.wait_for(begin(), 60))

        return talk

    def test_a_session(self, talk, place, places, environment):
        talk(lambda client: conversation(client, places.out), *place)
        assert left(environment) == []

    def test_the_configuration_of_the_page(self, mcp, environment, places):
        """The one in docs/shell.md, with directories of this machine."""
        pytest.importorskip("sandlock")
        [block] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
        configured = json.loads(block)["mcpServers"]["python"]
        assert configured["command"].endswith("/bin/fastaudit-rs")
        directories = {"/home/me/data": places.out, "/home/me/reports": places.ok}
        options = [directories.get(word, word) for word in configured["args"]]
        assert set(directories.values()) < set(options)
        started = mcp.StdioServerParameters(
            command=COMMAND[0], args=[*COMMAND[1:-1], *options], env=environment
        )
        Path(places.out, "data").write_text("7")

        async def begin():
            async with mcp.Client(started) as client:
                code = (
                    f"text = open({places.out!r} + '/data').read()\n"
                    f"open({places.ok!r} + '/report', 'w').write(text)"
                )
                assert (await ask(client, code))["success"]
                return await ask(client, f"open({places.out!r} + '/data', 'w')")

        denied = asyncio.run(asyncio.wait_for(begin(), 60))
        assert denied["denials"][0]["path"] == f"{places.out}/data"
        assert Path(places.ok, "report").read_text() == "7"

    def test_the_home_directory(self, talk, places, environment):
        """No shell expands what a configuration says."""
        environment["HOME"] = places.ok
        Path(places.ok, "policy.toml").touch()
        options = ["--read", "~", "--write", "~", "--directory", "~", "--policy", "~/policy.toml"]
        code = "import os; os.getcwd()"
        found = talk(lambda client: ask(client, code), "--no-sandbox", *options)
        assert found["value"] == places.ok

    def test_its_options(self, talk, places):
        async def talks(client):
            wrote = await ask(client, "open('a', 'w').write('x')")
            code = "import subprocess; subprocess.run(['echo', '{raw']).returncode"
            # The output of a program does not get into the protocol either.
            return wrote, await ask(client, code), await ask(client, "while True: pass")

        options = ["--directory", places.ok, "--write", places.ok, "--run", "echo"]
        wrote, ran, endless = talk(talks, "--no-sandbox", *options, "--timeout", "2")
        assert (wrote["value"], wrote["changed"]) == (1, ["a"])
        assert os.listdir(places.ok) == ["a"]
        assert ran["value"] == 0
        assert endless["ended_by"] == "wall_seconds"

    def test_signals_end_it(self, mcp, place, environment):
        number = signal.SIGINT if place else signal.SIGTERM
        with calling(place, environment, "while True: pass") as process:
            time.sleep(0.5)
            process.send_signal(number)
            assert process.wait(10) == 128 + number
            assert "Traceback" not in process.stderr.read()
        assert left(environment) == []

    def test_a_client_that_leaves(self, mcp, place, environment):
        """Before its answer, as an application that is closed: there is no traceback."""
        with calling(place, environment, "import time; time.sleep(0.5)") as process:
            process.stdout.close()
            process.stdin.close()
            assert process.stderr.read() == ""
            assert process.wait(10) == 128 + signal.SIGPIPE
        assert left(environment) == []


class TestHttp:
    @pytest.fixture
    def address(self, mcp, environment, request, places):
        """Of a server with these options."""
        with contextlib.ExitStack() as stack:

            def serve(*options):
                process = stack.enter_context(
                    subprocess.Popen(
                        [*COMMAND, "--http", "0", *options],
                        stdin=subprocess.DEVNULL,
                        stderr=subprocess.PIPE,
                        text=True,
                        env=environment,
                    )
                )
                stack.callback(process.kill)
                line = process.stderr.readline()
                assert "serving at http://127.0.0.1:" in line
                return re.search(r"http://\S+", line)[0], process

            yield serve

    @pytest.mark.slow
    def test_sessions(self, mcp, address, place, places, environment):
        """Of two clients at once, which end with them."""
        url, process = address(*place)

        async def talks():
            async with mcp.Client(url) as one, mcp.Client(url) as other:
                await ask(one, "x = 1")
                slow = asyncio.ensure_future(ask(one, "import time; time.sleep(0.6); x"))
                begun = time.monotonic()
                missing = await ask(other, "x")
                assert not slow.done() or time.monotonic() - begun > 0.6
                assert missing["error"]["kind"] == "NameError"
                assert (await slow)["value"] == 1
                await conversation(other, places.out)
            assert await eventually(lambda: left(environment) == [])

        asyncio.run(asyncio.wait_for(talks(), 60))
        process.send_signal(signal.SIGINT)
        assert process.wait(10) in (0, 130, -signal.SIGINT)

    @pytest.mark.slow
    def test_how_many(self, mcp, address):
        url, _ = address("--no-sandbox", "--sessions", "1")

        async def talks():
            async with mcp.Client(url) as one:
                assert (await ask(one, "1"))["value"] == 1
                async with mcp.Client(url) as other:
                    refused = await other.call_tool("run_python", {"code": "1"})
                assert refused.is_error
                assert "runs code of 1 clients at a time" in refused.content[0].text
            async with mcp.Client(url) as another:
                return await ask(another, "2")

        assert asyncio.run(asyncio.wait_for(talks(), 60))["value"] == 2

    def test_no_session_waits_for_another(self, mcp):
        """Steps of all sessions are waited for side by side, however many processors there are."""
        from fastaudit_rs.tools.mcp_server import serve_http

        sessions, met = 40, []

        async def app(scope, receive, send):
            await receive()
            barrier = threading.Barrier(sessions)
            waits = (asyncio.to_thread(barrier.wait, 5) for _ in range(sessions))
            met.extend(await asyncio.gather(*waits, return_exceptions=True))
            await send({"type": "lifespan.startup.failed"})

        class Made:
            def streamable_http_app(self, **options):
                return app

        with contextlib.suppress(SystemExit):
            serve_http(Made(), "127.0.0.1", 0, sessions)
        assert sorted(map(str, met)) == sorted(map(str, range(sessions)))

    @pytest.mark.slow
    def test_what_is_refused(self, mcp, address):
        url, _ = address("--no-sandbox")
        self.pages_of_others(url)
        self.a_version_without_sessions(url)

    def pages_of_others(self, url):
        """A page of another host reaches nothing, by whatever name (DNS rebinding)."""
        here = url.removeprefix("http://").partition("/")[0]
        port = here.rpartition(":")[2]
        for headers, status in (
            ({"Host": "evil.example"}, 421),
            ({"Host": f"{here}.evil.example"}, 421),
            ({"Host": f"{here}@evil.example"}, 421),
            ({"Host": "127.0.0.1:1"}, 421),
            ({"Host": "127.0.0.1"}, 421),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": f"http://{here}@evil.example"}, 403),
            ({"Origin": f"http://{here}.evil.example"}, 403),
            ({"Origin": "http://localhost:1"}, 403),
            ({"Origin": f"https://{here}"}, 403),
            ({"Origin": "null"}, 403),
            # It is for this server, and takes no answer.
            ({"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}, 406),
        ):
            told = {"Content-Type": "application/json", **headers}
            request = urllib.request.Request(url, b"{}", told)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request)
            assert refused.value.code == status
            refused.value.close()

    def a_version_without_sessions(self, url):
        """It is not given the session of somebody else."""
        version = "2026-07-28"
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "run_python",
                "arguments": {"code": "1"},
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": version,
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        }
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": version,
            "Mcp-Method": "tools/call",
            "Mcp-Name": "run_python",
        }
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        with refused.value as answer:
            error = json.load(answer)["error"]
        assert "begin with initialize" in error["message"]
        assert "2025-11-25" in error["data"]["supported"]


class TestWrongOptions:
    @pytest.fixture
    def refused(self, capsys, places):
        """`refused(options)`: the message of the command."""

        def run(options):
            assert main(["mcp", *options]) == 2
            out, err = capsys.readouterr()
            assert out == "" and err.startswith("fastaudit-rs: ")
            return err

        return run

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--http", "somewhere"], "--http takes an address such as 8000"),
            (["--http", "0.0.0.0:80"], "not at 0.0.0.0: it asks nobody who they are"),
            (["--http", "99999"], "--http takes an address"),
            (["--timeout", "soon"], "--timeout takes seconds"),
            (["--read", "/nope/zz"], "--read /nope/zz: there is no such file or directory"),
            (["--sessions", "0"], "--sessions takes a number from 1, not 0"),
            (["--no-sandbox", "--memory", "1G"], "--memory: "),
            (["--no-sandbox", "--directory", "/nowhere"], "there is no directory /nowhere"),
            (["--directory", "."], "--directory: a sandbox has a directory of its own"),
        ],
    )
    def test_message(self, refused, options, message):
        assert message in refused(options)

    @pytest.mark.parametrize(
        ("missing", "options", "message"),
        [
            ("mcp", ["--no-sandbox"], "pip install 'fastaudit-rs[mcp]'"),
            ("sandlock", [], "--no-sandbox runs code in this process"),
        ],
    )
    def test_a_missing_package(self, refused, monkeypatch, missing, options, message):
        monkeypatch.setitem(sys.modules, missing, None)
        assert message in refused(options)
