"""Questions of the runs of a sandbox, before an operation is denied."""

import asyncio
import os
import threading
import time

import pytest
from users import USERS, run_as

from fastaudit_rs import Approvals, Limits, Policy, Sandbox

pytest.importorskip("sandlock")

#: Our own connection in the process of a run, and a way to write to it.
OURS = """
import gc, json, os, struct, threading
channel = next(found for found in gc.get_objects() if type(found).__name__ == "HostChannel")
def raw(head):
    data = (head if isinstance(head, bytes) else json.dumps(head).encode()) + b"\\n"
    channel._connection.sendall(struct.pack("!Q", len(data)) + data)
"""


@pytest.fixture
def asking(tmp_path, out):
    """`asking(*answers, **options)`: a sandbox that asks, and the questions so far."""
    made = []

    def make(*answers, **options):
        asked, left = [], list(answers)

        def on_ask(denied):
            asked.append((threading.current_thread(), denied))
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, BaseException):
                raise answer
            return answer

        options.setdefault("ask_up_to", Policy(write=[str(out)], network=False))
        options.setdefault("limits", Limits(wall_seconds=20))
        policy = options.pop("policy", Policy.preset("sandbox"))
        made.append(Sandbox(policy, parent=tmp_path, on_ask=on_ask, **options))
        return made[-1], asked

    yield make
    for sandbox in made:
        sandbox.close()


def writing(*paths):
    return "\n".join(f"open({str(path)!r}, 'w').close()" for path in paths)


def test_answers(asking, out):
    sandbox, asked = asking("once", "deny", "pattern")
    assert sandbox.run(writing(out / "a")).success
    ran = sandbox.run(f"print(1)\n{writing(out / 'b')}")
    assert (ran.returncode, ran.stdout, ran.error.line) == (77, "1\n", 2)
    assert [denied.path for denied in ran.violations] == [str(out / "b")]
    ran = sandbox.run(writing(out / "c", out / "d"))
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

    up_to = Policy(write=[out], network=False)
    with Sandbox(parent=tmp_path, on_ask=on_ask, ask_up_to=up_to) as sandbox:
        ran = sandbox.run(writing(out / "link" / "a"))
    assert asked == [(str(out / "link" / "a"), str(out / "one" / "a"))]
    assert ran.violations[0].answer.endswith("led to another place when the answer came")
    assert os.listdir(out / "one") == os.listdir(out / "two") == []


def test_an_answer_lasts_as_long_as_its_run(asking, out):
    sandbox, asked = asking("guard")
    for _ in range(2):
        assert sandbox.run(writing(out / "a", out / "a")).success
    assert len(asked) == 2


def test_the_rest_of_a_run_is_the_same(asking, out, tmp_path):
    sandbox, asked = asking("once")
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys\n{writing(out / 'a')}\nprint(sys.argv[1:], input())\nsys.argv[1]"
    )
    ran = sandbox.run(script, ["x"], "typed", value=True)
    assert (ran.stdout, ran.value, len(asked)) == ("['x'] typed\n", "x", 1)
    ran = sandbox.run(f"{writing(out / 'a')}\nimport sys; sys.exit(5)", input=b"x" * (1 << 20))
    assert ran.returncode == 5


def test_an_answer_does_not_open_what_the_kernel_holds(asking, tmp_path):
    sandbox, asked = asking("once")
    ran = sandbox.run(writing(tmp_path / "other"))
    assert (ran.returncode, [denied.rule for denied in ran.violations]) == (77, ["write"])
    assert "ask_up_to=" in ran.violations[0].answer
    assert asked == []


@pytest.mark.slow
def test_without_a_bound_a_run_and_a_pool_do_not_ask_about_files(tmp_path, out):
    asked = []
    with pytest.warns(UserWarning, match="on_ask without ask_up_to") as warned:
        sandbox = Sandbox(parent=tmp_path, on_ask=asked.append)
    assert warned[0].filename == __file__
    with sandbox, sandbox.pool(1) as pool:
        for ran in (sandbox.run(writing(out / "a")), pool.run(writing(out / "a"))):
            assert (ran.returncode, len(ran.violations)) == (77, 1)
    assert (asked, os.listdir(out)) == ([], [])


def test_a_pool_asks(asking, out):
    sandbox, asked = asking("once")
    with sandbox.pool(1) as pool:
        for name in "ab":
            assert pool.run(writing(out / name)).success
    assert len(asked) == 2 and sorted(os.listdir(out)) == ["a", "b"]


@pytest.mark.slow
def test_sessions_ask_too(asking, out):
    sandbox, asked = asking("once")
    others = []
    with sandbox.session() as session:
        assert session.run(writing(out / "a")).success
    with sandbox.session(on_ask=others.append) as session:
        assert not session.run(writing(out / "b")).success
    assert (len(asked), len(others)) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("is_async_run", [True, False])
def test_a_coroutine_answers(out, tmp_path, is_async_run):
    loops = []

    async def on_ask(denied):
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(9 if "late" in denied.path else 0.01)
        return "once"

    up_to = Policy(write=[str(out)])
    with Sandbox(parent=tmp_path, on_ask=on_ask, ask_seconds=0.3, ask_up_to=up_to) as sandbox:
        codes = [writing(out / "a"), writing(out / "late")]

        async def main():
            ran = [await sandbox.arun(code) for code in codes]
            assert set(loops) == {asyncio.get_running_loop()}
            return ran

        ran = asyncio.run(main()) if is_async_run else [sandbox.run(code) for code in codes]
    assert [one.returncode for one in ran] == [0, 77]
    assert os.listdir(out) == ["a"]


@pytest.mark.slow
def test_errors_of_the_host(asking, out):
    sandbox, _ = asking(ValueError("broken"), 5, KeyboardInterrupt(), "once")
    for _ in range(2):
        assert sandbox.run(writing(out / "a")).returncode == 77
    with pytest.raises(KeyboardInterrupt):
        sandbox.run(writing(out / "a"))
    assert sandbox.run(writing(out / "a")).success


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
    "garbage": "channel._connection.sendall(b'x' * 100)",
    "no question": 'raw(b"{"); raw([1]); raw({"kind": "ask"}); raw({"kind": "ask", "id": 1})',
    "no denial": 'raw({"kind": "ask", "id": 1, "denied": {"event": 1}})',
    "calls": 'raw({"kind": "call", "id": 1, "name": "__import__"})',
    "many": 'for n in range(20_000): raw({"kind": "ask", "id": n})',
    "closed": "os.close(channel.fileno())",
    "a huge length": 'channel._connection.sendall(struct.pack("!Q", 1 << 63))',
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_code_that_has_got_around_its_guard(asking, out, name):
    policy = Policy(read=["/"], native=True)
    sandbox, asked = asking("once", policy=policy)
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
    deadline = time.monotonic() + 5
    # A thread that looks at a disk closes its own as it ends.
    while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
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


OF_A_USER = """
import os, sys
from fastaudit_rs import Policy, Sandbox
os.mkdir("out")
out = os.path.abspath("out")
up_to = Policy(write=[out])
with Sandbox(on_ask=lambda denied: "once", ask_up_to=up_to, confine=sys.argv[1]) as sandbox:
    print(sandbox.run(f"open({out!r} + '/a', 'w')").returncode, os.listdir(out))
"""


@pytest.mark.parametrize("confine", ["require", "audit"])
@pytest.mark.parametrize("user", USERS)
def test_for_each_user(user, confine):
    assert run_as(user, OF_A_USER, confine) == "0 ['a']\n"
