"""Other tools that use `sys.monitoring`, or are used on the same code, and who may change ours."""

import os
import sys
import textwrap

import programs
import pytest

if sys.version_info < (3, 12):
    pytest.skip("sys.monitoring came with 3.12", allow_module_level=True)

pytestmark = pytest.mark.one_side

HEAD = """
import os, sys, threading
import orjson
from fastaudit_rs import mk_audit
monitoring = sys.monitoring
CALL = monitoring.events.CALL
audit_perms = mk_audit([], monitor_calls=True)

def denied(function, *args):
    try:
        function(*args)
    except PermissionError as error:
        return getattr(error, "event", True)
    return None

def sees():
    return denied(lambda: orjson.dumps(1)) == "fastaudit.call"
"""


@pytest.fixture
def run(tmp_path):
    """`run(code)`: the lines that it prints in a process of its own."""

    def run_code(code, *options, **environment):
        program = tmp_path / "program.py"
        program.write_text(HEAD + textwrap.dedent(code))
        done = programs.python(
            *options, str(program), cwd=tmp_path, env={**os.environ, **environment}
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run_code


class TestUnderAGuard:
    def test_nothing_of_ours_can_be_changed(self, run):
        assert run("""
            class Number:
                def __index__(self):
                    return 3
            with audit_perms():
                for change in (
                    lambda: monitoring.set_events(3, 0),
                    lambda: monitoring.set_events(True + 2, CALL),
                    lambda: monitoring.set_events(Number(), 0),
                    lambda: list(map(monitoring.set_events, [3], [0])),
                    lambda: monitoring.set_local_events(3, denied.__code__, 0),
                    lambda: monitoring.free_tool_id(3),
                    lambda: monitoring.register_callback(3, CALL, None),
                ):
                    print(denied(change), sees())
                if hasattr(monitoring, "clear_tool_id"):
                    print(denied(monitoring.clear_tool_id, 3), sees())
                else:
                    print("sys.monitoring.free_tool_id True")
            print(monitoring.get_tool(3))
        """) == [
            *["sys.monitoring.set_events True"] * 4,
            "sys.monitoring.set_local_events True",
            "sys.monitoring.free_tool_id True",
            "sys.monitoring.register_callback True",
            "sys.monitoring.free_tool_id True",
            "fastaudit_rs",
        ]

    def test_the_host_may_allow_it(self, run):
        """And then the next guard watches again."""
        assert run("""
            loose = mk_audit([], lambda event, *_: event.startswith("sys.monitoring."))
            with loose():
                monitoring.set_events(3, 0)
                print(sees())
            with audit_perms():
                print(sees())
        """) == ["False", "True"]


class TestWithoutAGuard:
    def test_what_would_blind_another_thread_is_denied(self, run):
        assert run("""
            entered, done = threading.Event(), threading.Event()
            seen = []
            def guarded():
                with audit_perms():
                    entered.set()
                    done.wait()
                    seen.append(sees())
            thread = threading.Thread(target=guarded)
            thread.start()
            entered.wait()
            print(denied(monitoring.set_events, 3, 0))
            print(denied(monitoring.set_events, 3, monitoring.events.LINE))
            print(denied(monitoring.free_tool_id, 3))
            print(denied(monitoring.register_callback, 3, CALL, None))
            # These would not.
            print(denied(monitoring.set_events, 3, CALL | monitoring.events.LINE))
            print(denied(monitoring.set_local_events, 3, sees.__code__, 0))
            print(denied(monitoring.restart_events))
            done.set()
            thread.join()
            print(seen)
        """) == [*["True"] * 4, *["None"] * 3, "[True]"]

    def test_what_was_changed_is_repaired(self, run):
        assert run("""
            def check():
                with audit_perms():
                    print(sees(), audit_perms.tool_id)
            monitoring.set_events(3, 0)
            check()
            monitoring.register_callback(3, CALL, None)
            check()
            monitoring.free_tool_id(3)
            check()
            monitoring.free_tool_id(3)
            monitoring.use_tool_id(3, "other")
            check()
            print(monitoring.get_tool(3))
        """) == ["True 3"] * 3 + ["True 4", "other"]

    def test_local_events_are_no_way_around(self, run):
        assert (
            run("""
            def call():
                return orjson.dumps(1)
            with audit_perms():
                denied(call)
            monitoring.set_local_events(3, call.__code__, monitoring.events.LINE)
            with audit_perms():
                print(denied(call))
            monitoring.set_local_events(3, call.__code__, 0)
            with audit_perms():
                print(denied(call))
        """)
            == ["fastaudit.call"] * 2
        )


class TestBeside:
    @pytest.mark.parametrize("core", ["ctrace", "pytrace", "sysmon"])
    def test_coverage(self, run, core):
        lines = run(
            """
            def branches(number):
                if number:
                    return 1
                return 2
            with audit_perms():
                print(sees(), branches(1))
            print(sees(), branches(1))
            import coverage
            current = coverage.Coverage.current()
            current.stop()
            _, _, missing, _ = current.analysis(__file__)
            print([open(__file__).read().splitlines()[line - 1].strip() for line in missing
                   if line < 27])
            """,
            "-m",
            "coverage",
            "run",
            COVERAGE_CORE=core,
        )
        assert lines == ["True 1", "False 1", "['return 2']"]

    def test_a_debugger(self, run):
        assert run("""
            import bdb
            class Debugger(bdb.Bdb):
                lines = 0
                def user_line(self, frame):
                    self.lines += 1
                    self.set_step()
            def work():
                with audit_perms():
                    seen = sees()
                return seen
            backends = ["settrace", "monitoring"] if sys.version_info >= (3, 14) else [None]
            for backend in backends:
                debugger = Debugger(backend=backend) if backend else Debugger()
                print(debugger.runcall(work), debugger.lines > 3)
            print(work())
        """) == ["True True"] * (2 if sys.version_info >= (3, 14) else 1) + ["True"]

    def test_a_trace_function(self, run):
        assert (
            run("""
            seen = []
            def trace(frame, event, arg):
                seen.append(event)
                return trace
            sys.settrace(trace)
            with audit_perms():
                print(sees())
            sys.settrace(None)
            print("line" in seen)
        """)
            == ["True"] * 2
        )
