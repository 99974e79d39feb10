"""Environment variables: what changes nothing passes, what is denied leaves all as it was."""

import asyncio
import os
import sys
import textwrap
import threading
from unittest import mock

import programs
import pytest

from fastaudit_rs import AuditDenied, Policy, mk_audit as mk_audit_01, v02

#: Each policy that lets some variables change.
SOME = {
    "env = true": lambda: Policy(env=True).guard(monitor_calls=False),
    "a list": lambda: Policy(env=["A"]).guard(monitor_calls=False),
    "workspace": lambda: Policy.preset("workspace").guard(),
    "0.2 rules": lambda: v02.mk_audit(["."], monitor_calls=False),
}
#: The guards that let none be changed.
NONE = {
    "mk_audit": lambda: mk_audit_01(["."], monitor_calls=False),
    "a policy": lambda: Policy(write=["."]).guard(monitor_calls=False),
}


def c_environment():
    """The environment of the process, which `os.environ` only shows."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.dup2(write, 1)
        os.execv("/usr/bin/env", ["env", "-0"])
    os.close(write)
    os.wait()
    with os.fdopen(read, "rb") as pipe:
        return dict(entry.split(b"=", 1) for entry in pipe.read().split(b"\0") if entry)


def shown():
    return dict(os.environ)


@pytest.fixture(autouse=True)
def same(monkeypatch, request):
    """Variables to lose, and the environment as it was after each test."""
    # As it is while the test runs.
    current = f"{request.node.nodeid} (call)".replace("\x00", "(null)")
    monkeypatch.setenv("PYTEST_CURRENT_TEST", current)
    # A test may put another object in its place.
    environ = os.environ
    original = dict(environ)
    given = {"A": "1", "B": "2", "OPENAI_API_KEY": "k", "PATH": os.defpath}
    # The harmless ones come first: they are what `clear()` would lose.
    rest = {name: value for name, value in shown().items() if name not in given}
    os.environ.clear()
    os.environ.update(given | rest)
    before = shown()
    yield before
    environ.clear()
    environ.update(original)


def program(code, *, env=None):
    """Run code in a process whose environment is this, and what it printed."""
    env = env or {"A": "1", "B": "2", "OPENAI_API_KEY": "k", "PATH": os.defpath, "HOME": "/nowhere"}
    return programs.printed(code, env={**env, "PYTHONPATH": os.pathsep.join(sys.path)})


class TestHarmlessNames:
    def test_temporary_files_go_where_the_guard_may_write(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine").mkdir()
        policy = Policy(write=["."], env=True)
        with policy.guard(monitor_calls=False)():
            for value in (".", "mine", str(tmp_path), str(tmp_path / "mine")):
                os.environ["TMPDIR"] = value
            for value in ("/", "..", "", "/var/tmp", f"{tmp_path}/../other"):
                with pytest.raises(AuditDenied) as denied:
                    os.environ["TMPDIR"] = value
                assert denied.value.rule == "env"
        with mk_audit_01(["."], monitor_calls=False)(), pytest.raises(AuditDenied):
            os.environ["TMPDIR"] = str(tmp_path)


class TestSameValue:
    @pytest.mark.parametrize("make", [*SOME.values(), *NONE.values()], ids=[*SOME, *NONE])
    def test_passes(self, make):
        with make()() as guard:
            os.environ["PATH"] = os.environ["PATH"]
            os.putenv("B", "2")
            os.environ.update(os.environ)
            with pytest.raises(AuditDenied):
                os.environ["PATH"] = "/elsewhere"
        assert guard.violation_count == 1

    def test_passes_under_an_installed_policy(self):
        code = """
        import os
        from fastaudit_rs import AuditDenied, Policy
        Policy(write=["."]).install()
        os.environ["PATH"] = os.environ["PATH"]
        for change in (lambda: os.environ.update(PATH="/x"), lambda: os.environ.pop("PATH")):
            try:
                change()
            except AuditDenied:
                print("denied", os.environ["PATH"])
        """
        assert program(code) == f"denied {os.defpath}\n" * 2

    def test_is_the_value_of_the_process(self):
        """Not one that only `os.environ` has."""
        with mk_audit_01(["."], monitor_calls=False)():
            os.environ._data[b"PATH"] = b"/elsewhere"
            with pytest.raises(AuditDenied):
                os.environ["PATH"] = "/elsewhere"
            os.environ["PATH"] = os.defpath


class TestRemoval:
    @pytest.mark.parametrize("make", SOME.values(), ids=SOME)
    def test_is_undone_at_the_end(self, make, same):
        before = c_environment()
        with make()() as guard:
            assert os.environ.pop("PATH") == os.defpath
            assert "PATH" not in os.environ
        assert guard.violation_count == 0
        assert os.environ["PATH"] == os.defpath
        assert c_environment() == before

    @pytest.mark.parametrize("make", SOME.values(), ids=SOME)
    def test_all_and_all_set_again(self, make, same):
        before = c_environment()
        with make()():
            copy = dict(os.environ)
            os.environ.clear()
            assert not os.environ
            with pytest.raises(AuditDenied):
                os.environ["PATH"] = "/elsewhere"
            for name, value in copy.items():
                if name in ("A", "PATH") or make is not SOME["a list"]:
                    os.environ[name] = value
        assert shown() == same
        assert c_environment() == before

    @pytest.mark.parametrize("make", SOME.values(), ids=SOME)
    @pytest.mark.parametrize("clear", [False, True])
    def test_patched_for_a_while(self, make, clear, same):
        before = c_environment()
        with make()() as guard, mock.patch.dict(os.environ, {"A": "x"}, clear=clear):
            assert os.environ["A"] == "x"
            assert ("PATH" in os.environ) is not clear
        assert guard.violation_count == 0
        assert shown() == same
        assert c_environment() == before

    def test_of_what_may_be_changed_lasts(self):
        with Policy(env=["A", "PATH"]).guard(monitor_calls=False)():
            del os.environ["A"]
            del os.environ["PATH"]
        assert "A" not in os.environ
        assert "PATH" not in os.environ
        with Policy(env=True).guard(monitor_calls=False)():
            del os.environ["B"]
        assert "B" not in os.environ


class TestClearing:
    @pytest.mark.parametrize("make", [*SOME.values(), *NONE.values()], ids=[*SOME, *NONE])
    def test_by_an_event_of_its_own(self, make, same):
        """Python 3.15 raises one for `clear()`, and none for each variable."""
        denied = False
        with make()():
            try:
                sys.audit("os._clearenv")
            except AuditDenied as denial:
                denied = denial.event == "os._clearenv"
        assert denied == (make in NONE.values())
        with Policy(env=list(os.environ)).guard(monitor_calls=False)():
            sys.audit("os._clearenv")


def refused(change):
    with pytest.raises(AuditDenied):
        change()


CHANGES = {
    "clear": lambda: os.environ.clear(),
    "pop": lambda: os.environ.pop("PATH"),
    "popitem": lambda: [os.environ.popitem() for _ in range(len(os.environ))],
    "update": lambda: os.environ.update(PATH="/x"),
    "patch": mock.patch.dict(os.environ, {"PATH": "/x"}).start,
    "patch and clear": mock.patch.dict(os.environ, {"PATH": "/x"}, clear=True).start,
    "or": lambda: os.environ.__ior__({"HOME": "/x"}),
}


class TestHalfWay:
    """A denial leaves the environment as it was."""

    @pytest.mark.parametrize("make", NONE.values(), ids=NONE)
    @pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
    def test_where_none_may_be_changed(self, make, change, same):
        before = c_environment()
        with make()():
            refused(change)
            assert shown() == same
        assert shown() == same
        assert c_environment() == before

    @pytest.mark.parametrize("make", SOME.values(), ids=SOME)
    @pytest.mark.parametrize("change", ["update", "patch", "patch and clear", "or"])
    def test_where_some_may_be(self, make, change, same):
        """A harmless variable that was removed on the way to the denial comes back as well."""
        before = c_environment()
        with make()():
            refused(CHANGES[change])
        assert shown() == same
        assert c_environment() == before

    def test_under_two_guards(self, same):
        before = c_environment()
        with Policy(env=True).guard(monitor_calls=False)(), pytest.raises(AuditDenied):
            refused(CHANGES["patch and clear"])
            os.environ["PATH"] = "/x"
        assert c_environment() == before
        code = """
        import os
        from fastaudit_rs import AuditDenied, Policy
        before = dict(os.environ)
        Policy(env=["PATH"]).install()
        with Policy(env=True).guard(monitor_calls=False)():
            try:
                os.environ.clear()
            except AuditDenied as denied:
                print(denied.rule)
        print(dict(os.environ) == before)
        """
        assert program(code) == "env\nTrue\n"


class TestWhoseGuard:
    def test_an_inner_one(self, same):
        make = Policy(env=True).guard(monitor_calls=False)
        with make():
            del os.environ["PATH"]
            with make():
                assert "PATH" not in os.environ
                os.environ["PATH"] = os.defpath
                del os.environ["PATH"]
                del os.environ["HOME"]
                refused(lambda: os.environ.update(PATH="/x"))
            assert os.environ["HOME"] == same["HOME"]
            assert os.environ["PATH"] == os.defpath
        assert shown() == same

    def test_tasks_that_interleave(self, same):
        async def work(begun, other):
            with Policy(env=True).guard(monitor_calls=False)():
                had = os.environ.pop("PATH", None)
                begun.set()
                await other.wait()
                if had is None:
                    # The other task's removal is not this one's to undo.
                    refused(lambda: os.environ.update(PATH=os.defpath))
                os.environ.pop("HOME", None)
                await asyncio.sleep(0)

        async def main():
            one, two = asyncio.Event(), asyncio.Event()
            await asyncio.wait_for(asyncio.gather(work(one, two), work(two, one)), 20)

        asyncio.run(main())
        assert os.environ["PATH"] == os.defpath
        assert os.environ["HOME"] == same["HOME"]

    def test_a_thread_of_the_guard(self, same):
        policy = Policy(env=True, threads="inherit")
        with policy.guard(monitor_calls=False)():
            thread = threading.Thread(target=os.environ.clear)
            thread.start()
            thread.join()
            assert not os.environ
        assert os.environ["PATH"] == os.defpath
        os.environ.update(same)

    def test_one_that_ended_while_its_thread_goes_on(self, same):
        """Nothing would put back what is removed then."""
        ended, said = threading.Event(), []

        def work():
            ended.wait(20)
            try:
                del os.environ["PATH"]
            except AuditDenied as denied:
                said.append(denied.rule)

        with Policy(env=True, threads="inherit").guard(monitor_calls=False)():
            thread = threading.Thread(target=work)
            thread.start()
        ended.set()
        thread.join()
        assert said == ["env"]
        assert os.environ["PATH"] == os.defpath

    def test_one_that_is_installed(self):
        """It has no end."""
        code = """
        import os
        from fastaudit_rs import AuditDenied, Policy
        Policy(env=True).install()
        try:
            del os.environ["PATH"]
        except AuditDenied as denied:
            print(denied.rule, os.environ["PATH"])
        """
        assert program(code) == f"env {os.defpath}\n"

    def test_a_copy_of_the_process(self, same):
        make = Policy(env=True).guard(monitor_calls=False)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                with make():
                    os.environ.clear()
                os.write(write, os.environb[b"PATH"])
            finally:
                os._exit(0)
        os.close(write)
        os.waitpid(pid, 0)
        with os.fdopen(read, "rb") as pipe:
            assert pipe.read() == os.fsencode(os.defpath)
        assert shown() == same


class TestHostile:
    """Putting back runs no code of the guarded one's."""

    def test_replaced(self, same, monkeypatch):
        monkeypatch.setattr(os, "environ", os.environ)
        real, called = os.environ, []

        class Mine(dict):
            def __setitem__(self, *item):
                called.append(item)

        with Policy(env=True).guard(monitor_calls=False)():
            del os.environ["PATH"]
            os.environ = Mine()  # noqa: B003
            os.putenv = os.unsetenv = called.append
        import posix

        os.putenv, os.unsetenv = posix.putenv, posix.unsetenv
        assert called == []
        assert real["PATH"] == os.defpath

    def test_keys_that_compare(self, same):
        called = []

        class Key:
            def __hash__(self):
                return hash(b"PATH")

            def __eq__(self, other):
                called.append(other)
                return False

        with Policy(env=True).guard(monitor_calls=False)():
            del os.environ["PATH"]
            os.environ._data[Key()] = b"x"
            del called[:]
        assert called == []
        assert shown() == same

    def test_odd_names(self):
        """Names that a process can be started with, and that nobody can set."""
        code = """
        import os, sys
        from fastaudit_rs import Policy
        sys.stdout.reconfigure(errors="replace")
        with Policy(env=True).guard(monitor_calls=False)():
            del os.environ["PATH"], os.environ["A"]
        print(os.environ["PATH"], "A" in os.environ)
        """
        # Early releases of 3.11 do not start programs with such a name by `subprocess`.
        start = f"""
        import os, sys
        program = [sys.executable, "-c", {textwrap.dedent(code)!r}]
        os.execve(sys.executable, program, {{**os.environ, "=X": "y"}})
        """
        assert program(start, env={"PATH": "\udcff", "A": "1"}) == "? False\n"
