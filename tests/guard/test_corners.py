"""Corners of CPython: options, no memory, interrupts, pools, a module that is loaded again."""

import sys
import textwrap

import programs
import pytest

HEAD = """
import os, sys
from fastaudit_rs import mk_audit
ok, out = sys.argv[1:]
audit_perms = mk_audit([ok])

def guarded():
    try:
        os.mkdir(out + "/made")
    except PermissionError:
        return True
    os.rmdir(out + "/made")
    return False
"""


@pytest.fixture
def run(places):
    """`run(code, *options)`: the lines that it prints in a process of its own."""

    def run_code(code, *options):
        code = HEAD + textwrap.dedent(code)
        done = programs.ran(code, places.ok, places.out, options=options, timeout=120)
        run_code.stderr = done.stderr
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run_code


@pytest.mark.parametrize(
    "options",
    [
        ["-W", "error"],
        ["-X", "importtime"],
        ["-X", "dev"],
        ["-OO"],
        ["-I"],
        ["-X", "tracemalloc=5"],
    ],
    ids=" ".join,
)
def test_options_of_the_interpreter(run, options):
    """Nothing warns, and nothing else is printed but what the option prints."""
    lines = run(
        """
        with audit_perms():
            print(guarded())
            import json, decimal
            open(ok + "/a", "w").close()
        print(guarded())
        """,
        *options,
    )
    assert lines == ["True", "False"]
    if options != ["-X", "importtime"]:
        assert run.stderr == ""


def test_no_memory(run):
    """Wherever memory is lacking nothing is let through, and the guard is left as ever."""
    pytest.importorskip("_testcapi")
    lines = run(
        """
        import _testcapi
        audit_perms = mk_audit([ok], monitor_calls=False)
        def attempt(start):
            _testcapi.set_nomemory(start, start + 1)
            try:
                os.mkdir(out + "/made")
            except (MemoryError, PermissionError):
                return True
            finally:
                _testcapi.remove_mem_hooks()
            return False
        with audit_perms():
            assert guarded()
            denied = [attempt(start) for start in range(1, 150)]
        print(all(denied), os.listdir(out), guarded())
        """
    )
    assert lines == ["True [] False"]


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="ContextVar.set itself crashes without memory for its token"
)
def test_no_memory_to_enter_or_leave(run):
    pytest.importorskip("_testcapi")
    lines = run(
        """
        import _testcapi
        audit_perms = mk_audit([ok], monitor_calls=False)
        def attempt(start):
            entered = False
            guard = audit_perms()
            _testcapi.set_nomemory(start, start + 1)
            try:
                guard.__enter__()
                entered = True
            except MemoryError:
                pass
            finally:
                _testcapi.remove_mem_hooks()
            assert guarded() == entered, start
            if entered:
                guard.__exit__(None, None, None)
            assert not guarded(), start
            return entered
        entered = [attempt(start) for start in range(1, 60)]
        print(entered[-1], len(entered))
        """
    )
    assert lines == ["True 59"]


@pytest.mark.slow
def test_interrupts_at_any_point(run):
    """Whenever one comes the guard is in force inside and not outside."""
    lines = run(
        """
        import signal
        seen = 0
        armed = False
        def interrupt(*args):
            global armed
            if armed:
                armed = False
                raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        for step in range(3000):
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, (step % 100 + 1) * 1e-6)
                for _ in range(100):
                    with audit_perms():
                        try:
                            open(out + "/a", "w").close()
                        except PermissionError:
                            pass
                armed = False
            except KeyboardInterrupt:
                seen += 1
            assert not guarded(), step
        print(seen > 100, os.listdir(out))
        """
    )
    assert lines == ["True []"]


def test_recursion_at_any_depth(run):
    lines = run(
        """
        sys.setrecursionlimit(150)
        outcomes = set()
        def deep(depth):
            if depth:
                return deep(depth - 1)
            os.mkdir(out + "/made")
        for perms in (audit_perms, mk_audit([ok], lambda *args: False, monitor_calls=False)):
            with perms():
                for depth in range(200):
                    try:
                        deep(depth)
                        outcomes.add("made")
                    except (PermissionError, RecursionError) as error:
                        outcomes.add((perms is audit_perms, isinstance(error, OSError)))
        print(len(outcomes), "made" in outcomes, os.listdir(out), guarded())
        """
    )
    assert lines == ["4 False [] False"]


def test_ten_thousand_nested(run):
    lines = run(
        """
        guards = [audit_perms() for _ in range(10_000)]
        for guard in guards:
            guard.__enter__()
        print(guarded())
        for guard in reversed(guards):
            guard.__exit__(None, None, None)
        print(guarded())
        """
    )
    assert lines == ["True", "False"]


def test_the_package_is_loaded_again(run):
    lines = run(
        """
        import importlib, fastaudit_rs
        with audit_perms():
            importlib.reload(fastaudit_rs)
            print(guarded())
        for name in [name for name in sys.modules if name.startswith("fastaudit_rs")]:
            del sys.modules[name]
        with audit_perms():
            print(guarded())
        from fastaudit_rs import mk_audit as again
        with again([ok], monitor_calls=False)():
            print(guarded())
        with audit_perms():
            print(guarded())
        print(guarded())
        """
    )
    assert lines == ["True"] * 4 + ["False"]


def test_a_copy_that_runs_another_program(run):
    """The guard ends with the program; what starts it is what is judged."""
    lines = run(
        """
        loose = mk_audit([ok], lambda event, *_: event == "os.exec", monitor_calls=False)
        with loose():
            pid = os.fork()
            if pid == 0:
                os.execv(sys.executable, [sys.executable, "-c", f"open({out + '/made'!r}, 'w')"])
            os.waitpid(pid, 0)
        print(os.listdir(out))
        """
    )
    assert lines == ["['made']"]
