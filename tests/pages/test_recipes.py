"""The recipes in docs/recipes, each with the real host that it is for."""

import ast
import asyncio
import base64
import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import peers
import programs
import pytest
from repository import ROOT
from wheels import wheel

pytestmark = pytest.mark.slow

RECIPES = ROOT / "docs" / "recipes"
PAGE = (RECIPES / "index.md").read_text()


def recipe(name):
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def shown(name):
    """The output of a recipe according to the page."""
    rest = PAGE.split(f'--8<-- "recipes/{name}.py"', 1)[1]
    return re.match(r"\n```\n\n```text\n(.*?)```", rest, re.DOTALL)[1]


def test_each_is_on_the_page():
    named = re.findall(r'--8<-- "recipes/(\w+)\.py"', PAGE)
    assert sorted(named) == sorted(path.stem for path in RECIPES.glob("*.py"))


class TestToolLoop:
    def test_it_prints_what_is_shown(self, tmp_path):
        done = programs.python(RECIPES / "tool_loop.py", cwd=tmp_path)
        assert (done.stdout, done.stderr) == (shown("tool_loop"), "")
        assert (tmp_path / "bill.txt").read_text() == "4.0"


@pytest.mark.parametrize("place", ["here", "sandbox"])
def test_typed_tools(tmp_path, place):
    pytest.importorskip("mcp")
    pytest.importorskip("pydantic")
    if place == "sandbox":
        pytest.importorskip("sandlock")
    done = programs.python(RECIPES / "typed_tools.py", place, cwd=tmp_path)
    assert (done.stdout, done.stderr) == (shown("typed_tools"), "")


@pytest.mark.parametrize("place", ["here", "sandbox"])
def test_figures_and_files(tmp_path, place):
    """The model's part is a script, which is told of each step."""
    pytest.importorskip("matplotlib")
    wheels, out = tmp_path / "wheels", tmp_path / "out"
    wheels.mkdir()
    out.mkdir()
    if place == "sandbox":
        pytest.importorskip("sandlock")
    wheel(wheels, "prices", "2.0")
    codes = [
        "%pip install prices\nimport prices\nprices.version",
        "import matplotlib.pyplot as plt\n_ = plt.plot([1, 2, 4])",
        "open('sales.csv', 'w').write('tea,3.5')",
        "%pip install other",
    ]
    seen = []

    def model(messages):
        done = [message["content"] for message in messages if message["role"] == "tool"]
        if len(done) == len(codes):
            seen.extend(done)
            return {"role": "assistant", "content": "It is in sales.csv."}
        wanted = {"id": str(len(done)), "arguments": {"code": codes[len(done)]}}
        return {"role": "assistant", "content": None, "tool_calls": [wanted]}

    used = recipe("figures_and_files")
    install = used.Install(on_demand=["prices"], index=str(wheels))
    with used.opened(place, install) as session:
        assert used.answer(model, "Plot the sales.", session, out) == "It is in sales.csv."
    (installed,), (_, figure), _, (refused,) = seen
    if place == "sandbox":
        assert "Installed prices" in installed["text"] and "'2.0'" in installed["text"]
        assert "'other' may not be installed here" in refused["text"]
    else:
        assert "the host installs packages" in installed["text"]
    head, _, data = figure["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(data).startswith(b"\x89PNG")
    assert (out / "sales.csv").read_text() == "tea,3.5"


def test_mcp_server(tmp_path):
    """Through the protocol's own client, over standard input and output."""
    mcp = pytest.importorskip("mcp")
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    server = mcp.StdioServerParameters(
        command=sys.executable, args=[str(RECIPES / "mcp_server.py"), str(inside)]
    )

    async def talk():
        async with mcp.Client(server) as client:
            tools = await client.list_tools()
            codes = [
                "x = sum(map(price, ['tea', 'salt'])); x",
                f"x + 1, open({str(inside / 'a')!r}, 'w').close()",
                f"open({str(outside / 'a')!r}, 'w').close()",
            ]
            results = await asyncio.gather(
                *(client.call_tool("run_python", {"code": code}) for code in codes)
            )
            items = await client.call_tool("items", {})
            return [tool.name for tool in tools.tools], items, results

    names, items, results = asyncio.run(asyncio.wait_for(talk(), 60))
    assert names == ["run_python", "reset_python", "items"]
    assert items.structured_content == {"result": ["salt", "tea"]}
    told = [one.structured_content for one in results]
    assert [one["value"] for one in told] == [4.0, [5.0, None], None]
    [denied] = told[2]["denials"]
    assert denied["path"] == f"{outside}/a" and "not in '.'" in denied["message"]
    assert [one.is_error for one in results] == [False, False, True]
    assert (inside / "a").exists() and not (outside / "a").exists()


class TestSmolagents:
    CODES = (
        "open('/srv/data.csv', 'w')",
        "with open('primes.txt', 'w') as file:\n    file.write('2 3 5')\nprint('saved')\n1 + 1",
        "final_answer(open('primes.txt').read())",
    )

    @pytest.mark.parametrize("place", ["here", "sandbox"])
    def test_an_agent(self, tmp_path, monkeypatch, place):
        """It sees what was denied, and goes on; the model's part is a script."""
        monkeypatch.chdir(tmp_path)
        smolagents = pytest.importorskip("smolagents")
        if place == "sandbox":
            pytest.importorskip("sandlock")
        codes = iter(self.CODES)

        class Scripted(smolagents.Model):
            def generate(self, messages, **options):
                text = f"Thought: next.\n<code>\n{next(codes)}\n</code>"
                return smolagents.ChatMessage(
                    role=smolagents.models.MessageRole.ASSISTANT, content=text
                )

        with recipe("smolagents_executor").make_agent(Scripted(), place) as agent:
            assert agent.run("Save the primes.") == "2 3 5"
            denied, saved = agent.memory.steps[1:3]
        assert "open the file '/srv/data.csv' for writing: not in " in str(denied.error)
        assert saved.error is None
        assert "saved" in saved.observations and "2" in saved.observations
        assert Path("primes.txt").exists() is (place == "here")


@pytest.mark.parametrize("place", ["here", "sandbox"])
def test_an_approval_after_a_restart(tmp_path, place):
    """The first process ends while its question waits; another one gets the answer."""
    pytest.importorskip("httpx")
    pytest.importorskip("fastapi")
    if place == "sandbox":
        pytest.importorskip("sandlock")
    out, stored = tmp_path / "out", tmp_path / "stored"
    out.mkdir()
    codes = ["total = 4", f"open({str(out / 'a')!r}, 'w').write(str(total))", "total + 1"]
    program = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(RECIPES)!r})
from approve_later import ask, make_app
from fastapi.testclient import TestClient
from fastaudit_rs import Policy, Sandbox
if {place!r} == "here":
    session = Policy().session(on_ask=ask)
else:
    session = Sandbox(approvable=Policy(write=[{str(out)!r}])).session(on_ask=ask)

def model(messages):
    "In place of a model: it is told what was before the restart, too."
    done = [message["content"] for message in messages if message["role"] == "tool"]
    codes = {codes!r}
    if len(done) < len(codes):
        return {{"role": "assistant", "code": codes[len(done)]}}
    return {{"role": "assistant", "content": done}}

with session:
    client = TestClient(make_app(session, model, Path({str(stored)!r})))
    params = dict(word.split("=", 1) for word in sys.argv[2:])
    print(client.post(sys.argv[1], params=params).json())
"""

    def post(url, **params):
        words = [f"{key}={value}" for key, value in params.items()]
        done = programs.python("-W", "ignore", "-c", program, url, *words)
        assert done.returncode == 0, done.stderr
        return ast.literal_eval(done.stdout)

    asked = post("/tasks", task="Save the total.")
    assert str(out / "a") in asked["for"]
    assert os.listdir(stored / "questions") == [asked["waits"]]
    assert post(f"/questions/{asked['waits'][:-1]}", answer="once")["detail"].startswith("no q")
    assert os.listdir(out) == []
    first, wrote, last = post(f"/questions/{asked['waits']}", answer="once")["answer"]
    assert "printed nothing" in first and last == "value:\n5"
    assert wrote.startswith("session:\nThe session was restored") and wrote.endswith("value:\n1")
    assert (out / "a").read_text() == "4"
    assert "detail" in post(f"/questions/{asked['waits']}", answer="once")


@contextlib.contextmanager
def served(recipe, directory, *words):
    """A client of a recipe that uvicorn serves, in a process of its own."""
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("fastapi")
    with open(directory / "log", "w") as log:
        server = subprocess.Popen(
            [sys.executable, RECIPES / recipe, *words, "0"],
            stderr=log,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        address = None
        for _ in range(600):
            found = re.search(r"running on (http://\S+)", (directory / "log").read_text())
            if found:
                address = found[1]
                break
            assert server.poll() is None, (directory / "log").read_text()
            time.sleep(0.1)
        with httpx.Client(base_url=address, timeout=30) as client:
            yield client
    finally:
        server.terminate()
        server.wait()


def test_a_sandbox_for_each_user_of_fastapi(tmp_path):
    pytest.importorskip("sandlock")
    with served("fastapi_users.py", tmp_path) as client:

        def step(user, code):
            return client.post("/steps", content=code, headers={"x-user": user}).json()

        assert step("ada", "n = 1\nn")["value"] == 1
        assert "NameError" in step("bob", "n")["text"]
        killed = "import signal, time; signal.setitimer(signal.ITIMER_REAL, 0.001); time.sleep(9)"
        assert "ended its process" in step("ada", killed)["text"]
        assert step("ada", "n + 1")["value"] == 2
        assert step("bob", "while True: pass")["ended_by"] == "wall_seconds"
        assert step("bob", "2")["value"] == 2


class TestFastAPI:
    @pytest.fixture
    def client(self, tmp_path):
        with served("fastapi_app.py", tmp_path, tmp_path) as client:
            yield client

    def test_each_user_has_a_directory(self, client, tmp_path):
        def put(user, name):
            return client.put(
                f"/notes/{name}", params={"text": "hi"}, headers={"X-User": user} if user else {}
            )

        assert put("ada", "ada/a.txt").json() == {"written": 2}
        assert put("bob", "bob/b.txt").json() == {"written": 2}
        reply = put("bob", "ada/a.txt")
        assert reply.status_code == 403
        assert reply.json()["effect"] == "write"
        assert f"not in '{tmp_path}/bob'" in reply.json()["denied"]
        assert put("", "x").status_code == 401
        assert put("../ada", "x").status_code == 401
        for user, status in (("ada", 200), ("bob", 403)):
            reply = client.get("/later/ada/c.txt", headers={"X-User": user})
            assert reply.status_code == status
        assert sorted(path.name for path in (tmp_path / "ada").iterdir()) == ["a.txt", "c.txt"]

    def test_many_requests_at_once(self, client, tmp_path):
        """No request is under the guard of another."""

        async def ask():
            import httpx

            async with httpx.AsyncClient(base_url=client.base_url, timeout=60) as many:
                users = ["ada", "bob"] * 50
                paths = ["ada", "ada", "bob", "bob"] * 25
                requests = [
                    many.put(
                        f"/notes/{path}/{number}.txt",
                        params={"text": "hi"},
                        headers={"X-User": user},
                    )
                    for number, (user, path) in enumerate(zip(users, paths, strict=True))
                ]
                replies = await asyncio.gather(*requests)
            return [
                (user == path, reply.status_code)
                for user, path, reply in zip(users, paths, replies, strict=True)
            ]

        assert set(asyncio.run(ask())) == {(True, 200), (False, 403)}


def test_dask_workers(tmp_path):
    pytest.importorskip("distributed")
    done = programs.python(RECIPES / "dask_workers.py", cwd=tmp_path)
    assert done.stdout == shown("dask_workers"), done.stderr


@pytest.mark.nightly
def test_ray_nodes(tmp_path):
    pytest.importorskip("ray")
    pytest.importorskip("sandlock")
    done = programs.run(
        [sys.executable, RECIPES / "ray_nodes.py"],
        env={**os.environ, "RAY_AUTH_MODE": "disabled"},
        cwd=tmp_path,
    )
    assert done.stdout == shown("ray_nodes"), done.stderr


@pytest.mark.nightly
@pytest.mark.skipif(sys.version_info < (3, 12), reason="safepyrun needs sys.monitoring")
def test_solveit(tmp_path):
    done = programs.run(
        [peers.python(), RECIPES / "solveit.py"], env=peers.environment(tmp_path), cwd=tmp_path
    )
    # A package of safepyrun's writes this file each time, with a directory that may be gone.
    errors = [line for line in done.stderr.splitlines() if "pyskills.pth" not in line]
    assert (done.stdout, errors) == (shown("solveit"), [])
