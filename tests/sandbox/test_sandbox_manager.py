"""`SandboxManager`: named sandboxes, of which nothing reaches another."""

import asyncio
import tempfile
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sandboxes import LOOSE

from fastaudit_rs import Limits, Network, Policy, SandboxManager
from fastaudit_rs.sandbox.host import manager as host_manager


@pytest.fixture
def manager():
    with SandboxManager(LOOSE.replace(read=[]), Limits(wall_seconds=20)) as made:
        yield made


def test_others_go_on_while_one_is_made(manager, monkeypatch):
    """Packages that are installed for it can take minutes."""
    manager.create("one")
    made, begun, goes_on = manager._made, threading.Event(), threading.Event()

    def slow(*args, **given):
        begun.set()
        assert goes_on.wait(20)
        return made(*args, **given)

    monkeypatch.setattr(manager, "_made", slow)
    with ThreadPoolExecutor(2) as threads:
        making = [threads.submit(manager.create, "two") for _ in range(2)]
        begun.wait()
        assert manager.run("one", "1", value=True).value == 1
        goes_on.set()
        failed = [each.exception() for each in making]
    assert manager.list() == ["one", "two"]
    assert {type(each) for each in failed} == {type(None), ValueError}
    assert manager.run("two", "2", value=True).value == 2


class TestSessions:
    def test_runs_and_steps_are_in_the_history(self, manager):
        manager.create("one")
        manager.create("two")
        began = time.time()
        with manager.session("one", tools={"twice": lambda a: 2 * a}) as session:
            ran = [session.run("x = twice(21)"), session.run("1 / 0")]
            ran.append(manager.run("one", "print(1)", ["a", "b"]))
            ran.append(asyncio.run(session.arun("open('a', 'w').write(str(x))")))
            assert session.get("x") == 42
        history = manager.history("one")
        assert [entry.result for entry in history] == ran
        assert [entry.code for entry in history][:2] == ["x = twice(21)", "1 / 0"]
        assert [entry.args for entry in history] == [(), (), ("a", "b"), ()]
        assert began <= history[0].began <= history[3].began <= time.time()
        assert history[3].result.changed == manager["one"].list_files() == ["a"]
        assert manager.history("two") == []

    def test_it_is_closed_with_its_sandbox(self, manager):
        manager.create("one")
        session = manager.session("one")
        session.run("import subprocess; subprocess.Popen(['sleep', '60'])")
        manager.close("one")
        with pytest.raises(RuntimeError, match="closed"):
            session.run("1")

    def test_a_sandbox_has_one_session(self, manager):
        tools = {"twice": lambda a: 2 * a}
        manager.create("one")
        manager.create("two")
        with manager.session("one", tools=tools) as session:
            session.run("x = twice(2)")
            assert manager.session("one") is session
            assert manager.session("one", tools=tools) is session
            assert (session.id, manager.session("two").id) == ("one", "two")
            with pytest.raises(ValueError, match="'one' has a session with other arguments"):
                manager.session("one", timeout=3)
        other = manager.session("one", timeout=3)
        assert other.names == [] and manager.session("one") is other
        with ThreadPoolExecutor(5) as threads:
            assert len({*threads.map(manager.session, ["two"] * 5)}) == 1

    def test_what_is_accepted(self, manager):
        with pytest.raises(KeyError, match="there is no sandbox 'one'"):
            manager.session("one")
        manager.create("one")
        with pytest.raises(ValueError, match="undo_depth must be at least 0"):
            manager.session("one", undo_depth=-1)
        with pytest.raises(TypeError, match=r"SandboxManager.session\(\) .*timeout"):
            manager.session("one", timout=1)

    @pytest.mark.filterwarnings("ignore:.*on_ask without approvable")
    @pytest.mark.parametrize("way", ("session", "asession"))
    def test_all_arguments_are_those_of_the_session(self, manager, way):
        manager.create("one", Policy(imports={"block": ["colorsys"]}))

        async def made(**options):
            return await manager.asession("one", **options)

        def session(**options):
            if way == "session":
                return manager.session("one", **options)
            return asyncio.run(made(**options))

        ask = {"on_ask": lambda denied: "pending", "pending_seconds": 60}
        with session(**ask) as one:
            pending = one.run("import colorsys").pending
            assert pending.until == pytest.approx(pending.asked + 60)
            assert session() is session(**ask) is one
            with pytest.raises(ValueError, match="has a session with other arguments"):
                session(**ask | {"pending_seconds": 61})


class TestEnvironments:
    def test_create_list_run_close(self, manager):
        assert manager.list() == []
        for name in ("one", "two"):
            manager.create(name)
        assert manager.list() == [*manager] == ["one", "two"]
        assert "one" in manager and "three" not in manager
        assert manager.run("one", "print(input())", stdin="x").stdout == "x\n"
        assert asyncio.run(
            manager.arun("two", "import sys; sys.argv[1:]", ["a"], value=True)
        ).success
        directory = manager["one"].directory
        manager.close("one")
        assert manager.list() == ["two"] and not directory.exists()
        with pytest.raises(KeyError, match="there is no sandbox 'one'; there are: 'two'"):
            manager.run("one", "1")
        manager.create("one")
        assert manager["one"].list_files() == []

    def test_one_that_is_removed_or_closed_is_made_again(self, manager):
        first = manager.create("one")
        session = manager.session("one")
        with pytest.raises(ValueError, match=r"'one' already: remove\('one'\) it"):
            manager.create("one")
        manager.remove("one")
        assert manager.list() == [] and not first.directory.exists()
        with pytest.raises(RuntimeError, match="closed"):
            session.run("1")
        with pytest.raises(KeyError, match="there is no sandbox 'one'"):
            manager.remove("one")
        second = manager.create("one")
        manager.run("one", "1")
        second.close()
        assert manager.create("one") is not second
        assert manager.run("one", "1").success and len(manager.history("one")) == 1

    @pytest.mark.slow
    def test_each_has_its_own(self, manager):
        manager.create("one", limits=Limits(wall_seconds=1))
        manager.create("two", Policy(commands=True))
        manager.run("one", "open('a', 'w').write('one')")
        manager.run("two", "open('a', 'w').write('two')")
        assert manager["one"].read_file("a") == b"one"
        assert manager["two"].read_file("a") == b"two"
        assert manager.run("one", "while True: pass").timed_out
        assert manager.run("two", "import ctypes; ctypes.CDLL('libm.so.6')").returncode == 77

    def test_a_history_of_large_results(self, manager, monkeypatch):
        """Code chooses how large they are."""
        monkeypatch.setattr(host_manager, "HISTORY", 5_000_000)
        manager.create("one")
        with manager.session("one") as session:
            for code in ("bytes(2_000_000)", "print('x' * 2_000_000)", "'y' * 2_000_000"):
                assert session.run(code).success
            assert len(manager.history("one")) == 2
            session.run("bytes(9_000_000)")
        assert [entry.code for entry in manager.history("one")] == ["bytes(9_000_000)"]

    def test_the_last_of_the_history(self):
        with SandboxManager(history=2) as manager:
            manager.create("one")
            for number in range(4):
                manager.run("one", f"{number}")
            assert [entry.code for entry in manager.history("one")] == ["2", "3"]

    def test_it_is_removed(self):
        with SandboxManager() as manager:
            directory = manager.create("one").directory
        assert not directory.parent.parent.exists()
        with pytest.raises(RuntimeError, match="the manager is closed"):
            manager.create("two")
        forgotten = SandboxManager().create("one").directory
        assert not forgotten.exists()


class TestIsolation:
    def test_files_of_another(self, manager):
        """By Python code, and by a program, which the kernel alone sees."""
        manager.create("one")
        assert manager.run("one", "1").success
        # One that is made later, too.
        other = manager.create("other").directory
        manager["other"].write_file("secret", "x")
        code = f"""
            import os, subprocess
            for command in ("cat {other}/secret", "ls {other}", "rm -rf {other}/secret"):
                done = subprocess.run(["sh", "-c", command], capture_output=True)
                print(done.stdout)
            for attempt in (open, os.listdir, os.remove):
                try:
                    print(attempt("{other}/secret"))
                except PermissionError:
                    print("no")
        """
        ran = manager.run("one", textwrap.dedent(code))
        assert ran.stdout == "b''\n" * 3 + "no\n" * 3, ran
        assert manager["other"].read_file("secret") == b"x"

    def test_processes_of_another(self, manager):
        for name in ("one", "other"):
            manager.create(name)
        pid = manager.run("other", "import os; os.getppid()", value=True).value
        code = f"import subprocess; subprocess.run(['sh', '-c', 'kill -9 {pid}'])"
        manager.run("one", code)
        assert manager.run("other", "import os; os.getppid()", value=True).value == pid

    def test_what_is_named_can_be_reached(self, manager, tmp_path):
        (tmp_path / "shared").write_text("x")
        manager.create("one", LOOSE.replace(read=[tmp_path]))
        code = f"open({str(tmp_path / 'shared')!r}).read()"
        assert manager.run("one", code, value=True).value == "x"


class TestArguments:
    @pytest.mark.parametrize(
        ("policy", "says"),
        [
            (Policy(write=None), "policy.write must be a list of paths, not None"),
            (Policy(read=["/"]), "policy.read must not have '/': every sandbox is in it"),
            (Policy(write=["/tmp/.."]), "policy.write must not have '/': every sandbox is in it"),
        ],
    )
    def test_policies_that_open_the_others(self, manager, policy, says):
        with pytest.raises(ValueError, match=says):
            manager.create("one", policy)
        assert manager.list() == []

    def test_a_path_that_opens_the_others(self):
        above = tempfile.gettempdir()
        with SandboxManager(path=[above]) as manager:
            with pytest.raises(ValueError, match=f"path must not have '{above}'"):
                manager.create("one")

    @pytest.mark.parametrize("below", ("", "..", "sub"))
    def test_policies_that_open_another_one(self, manager, tmp_path, below):
        directory = manager.create("one").directory
        place = (directory / below).resolve()
        (tmp_path / "link").symlink_to(place)
        unix = Network(unix=[place / "socket"])
        for policy in (
            Policy(write=[place]),
            Policy(read=[tmp_path / "link"]),
            Policy(network=unix),
        ):
            with pytest.raises(ValueError, match="must not have '.*': it is in another sandbox"):
                manager.create("two", policy)
        assert manager.list() == ["one"]
        own = Policy(write=["."], read=["."], network=Network(unix=["@name"]))
        assert manager.create("two", own).directory.exists()

    def test_names(self, manager):
        manager.create("one")
        with pytest.raises(ValueError, match="there is a sandbox 'one' already"):
            manager.create("one")
        with pytest.raises(ValueError, match="name must not be empty"):
            manager.create("")
        with pytest.raises(TypeError, match="name must be a str, not int"):
            manager.create(1)
        for call in (manager.close, manager.history, manager.__getitem__):
            with pytest.raises(KeyError, match="there is no sandbox 'none'; there are: 'one'"):
                call("none")

    @pytest.mark.parametrize(
        ("arguments", "error", "says"),
        [
            ({"history": "x"}, TypeError, "history must be a whole number, not str"),
            ({"history": -1}, ValueError, "history must be at least 0, not -1"),
        ],
    )
    def test_bad_arguments(self, arguments, error, says):
        with pytest.raises(error, match=says):
            SandboxManager(**arguments)
