"""The backend of deepagents, with the package and a scripted model: files and commands."""

import asyncio

import pytest

from fastaudit_rs import Limits, Policy, Sandbox

pytest.importorskip("deepagents")
pytest.importorskip("sandlock")

from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

from fastaudit_rs.adapters.deepagents import SandboxBackend

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def backend():
    with SandboxBackend(limits=Limits(wall_seconds=20)) as backend:
        yield backend


class Scripted(GenericFakeChatModel):
    """A model that sends the next message, whatever it is told."""

    def bind_tools(self, tools, **options):
        return self


def call(name, **args):
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"{name} {args}"}])


def test_an_agent_uses_its_tools(backend):
    directory = backend.sandbox.directory
    script = [
        call("write_file", file_path=f"{directory}/notes/a.txt", content="one\ntwo\n"),
        call("edit_file", file_path=f"{directory}/notes/a.txt", old_string="two", new_string="2"),
        call("read_file", file_path=f"{directory}/notes/a.txt"),
        call("grep", pattern="2", path=str(directory), output_mode="content"),
        call("glob", pattern="**/*.txt", path=str(directory)),
        call("ls", path=f"{directory}/notes"),
        call("execute", command="cat notes/a.txt; echo err >&2; exit 3"),
        call("write_file", file_path="/srv/a.txt", content="no"),
        AIMessage("It is done."),
    ]
    agent = create_deep_agent(
        Scripted(messages=iter(script)), backend=backend, system_prompt=backend.rules_for_model()
    )
    state = agent.invoke({"messages": [("user", "Go.")]})
    told = [one.content for one in state["messages"] if isinstance(one, ToolMessage)]
    assert state["messages"][-1].content == "It is done."
    assert len(told) == 8
    assert "one" in told[2] and "2" in told[2] and "two" not in told[2]
    assert "error" not in told[3].lower() and "a.txt" in told[3]
    assert f"{directory}/notes/a.txt" in told[4] and "a.txt" in told[5]
    assert "one\n2\nerr" in told[6] and "3" in told[6]
    assert told[7] == "Failed to write file '/srv/a.txt': permission_denied"
    assert backend.sandbox.read_file("notes/a.txt") == b"one\n2\n"


def test_the_kernel_holds_commands(backend):
    for command in ("echo x > /srv/fastaudit_rs_test", "cat /root/.bashrc"):
        ran = backend.execute(command)
        assert ran.exit_code != 0 and "denied" in ran.output
    assert "denied" in backend.execute("python3 -c \"open('/srv/b', 'w')\"").output


def test_commands_end(backend):
    ran = backend.execute("echo a; sleep 30", timeout=1)
    assert ran.exit_code == 124 and ran.output.startswith("a\n") and "after 1 s" in ran.output
    assert backend.execute("sleep 30 & echo on").output == "on\n"
    with SandboxBackend(limits=Limits(wall_seconds=1)) as short:
        ran = short.execute("echo b; sleep 30", timeout=0)
    assert ran.exit_code != 0 and "b\n" in ran.output and "by the time limit" in ran.output


def test_a_command_that_is_cancelled_ends(backend):
    async def cancelled():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(backend.aexecute("sleep 1; touch late"), 0.5)
        await asyncio.sleep(1)
        return await backend.aexecute("ls late")

    assert asyncio.run(cancelled()).exit_code != 0


def test_output_is_bounded_and_readable(backend):
    async def both(command):
        given = (command, "/captured")
        most = {"max_inline_bytes": 80_000}
        return (
            backend.execute_with_offload(*given, **most).response,
            (await backend.aexecute_with_offload(*given, **most)).response,
        )

    for ran in asyncio.run(both(r"printf '\033[31mred\033[0m\n'")):
        assert (ran.output, ran.truncated) == ("red\n", False)
    for ran in asyncio.run(both("yes | head -c 1000000")):
        assert ran.truncated and len(ran.output) < 110_000 and ran.exit_code == 0


def test_large_files_and_many_are_read_and_searched_whole(backend):
    directory = f"{backend.sandbox.directory}/many"
    backend.upload_files(
        [
            (f"{directory}/lines.txt", b"a needle\x1b[0m in the hay\n" * 5000),
            (f"{directory}/image.png", bytes(range(256)) * 1000),
        ]
    )
    backend.execute(f"cd {directory}; for i in $(seq 2000); do : > empty_$i; done")
    found = backend.grep("needle", directory)
    assert found.error is None and len(found.matches) == 5000
    assert found.matches[0] == {
        "path": f"{directory}/lines.txt",
        "line": 1,
        "text": "a needle\x1b[0m in the hay",
    }
    assert len(backend.read(f"{directory}/lines.txt", 0, 5000).file_data["content"]) > 100_000
    assert backend.read(f"{directory}/image.png").file_data["encoding"] == "base64"
    assert len(backend.ls(directory).entries) == len(backend.glob("*", directory).matches) == 2002


def test_files_of_the_host(backend):
    directory = backend.sandbox.directory
    paths = [f"{directory}/up.bin", "/etc/up", "../up"]
    up = backend.upload_files([(path, b"\0") for path in paths])
    assert [one.error for one in up] == [None, "permission_denied", "permission_denied"]
    backend.execute("ln -s /etc/passwd link; mkdir d; mkfifo pipe")
    down = backend.download_files([paths[0], "none", "link", "/etc/passwd", "d", "pipe"])
    assert down[0].content == b"\0" and [one.content for one in down[1:]] == [None] * 5
    assert [one.error for one in down[:5]] == [
        None,
        "file_not_found",
        "invalid_path",
        "invalid_path",
        "is_directory",
    ]
    assert asyncio.run(backend.aexecute("cat none")).exit_code == 1


def test_files_where_the_policy_allows(tmp_path):
    policy = Policy.preset("sandbox").replace(commands=True, write=[str(tmp_path)])
    with SandboxBackend(policy) as backend:
        assert backend.write(f"{tmp_path}/d/a", "text").error is None
    assert (tmp_path / "d" / "a").read_text() == "text"


def test_a_sandbox_of_the_host():
    policy = Policy.preset("sandbox").replace(commands=True)
    with Sandbox(policy) as sandbox:
        with SandboxBackend(sandbox) as backend:
            assert backend.id and backend.execute("echo 1").output == "1\n"
        assert sandbox.run("1").success
        with pytest.raises(TypeError, match="limits, env: a sandbox has them already"):
            SandboxBackend(sandbox, Limits(), env=["A"])


def test_a_policy_without_programs():
    with pytest.raises(ValueError, match="write commands=True"):
        SandboxBackend(Policy.preset("sandbox"))
    with pytest.raises(TypeError, match="no_such"):
        SandboxBackend(no_such=1)
