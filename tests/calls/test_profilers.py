"""Profilers and other tools of `sys.monitoring`: those that are not the guard's work under it."""

import contextlib
import cProfile
import importlib.util
import io
import os
import pstats
import sys

import programs
import pytest

from fastaudit_rs import AuditDenied, Policy, mk_audit as mk_audit_01, v02

pytestmark = pytest.mark.one_side

WATCHES = sys.version_info >= (3, 12)
needs_monitoring = pytest.mark.skipif(not WATCHES, reason="no sys.monitoring before 3.12")

GUARDS = {
    "mk_audit": lambda: mk_audit_01(["."], monitor_calls=WATCHES),
    "mk_audit, calls not watched": lambda: mk_audit_01(["."], monitor_calls=False),
    "0.2 rules": lambda: v02.mk_audit(["."], monitor_calls=WATCHES),
    "a policy": lambda: Policy().guard(monitor_calls=WATCHES),
    "workspace": lambda: Policy.preset("workspace").guard(),
}
all_guards = pytest.mark.parametrize("make", GUARDS.values(), ids=GUARDS)


def program(code):
    """Run code in a process of its own; what it printed."""
    return programs.printed(code, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


def busy():
    return sum(map(abs, range(10)))


def profiled():
    """The functions that a profile names."""
    profile = cProfile.Profile()
    profile.enable()
    busy()
    profile.disable()
    names = pstats.Stats(profile, stream=io.StringIO()).stats
    return {name for _, _, name in names}


class TestProfiles:
    @all_guards
    def test_under_a_guard_and_after(self, make):
        with make()() as guard:
            assert "busy" in profiled()
        assert guard.violation_count == 0
        assert "busy" in profiled()

    @all_guards
    def test_one_that_the_host_began(self, make):
        profile = cProfile.Profile()
        profile.enable()
        with make()():
            busy()
            profile.disable()
        profile.disable()
        assert "busy" in {name for _, _, name in pstats.Stats(profile).stats}

    def test_where_the_guard_has_its_id(self):
        """As another profiler would: an error of its own, and nothing is lost."""
        if not WATCHES:
            return
        code = """
        import cProfile
        from fastaudit_rs import mk_audit
        audit_perms = mk_audit(["."], tool_id=2)
        with audit_perms() as guard:
            try:
                cProfile.Profile().enable()
            except ValueError as error:
                print(error)
        print(audit_perms.tool_id, guard.violation_count)
        """
        assert program(code).splitlines()[-1] == "2 0"

    def test_the_guard_takes_no_id_of_another_tool(self):
        if not WATCHES:
            return
        code = """
        import sys
        from fastaudit_rs import mk_audit
        print(mk_audit(["."]).tool_id in (sys.monitoring.DEBUGGER_ID, sys.monitoring.COVERAGE_ID,
            sys.monitoring.PROFILER_ID, sys.monitoring.OPTIMIZER_ID))
        """
        assert program(code) == "False\n"


@contextlib.contextmanager
def a_tool(number=4):
    sys.monitoring.use_tool_id(number, "a tool")
    try:
        yield number
    finally:
        sys.monitoring.free_tool_id(number)


@needs_monitoring
class TestTools:
    @all_guards
    def test_lines_of_a_function(self, make):
        events = sys.monitoring.events
        seen = []
        with make()() as guard:
            with a_tool() as tool:
                sys.monitoring.register_callback(tool, events.LINE, lambda *line: seen.append(line))
                sys.monitoring.set_local_events(tool, busy.__code__, events.LINE)
                busy()
                sys.monitoring.set_local_events(tool, busy.__code__, 0)
                sys.monitoring.set_events(tool, events.PY_START)
                sys.monitoring.set_events(tool, 0)
                sys.monitoring.register_callback(tool, events.LINE, None)
        assert seen
        assert guard.violation_count == 0

    def test_a_number_that_is_said_later(self):
        """It might be the guard's."""
        audit_perms = mk_audit_01(["."])

        class Number:
            def __index__(self):
                return 4

        with audit_perms(), a_tool(), pytest.raises((AuditDenied, TypeError)):
            sys.monitoring.register_callback(Number(), sys.monitoring.events.LINE, print)

    def test_an_event_that_only_says_so(self):
        with mk_audit_01(["."])(), pytest.raises(AuditDenied):
            sys.audit("sys.monitoring.register_callback", print)


@needs_monitoring
@pytest.mark.skipif(importlib.util.find_spec("orjson") is None, reason="needs orjson")
class TestCallsAreSeen:
    """With another tool at work the guard's monitor sees what it saw."""

    def test_under_a_profile(self):
        import orjson

        with mk_audit_01(["."])():
            profile = cProfile.Profile()
            profile.enable()
            for _ in range(3):
                with pytest.raises(AuditDenied):
                    orjson.dumps({})
            profile.disable()
            with pytest.raises(AuditDenied):
                orjson.dumps({})

    def test_with_a_tool_that_switches_its_events_off(self):
        import orjson

        events, monitoring = sys.monitoring.events, sys.monitoring

        def call():
            return orjson.dumps({})

        with mk_audit_01(["."])(), a_tool() as tool:
            monitoring.register_callback(tool, events.CALL, lambda *_: monitoring.DISABLE)
            monitoring.set_events(tool, events.CALL)
            for _ in range(3):
                with pytest.raises(AuditDenied):
                    call()
            monitoring.restart_events()
            with pytest.raises(AuditDenied):
                call()
            monitoring.set_events(tool, 0)
            with pytest.raises(AuditDenied):
                call()


class TestCoverage:
    def test_of_a_module(self, tmp_path, monkeypatch):
        coverage = pytest.importorskip("coverage")
        monkeypatch.chdir(tmp_path)
        (tmp_path / "measured.py").write_text("def f():\n    return 1\n\nf()\n")
        code = f"""
        import os, runpy
        import coverage
        from fastaudit_rs import Policy
        os.environ["COVERAGE_CORE"] = "{"sysmon" if WATCHES else "pytrace"}"
        with Policy.preset("workspace").guard()() as guard:
            measured = coverage.Coverage(data_file=None)
            measured.start()
            runpy.run_path("measured.py")
            measured.stop()
        lines = measured.get_data().lines(os.path.realpath("measured.py"))
        print(sorted(lines), guard.violation_count)
        """
        assert coverage
        assert program(code) == "[1, 2, 4] 0\n"
