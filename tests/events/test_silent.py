"""Acts for which CPython raises no audit event raise one of ours."""

import ctypes
import importlib.util
import os
import resource
import stat
import sys
import textwrap
from pathlib import Path

import programs
import pytest

from fastaudit_rs import AuditDenied, Policy


def denied(function, *args, **kwargs):
    """The event that denies a call; `None` if none does."""
    try:
        function(*args, **kwargs)
    except AuditDenied as error:
        return error.event
    return None


class TestEntries:
    @pytest.mark.original_fails()
    def test_pipes(self, guard, places):
        with guard():
            assert denied(os.mkfifo, places.out + "/a") == "os.mkfifo"
            assert denied(os.mkfifo, path=places.out + "/a", mode=0o600) == "os.mkfifo"
            assert denied(os.mkfifo, os.fsencode(places.out + "/a")) == "os.mkfifo"
            assert denied(os.mknod, places.out + "/a") == "os.mknod"
            assert denied(os.mknod, places.out + "/a", stat.S_IFIFO | 0o600) == "os.mknod"
            assert denied(os.mkfifo, "a") == "os.mkfifo"
            os.mkfifo(places.ok + "/a")
            os.mkfifo(path=Path(places.ok, "b"))
            os.mknod(places.ok + "/c")
            for device in (stat.S_IFCHR, stat.S_IFBLK):
                assert denied(os.mknod, places.ok + "/d", device | 0o600, 0x10B) == "os.mknod"
                assert denied(os.mknod, places.ok + "/d", mode=device) == "os.mknod"
            with pytest.raises(FileExistsError):
                os.mkfifo(places.ok + "/a")
            with pytest.raises(TypeError):
                os.mkfifo()
        assert os.listdir(places.out) == []
        assert sorted(os.listdir(places.ok)) == ["a", "b", "c"]

    def test_a_module_that_is_made_anew(self, guard, places):
        spec = importlib.util.find_spec("posix")
        with guard():
            posix = importlib.util.module_from_spec(spec)
            for module in (posix, importlib.util.module_from_spec(spec)):
                assert denied(module.mkfifo, places.out + "/a") == "os.mkfifo"
                fd = os.open(places.out, os.O_RDONLY)
                os.chdir(places.ok)
                assert denied(module.open, "a", os.O_CREAT | os.O_RDWR, dir_fd=fd) == "open"
                os.close(fd)
        assert os.listdir(places.out) == []


class TestOpened:
    def test_readline(self, guard, places, monkeypatch):
        readline = pytest.importorskip("readline")
        monkeypatch.setenv("HOME", places.out)
        with guard():
            for function, args in (
                (readline.write_history_file, ()),
                (readline.append_history_file, (1,)),
            ):
                assert denied(function, *args, places.out + "/history") == "open"
                assert denied(function, *args) == "open"
                assert denied(function, *args, None) == "open"
            readline.write_history_file(places.ok + "/history")
            readline.append_history_file(0, places.ok + "/history")
        assert os.listdir(places.out) == []
        assert os.listdir(places.ok) == ["history"]


class TestProcess:
    def test_copies_where_threads_run(self, run):
        run(
            """
            import os, threading
            done = threading.Event()
            thread = threading.Thread(target=done.wait)
            thread.start()
            with audit_perms():
                for fork in (os.fork, os.forkpty):
                    try:
                        if not (made := fork()) or made == (0, made[1]):
                            os._exit(1)
                        print("made")
                    except PermissionError as denied:
                        print("no other thread" in str(denied))
            done.set()
            thread.join()
            with audit_perms():
                if (pid := os.fork()) == 0:
                    os._exit(0)
                print(os.waitpid(pid, 0)[1])
            """,
            ["True", "True", "0"],
        )

    @pytest.mark.original_fails()
    def test_limits(self, guard):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        others = (limits[0] - 1, limits[1])
        with guard():
            call = (resource.setrlimit, resource.RLIMIT_NOFILE, others)
            assert denied(*call) == "resource.setrlimit"
            if hasattr(resource, "prlimit"):
                assert resource.prlimit(0, resource.RLIMIT_NOFILE) == limits
                call = (resource.prlimit, 0, resource.RLIMIT_NOFILE, others)
                assert denied(*call) == "resource.prlimit"
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits


@pytest.fixture
def run(places):
    """`run(code, printed)`: runs it in a process of its own, where `audit_perms` guards."""

    def run_code(code, printed):
        program = "from fastaudit_rs import mk_audit\n"
        program += f"audit_perms = mk_audit([{places.ok!r}], monitor_calls=False)\n"
        program += textwrap.dedent(code)
        done = programs.ran(program)
        assert (done.returncode, done.stdout.split("\n")[:-1]) == (0, printed), done.stderr

    return run_code


def test_nothing_is_raised_without_a_guard(run, places):
    run(
        f"""
        import os, sys
        seen = []
        sys.addaudithook(lambda event, args: seen.append(event))
        os.mkfifo({places.ok + "/a"!r})
        print("os.mkfifo" in seen)
        with audit_perms():
            os.mkfifo({places.ok + "/b"!r})
        print("os.mkfifo" in seen)
        """,
        ["False", "True"],
    )


class TestForeignFunctions:
    """Functions that `ctypes` found before the guard began."""

    @pytest.mark.original_fails()
    def test_calls(self, guard, places):
        library = ctypes.CDLL(None)
        mkdir, getpid = library.mkdir, library.getpid
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_int)
        address = ctypes.cast(mkdir, ctypes.c_void_p).value
        path = os.fsencode(places.out + "/a")
        with guard():
            for call in (
                lambda: mkdir(path, 0o777),
                lambda: mkdir.__call__(path, 0o777),
                lambda: list(map(mkdir, [path], [0o777])),
                lambda: kind(address)(path, 0o777),
                lambda: library.mkdir(path, 0o777),
                lambda: getpid(),
            ):
                assert denied(call) == "fastaudit.call"
        assert os.listdir(places.out) == []
        assert getpid() == os.getpid()

    def test_a_denial_says_which(self, guard):
        getpid = ctypes.CDLL(None).getpid
        with guard(), pytest.raises(AuditDenied) as caught:
            getpid()
        caller = f"{__name__}.{type(self).__name__}." if sys.version_info >= (3, 11) else ""
        assert f"{caller}test_a_denial_says_which', 'ctypes.getpid')" in caught.value.args[0]

    def test_a_policy_may_allow_them(self, places):
        getpid = ctypes.CDLL(None).getpid
        for native in (True, ["ctypes"]):
            with Policy(write=[places.ok], native=native).guard(monitor_calls=False)():
                if native is True or sys.version_info < (3, 14):
                    assert getpid() == os.getpid()
                else:  # which raises an event of its own, as for all that ctypes calls
                    assert denied(getpid) == "ctypes.call_function"

    def test_of_libraries_that_are_loaded_later(self, run):
        run(
            """
            with audit_perms():
                pass
            import ctypes
            getpid = ctypes.CDLL(None).getpid
            with audit_perms():
                try:
                    getpid()
                except PermissionError as denied:
                    print(denied.event)
            """,
            ["fastaudit.call"],
        )
