"""`commands.run`: programs that a host runs in a sandbox, alike in one and in its sessions."""

import asyncio
import time

import pytest

from fastaudit_rs import Policy, Sandbox
from fastaudit_rs.sandbox import SandboxManager

ALLOWED = Policy.preset("sandbox").replace(commands=True)


@pytest.fixture(scope="module")
def box():
    with Sandbox(ALLOWED) as made:
        yield made


@pytest.fixture(params=("sandbox", "session"))
def place(request, box):
    """Where programs are run."""
    if request.param == "sandbox":
        yield box
    else:
        with box.session() as session:
            yield session


def test_output_and_status(place):
    ran = place.commands.run("echo out; echo err >&2; cat; exit 3", stdin="ä\n")
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "out\nä\n", "err\n")
    assert (ran.success, ran.error, ran.value) == (False, None, None)
    assert place.commands.run(["cat"], stdin=b"1").stdout == "1"
    assert place.commands.run(["cat"]).stdout == ""
    assert place.commands.run(["ls", "-d", "/"]).success
    assert place.commands.run("kill -TERM $$").returncode == 128 + 15
    ran = place.commands.run(["nosuch"])
    assert (ran.returncode, ran.stderr) == (127, "No such file or directory: 'nosuch'\n")
    assert place.commands.run("echo '$x; ü'").stdout == "$x; ü\n"


def test_directory_and_variables(place):
    place.files.make_dir("sub")
    ran = place.commands.run("pwd; echo $NAME $HOME > made", cwd="sub", env={"NAME": "x"})
    assert ran.stdout.endswith("/sub\n") and ran.changed == ["sub/made"]
    assert place.files.read("sub/made").startswith(b"x /")
    assert "No such file" in place.commands.run(["ls"], cwd="none").stderr


def test_what_programs_read(place, tmp_path):
    """More than Python code may: the rules for a model say so."""
    secret = tmp_path / "secret"
    secret.write_text("1")
    assert place.run("open('/etc/passwd')").error.kind == "fastaudit_rs.AuditDenied"
    ran = place.commands.run(["cat", "/etc/passwd", "/etc/group"])
    assert ran.success and "root:" in ran.stdout
    ran = place.commands.run(["cat", str(secret)])
    assert (ran.returncode, ran.stdout) == (1, "") and "Permission denied" in ran.stderr
    rules = place.rules_for_model().splitlines()
    assert "- Read files in: installed packages, the working directory" in rules
    at = rules.index("- Start programs: any")
    assert rules[at + 1].startswith("- Programs read besides: ")
    assert rules[at + 1].endswith("(/etc/passwd, /etc/group)")


def test_a_program_is_ended(place):
    begun = time.monotonic()
    ran = place.commands.run("sleep 20", timeout=0.5)
    assert (ran.killed_by, time.monotonic() - begun < 10) == ("wall_seconds", True)
    assert place.commands.run("echo 1").stdout == "1\n"

    async def cancelled():
        task = asyncio.create_task(place.commands.arun("sleep 20"))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await place.commands.arun("echo 2")).stdout

    assert asyncio.run(cancelled()) == "2\n"


@pytest.mark.parametrize("command", ("ls -a", ["ls", "-a"]))
@pytest.mark.parametrize("where", ("sandbox", "session"))
def test_a_program_that_is_denied(make_sandbox, command, where):
    sandbox = make_sandbox(Policy.preset("sandbox"))
    place = sandbox if where == "sandbox" else sandbox.session()
    ran = place.commands.run(command)
    assert (ran.returncode, ran.stdout, len(ran.violations)) == (77, "", 1)
    assert "To allow it: commands = " in str(ran.violations[0])
    assert ran.error.kind == "fastaudit_rs.AuditDenied"
    assert "fastaudit_rs/" not in ran.error.traceback + ran.stderr


@pytest.mark.parametrize("where", ("sandbox", "session"))
def test_questions_are_asked_in_the_loop_that_waits(where):
    loops = []

    async def on_ask(denied):
        loops.append(asyncio.get_running_loop())
        return "guard"

    async def asked():
        policy, most = Policy.preset("sandbox"), Policy(commands=True)
        async with Sandbox(policy, on_ask=on_ask, approvable=most) as made:
            place = made if where == "sandbox" else await made.asession()
            ran = await place.commands.arun("echo 1")
            return ran.stdout, {*loops} == {asyncio.get_running_loop()}

    assert asyncio.run(asked()) == ("1\n", True)


def test_a_session_keeps_what_it_has(box):
    with box.session() as session:
        session.run("import os\nos.mkdir('at')\nos.chdir('at')\nos.environ['X'] = '1'\nx = 5\nx")
        assert session.commands.run("basename $PWD; echo $X").stdout == "at\n1\n"
        assert (session.run("_, x").value, session.names) == ((5, 5), ["os", "x"])
        session.commands.run("echo 1 > file")
        assert session.diff()[-1].name == "at/file"
        session.undo()
        assert session.run("x").value == 5
    with pytest.raises(RuntimeError, match="the session is closed"):
        session.commands.run("ls")


#: Arguments that are refused, and the error.
WRONG = (
    ((3,), {}, TypeError, "command must be a str or a list of str, not int"),
    ((b"ls",), {}, TypeError, "command must be a str or a list"),
    (([],), {}, ValueError, "command must name a program"),
    (("",), {}, ValueError, "command must name a program"),
    ((["ls", 3],), {}, TypeError, "command must be str, not int"),
    (("x" * 100_001,), {}, ValueError, "at most 100000 characters .*, not 100001"),
    (("a\0b",), {}, ValueError, "no null characters"),
    (("ls",), {"env": ["A"]}, TypeError, "env must be a mapping"),
    (("ls",), {"env": {"A": 1}}, TypeError, "env must be str"),
    (("ls",), {"env": {"A=B": "1"}}, ValueError, "env: 'A=B' is no name of a variable"),
    (("ls",), {"stdin": 3}, TypeError, "stdin must be str or bytes"),
    (("ls",), {"timeout": -1}, ValueError, "timeout must be positive"),
    (("ls",), {"envs": {}}, TypeError, "env"),
)


@pytest.mark.parametrize(("args", "named", "error", "match"), WRONG)
def test_wrong_arguments(box, args, named, error, match):
    with pytest.raises(error, match=match):
        box.commands.run(*args, **named)


def test_a_long_command(box):
    with box.session() as session:
        for place in (box, session):
            assert len(place.commands.run(["printf", "%s", "ü" * 50_000]).stdout) == 50_000


def test_the_history_has_them():
    with SandboxManager(ALLOWED) as manager:
        manager.create("one")
        manager.session("one").commands.run(["ls", "a b"])
        assert [entry.code for entry in manager.history("one")] == ["ls 'a b'"]
