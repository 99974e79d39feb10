"""Questions of a sandbox before an operation is denied, and the most that answers to them open."""

import asyncio
import contextlib
import os
import threading
import time

import pytest
from sandboxes import OURS
from waiting import until

from fastaudit_rs import Approvals, Limits, Network, Policy, Sandbox


@pytest.fixture
def asking(tmp_path, out):
    """`asking(*answers, **options)`: a sandbox that asks, and the questions so far."""
    with contextlib.ExitStack() as stack:

        def make(*answers, **options):
            asked, left = [], list(answers)

            def on_ask(denied):
                asked.append((threading.current_thread(), denied))
                answer = left.pop(0) if len(left) > 1 else left[0]
                if isinstance(answer, BaseException):
                    raise answer
                return answer

            options.setdefault("approvable", Policy(write=[str(out)], network=False))
            options.setdefault("limits", Limits(wall_seconds=20))
            sandbox = Sandbox(parent=tmp_path, on_ask=on_ask, **options)
            return stack.enter_context(sandbox), asked

        yield make


@pytest.fixture(params=["run", "session"])
def runner(request):
    """`runner(sandbox)`: what runs code, which is the sandbox itself or a session of it."""
    return lambda sandbox: sandbox if request.param == "run" else sandbox.session()


def writing(*paths):
    return "\n".join(f"open({str(path)!r}, 'w').close()" for path in paths)


def test_answers(asking, runner, out):
    sandbox, asked = asking("once", "deny", "pattern")
    run = runner(sandbox).run
    assert run(writing(out / "a")).success
    ran = run(f"print(1)\n{writing(out / 'b')}")
    assert (ran.returncode, ran.stdout, ran.error.line) == (77, "1\n", 2)
    assert [denied.path for denied in ran.violations] == [str(out / "b")]
    ran = run(writing(out / "c", out / "d"))
    assert ran.success and ran.violations == []
    assert [denied.path for _, denied in asked] == [str(out / name) for name in "abc"]
    assert {thread for thread, _ in asked} == {threading.current_thread()}
    assert asked[0][1].answers == ("once", "guard", "pattern", "deny", "never")
    assert sorted(os.listdir(out)) == ["a", "c", "d"]


def test_an_answer_is_for_the_place_that_was_shown(tmp_path, out):
    for name in ("one", "two"):
        (out / name).mkdir()
    (out / "link").symlink_to(out / "one")
    asked = []

    def on_ask(denied):
        asked.append((denied.path, denied.resolved))
        (out / "new").symlink_to(out / "two")
        os.replace(out / "new", out / "link")
        return "once"

    approvable = Policy(write=[out], network=False)
    with Sandbox(parent=tmp_path, on_ask=on_ask, approvable=approvable) as sandbox:
        ran = sandbox.run(writing(out / "link" / "a"))
    assert asked == [(str(out / "link" / "a"), str(out / "one" / "a"))]
    assert ran.violations[0].answer.endswith("led to another place when the answer came")
    assert os.listdir(out / "one") == os.listdir(out / "two") == []


def test_an_answer_lasts_as_long_as_its_run_or_session(asking, out):
    sandbox, asked = asking("guard")
    for _ in range(2):
        assert sandbox.run(writing(out / "a", out / "a")).success
    assert len(asked) == 2
    session = sandbox.session()
    for _ in range(2):
        assert session.run(writing(out / "a")).success
    # It is part of the state.
    session.undo()
    assert session.run(writing(out / "a")).success and len(asked) == 3


def test_the_rest_of_a_run_is_the_same(asking, out, tmp_path):
    sandbox, asked = asking("once")
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys\n{writing(out / 'a')}\nprint(sys.argv[1:], input())\nsys.argv[1]"
    )
    ran = sandbox.run(script, ["x"], "typed", value=True)
    assert (ran.stdout, ran.value, len(asked)) == ("['x'] typed\n", "x", 1)
    ran = sandbox.run(f"{writing(out / 'a')}\nimport sys; sys.exit(5)", stdin=b"x" * (1 << 20))
    assert ran.returncode == 5


def test_an_answer_opens_no_more_than_the_kernel(asking, runner, out):
    """Also one that is kept."""
    (out / "in").mkdir()
    sandbox, asked = asking("pattern", approvable=Policy(write=[str(out / "in")]))
    run = runner(sandbox).run
    ran = run(f"{writing(out / 'in' / 'a')}\n{writing(out / 'b')}")
    assert (ran.returncode, ran.error.kind) == (77, "fastaudit_rs.AuditDenied")
    [denied] = ran.violations
    assert (denied.path, denied.rule) == (str(out / "b"), "write")
    assert "approvable=" in denied.answer and "approvable=" in str(denied)
    assert len(asked) == 1 and os.listdir(out) == ["in"]


#: What the kernel denies whatever is answered, by the field of the policy.
HELD = {
    "write": "open({out!r} + '/a', 'w')",
    "read": "open({out!r} + '/there').read()",
    "commands": "import subprocess; subprocess.run(['true'])",
    "network": "import socket; socket.create_connection(('127.0.0.1', 9))",
    "lookup": "import socket; socket.getaddrinfo('example.com', 80)",
}


def test_without_a_bound_nobody_is_asked_about_what_the_kernel_holds(tmp_path, runner, out):
    (out / "there").write_text("x")
    asked = []
    with pytest.warns(UserWarning, match=r"on_ask without approvable") as warned:
        sandbox = Sandbox(parent=tmp_path, on_ask=lambda denied: asked.append(denied) or "once")
    assert warned[0].filename == __file__
    with sandbox, sandbox.pool(1) as pool:
        one = runner(sandbox)
        for run in (one.run, pool.run):
            for code in HELD.values():
                ran = run(code.format(out=str(out)))
                assert ran.error.kind == "fastaudit_rs.AuditDenied", ran.error
                [denied] = ran.violations
                assert "approvable=" in denied.answer
        assert asked == []
        assert one.run("import os; os.environ['LD_PRELOAD'] = ''").error is None
    assert (len(asked), os.listdir(out)) == (1, ["there"])


@pytest.mark.slow
def test_sessions_have_questions_of_their_own(asking, out, tmp_path):
    sandbox, asked = asking("once")
    others = []
    with sandbox.session(on_ask=others.append) as session:
        assert not session.run(writing(out / "b")).success
    assert (len(asked), len(others)) == (0, 1)
    with Sandbox(parent=tmp_path) as sandbox:
        with pytest.warns(UserWarning, match=r"approvable=Policy\(write") as warned:
            sandbox.session(on_ask=print).close()
    assert warned[0].filename == __file__


@pytest.mark.filterwarnings("error")
def test_without_the_kernel_an_answer_opens_what_it_says(asking, out):
    sandbox, asked = asking("once", confine="audit", approvable=None)
    assert sandbox.session().run(writing(out / "a")).error is None
    assert (len(asked), os.listdir(out)) == (1, ["a"])


def test_a_pool_asks(asking, out):
    sandbox, asked = asking("once")
    with sandbox.pool(1) as pool:
        for name in "ab":
            assert pool.run(writing(out / name)).success
    assert len(asked) == 2 and sorted(os.listdir(out)) == ["a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize("is_async_run", [True, False])
def test_a_coroutine_answers(out, tmp_path, runner, is_async_run):
    loops = []

    async def on_ask(denied):
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(9 if "late" in denied.path else 0.01)
        return "once"

    approvable = Policy(write=[str(out)])
    with Sandbox(parent=tmp_path, on_ask=on_ask, ask_seconds=0.3, approvable=approvable) as sandbox:
        one = runner(sandbox)
        codes = [writing(out / "a"), writing(out / "late")]

        async def main():
            ran = [await one.arun(code) for code in codes]
            assert set(loops) == {asyncio.get_running_loop()}
            return ran

        ran = asyncio.run(main()) if is_async_run else [one.run(code) for code in codes]
    assert [one.returncode for one in ran] == [0, 77]
    assert os.listdir(out) == ["a"]


@pytest.mark.slow
def test_errors_of_the_host(asking, runner, out):
    answers = (ValueError("broken"), 5, None, "odd", object(), KeyboardInterrupt(), "once")
    sandbox, _ = asking(*answers)
    run = runner(sandbox).run
    ran = [run(writing(out / "a")) for _ in answers[:5]]
    assert {one.returncode for one in ran} == {77}
    assert "on_ask raised ValueError: broken" in ran[0].violations[0].answer
    with pytest.raises(KeyboardInterrupt):
        run(writing(out / "a"))
    assert run(writing(out / "a")).success


@pytest.mark.slow
def test_what_is_blocked_stays_so(asking, out):
    (out / "secret").mkdir()
    (out / "secret" / "key").write_text("key")
    policy = Policy.preset("sandbox").replace(block=[str(out / "secret")])
    sandbox, asked = asking("once", policy=policy, approvable=Policy(read=[str(out)]))
    ran = sandbox.session().run(f"open({str(out / 'secret' / 'key')!r}).read()")
    assert ([denied.rule for denied in ran.violations], asked) == (["block"], [])


def test_threads_and_processes_of_the_code(asking, out):
    """Threads ask as well; a process that the code started asks nobody."""
    policy = Policy(read=["/"], native=True, commands=True, threads="inherit")
    sandbox, asked = asking("once", policy=policy)
    code = f"""
import os, threading
threads = [threading.Thread(target=open, args=({str(out)!r} + f'/{{n}}', 'w')) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
child = os.fork()
if not child:
    try: open({str(out)!r} + '/child', 'w')
    except OSError: pass
os.waitpid(child, 0) if child else None
"""
    ran = sandbox.run(code)
    assert sorted(os.listdir(out)) == ["0", "1", "2", "3"], ran.stderr
    assert len(asked) == 4


#: Code that has got around its guard, and does with the connection whatever it likes.
HOSTILE = {
    "garbage": "write(b'x' * 100)",
    "no question": 'raw(b"{"); raw([1]); raw({"kind": "ask"}); raw({"kind": "ask", "id": 1})',
    "no denial": 'raw({"kind": "ask", "id": 1, "denied": {"event": 1}})',
    "calls": 'raw({"kind": "call", "id": 1, "name": "__import__"})',
    "many": 'for n in range(20_000): raw({"kind": "ask", "id": n})',
    "closed": "os.close(channel.fileno())",
    "a huge length": 'write(struct.pack("!Q", 1 << 63))',
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_code_that_has_got_around_its_guard(asking, out, name):
    sandbox, asked = asking("once", policy=Policy(read=["/"], native=True))
    begun = time.monotonic()
    after = f"try:\n    {writing(out / 'a')}\nexcept OSError: pass"
    ran = sandbox.run(f"{OURS}\ntry:\n    {HOSTILE[name]}\nexcept OSError: pass\n{after}\nprint(1)")
    assert time.monotonic() - begun < 10
    assert ran.stdout == "1\n", ran
    assert len(asked) <= 1
    assert sandbox.run(writing(out / "b")).success


@pytest.mark.slow
@pytest.mark.alone
def test_it_leaves_nothing(asking, out):
    sandbox, _ = asking("once")
    sandbox.run(writing(out / "a"))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        sandbox.run(writing(out / "a"))
    # A thread that looks at a disk closes its own as it ends.
    assert until(lambda: len(os.listdir("/proc/self/fd")) <= before)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"approvable": "/"}, TypeError, "approvable must be a Policy"),
        ({"on_ask": "once"}, TypeError, "on_ask must be a function, not str"),
        ({"on_ask": Approvals("a.toml")}, TypeError, "on_ask must not be Approvals: code in a"),
        ({"on_ask": print, "ask_seconds": 0}, ValueError, "ask_seconds must be positive"),
        (
            {"on_ask": print, "backend": "docker", "image": "x"},
            ValueError,
            "on_ask needs backend='process': containers do not ask",
        ),
    ],
)
def test_arguments(tmp_path, options, error, told):
    with pytest.raises(error, match=told):
        Sandbox(parent=tmp_path, **options)


def test_approvals_of_a_session(tmp_path):
    with Sandbox(parent=tmp_path) as sandbox:
        with pytest.raises(TypeError, match="must not be Approvals"):
            sandbox.session(on_ask=Approvals("x", lambda denied: None))


def test_the_kernel_holds_both_policies():
    from fastaudit_rs.sandbox.host.policies import bound

    own = Policy(write=["/a"], read=["/b"], commands=["ls"], network=False, block=["/x"])
    more = Policy(write=["/c"], read=["/d"], commands=["cat"], network=True)
    held = bound(own, more)
    assert (held.write, held.read, held.commands) == (("/a", "/c"), ("/b", "/d"), ("ls", "cat"))
    assert (held.network, held.block) == (Network(listen=True, unix=None), ("/x",))
    one, two = Network(hosts=["a:1"], ports=[1]), Network(hosts=["b:2"], listen=["*:3"])
    network = bound(own.replace(network=one), more.replace(network=two)).network
    assert network == Network(hosts=["a:1", "b:2"], ports=None, listen=["*:3"])
    assert bound(own, more.replace(network=one)).network == one
    assert bound(own.replace(network=one), more.replace(network=False)).network == one
    assert bound(own, Policy()).read == ("/b",)
    assert bound(own, Policy(commands=True)).commands is True


def test_files_by_which_the_host_governs(out):
    """They lie in a place of `write`: the guard keeps them."""
    rules = out / "policy.toml"
    rules.write_text(f"native = true\nnetwork = false\nwrite = ['{out}']\n")
    Policy(write=[]).guard(on_ask=Approvals(out / "answers.toml"))
    with Sandbox(Policy.from_toml(rules)) as sandbox:
        session = sandbox.session()
        for name in ("policy.toml", "answers.toml"):
            ran = session.run(writing(out / name))
            assert [denied.rule for denied in ran.violations] == ["protect"], ran.error
        ran = session.run(f"import os; os.rename({str(out)!r}, {str(out) + '2'!r})")
        assert ran.error is not None
        assert session.run(writing(out / "new")).error is None
        ran = sandbox.run(writing(rules))
        assert [denied.rule for denied in ran.violations] == ["protect"]
    assert rules.read_text().startswith("native")
    assert sorted(os.listdir(out)) == ["new", "policy.toml"]
