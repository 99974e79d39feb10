"""Installing the hook and the monitor: when, once, and never half. Each in a fresh process."""

import os
import sys
import textwrap

import programs
import pytest

MONITORING = sys.version_info >= (3, 12)


@pytest.fixture
def run(request, places):
    """`run(code)`: what the code prints in a fresh interpreter, with `mk_audit`, `ok`, `out`."""
    package = request.config.getoption("--implementation")

    def run_code(code):
        prelude = f"""
            import os, sys
            ok, out = {places.ok!r}, {places.out!r}
            def guarded():
                try: os.mkdir(out + "/probe")
                except PermissionError: return True
                os.rmdir(out + "/probe")
                return False
        """
        program = textwrap.dedent(prelude) + textwrap.dedent(code).replace("PACKAGE", package)
        return programs.printed(program).split()

    return run_code


def test_importing_installs_nothing(run):
    seen = run("""
        events = []
        sys.addaudithook(lambda event, args: events.append(event))
        import PACKAGE, PACKAGE.core
        assert PACKAGE.core.mk_audit is PACKAGE.mk_audit
        print("sys.addaudithook" in events)
        PACKAGE.mk_audit([ok], monitor_calls=False)
        print("sys.addaudithook" in events)
        events.clear()
        PACKAGE.mk_audit([ok], monitor_calls=False)
        print(events)
    """)
    assert seen == ["False", "True", "['audit_perms.set_config']"]


def test_the_events_of_the_guard_itself(run):
    seen = run("""
        events = []
        def hook(event, args):
            if event.startswith("audit_perms."):
                events.append((event, args))
        sys.addaudithook(hook)
        from PACKAGE import mk_audit
        oks = [ok]
        audit_perms = mk_audit(oks, data="data", monitor_calls=False)
        [(event, (given,))] = events
        print(event, given is oks)
        del events[:]
        with audit_perms():
            with audit_perms():
                pass
        [(event, (config,))] = events
        print(event, config.oks == (ok,), config.data, config.before_deny, config.on_call,
              config.monitor_calls)
        print(repr(config) == f"AuditCfg(oks=({ok!r},), before_deny=None, on_call=None, "
              "data='data', monitor_calls=False)")
        del events[:]
        audit_perms.set_data("new")
        print(events)
    """)
    assert " ".join(seen) == (
        "audit_perms.set_config True "
        "audit_perms.set_config True data None None False True "
        "[('audit_perms.set_data', ('new',))]"
    )


@pytest.mark.original_fails()
@pytest.mark.parametrize("error", ["RuntimeError", "ValueError"])
def test_a_veto_by_another_hook_is_an_error(run, error):
    seen = run(f"""
        from PACKAGE import mk_audit
        veto = True
        def hook(event, args):
            if veto and event == "sys.addaudithook":
                raise {error}("no")
        sys.addaudithook(hook)
        for _ in range(2):
            try:
                mk_audit([ok], monitor_calls=False)
            except RuntimeError as error:
                print("another audit hook refused it" in str(error))
        veto = False
        with mk_audit([ok], monitor_calls=False)():
            print(guarded())
    """)
    assert seen == ["True", "True", "True"]


def test_a_veto_of_the_configuration_comes_through(run):
    seen = run("""
        from PACKAGE import mk_audit
        def hook(event, args):
            if event == "audit_perms.set_config" and veto:
                raise ZeroDivisionError
        veto = False
        sys.addaudithook(hook)
        audit_perms = mk_audit([ok], monitor_calls=False)
        veto = True
        for attempt in (lambda: mk_audit([ok]), lambda: audit_perms().__enter__()):
            try:
                attempt()
            except ZeroDivisionError:
                print(guarded())
    """)
    assert seen == ["False", "False"]


@pytest.mark.original_fails()
def test_nothing_is_installed_after_an_error(run):
    seen = run("""
        from PACKAGE import mk_audit
        events = []
        sys.addaudithook(lambda event, args: events.append(event))
        monitoring = getattr(sys, "monitoring", None)
        for arguments in [([None],), ("x",), ([ok], 3), ([ok], None, 3),
                          ([ok], None, print, None, 3, False), ([ok], None, None, None, 6),
                          ([ok], None, None, None, 3, None)]:
            try:
                mk_audit(*arguments)
            except (TypeError, ValueError, RuntimeError):
                print(events.count("sys.addaudithook"))
                if monitoring:
                    assert monitoring.get_tool(3) is None
    """)
    assert seen == ["0"] * 7


@pytest.mark.original_fails()
def test_a_guard_never_left_does_not_disturb_the_end(run):
    seen = run("""
        from PACKAGE import mk_audit
        import atexit
        @atexit.register
        def at_exit():
            print(guarded())
        mk_audit([ok], monitor_calls=False)().__enter__()
        print(guarded())
    """)
    assert seen == ["True", "True"]


def test_deleting_objects_at_the_end_under_a_guard_never_left(run, places):
    run("""
        from PACKAGE import mk_audit
        import builtins
        class Late:
            def __del__(self, mkdir=os.mkdir, path=out + "/late"):
                mkdir(path)
        builtins.late = Late()
        mk_audit([ok], monitor_calls=False)().__enter__()
    """)
    assert os.listdir(places.out) == ["late"]


def test_import_needs_nothing_else(run):
    seen = run("""
        before = set(sys.modules)
        import fastaudit_rs
        print(*sorted({name.split(".")[0] for name in set(sys.modules) - before}))
    """)
    assert seen == ["fastaudit_rs"]


@pytest.mark.skipif(not MONITORING, reason="sys.monitoring came with 3.12")
class TestToolId:
    def test_three_unless_another_is_asked_for(self, run):
        seen = run("""
            from PACKAGE import mk_audit
            mk_audit([ok])
            print(sys.monitoring.get_tool(3) == "PACKAGE")
            try:
                mk_audit([ok], tool_id=4)
            except RuntimeError as error:
                print(error)
        """)
        assert seen[0] == "True"
        assert " ".join(seen[1:]).endswith("already uses sys.monitoring tool id 3")

    @pytest.mark.original_fails()
    def test_taken_by_another_tool(self, run):
        seen = run("""
            from PACKAGE import mk_audit
            sys.monitoring.use_tool_id(3, "other")
            try:
                mk_audit([ok], tool_id=3)
            except RuntimeError as error:
                print(error)
            print(mk_audit([ok]).tool_id, mk_audit([ok], monitor_calls=False).tool_id)
            print(sys.monitoring.get_tool(3), sys.monitoring.get_tool(4))
        """)
        text = " ".join(seen)
        assert text.startswith("sys.monitoring tool id 3 is already used by 'other'")
        assert seen[-2:] == ["other", "fastaudit_rs"]
        assert seen[-4:-2] == ["4", "None"]

    @pytest.mark.original_fails()
    def test_all_are_taken(self, run):
        seen = run("""
            from PACKAGE import mk_audit
            for number in range(6):
                sys.monitoring.use_tool_id(number, str(number))
            try:
                mk_audit([ok])
            except RuntimeError as error:
                print("all" in str(error), guarded())
        """)
        assert seen == ["True", "False"]

    @pytest.mark.original_fails()
    def test_a_veto_of_the_callback_leaves_the_tool_id_free(self, run):
        seen = run("""
            from PACKAGE import mk_audit
            def hook(event, args):
                if veto and event == "sys.monitoring.register_callback":
                    raise ZeroDivisionError
            veto = True
            sys.addaudithook(hook)
            try:
                mk_audit([ok])
            except ZeroDivisionError:
                print(sys.monitoring.get_tool(3))
            veto = False
            import orjson
            with mk_audit([ok])():
                print(sys.monitoring.get_events(3) == sys.monitoring.events.CALL)
        """)
        assert seen == ["None", "True"]

    @pytest.mark.original_fails()
    def test_lost_to_another_tool(self, run):
        seen = run("""
            from PACKAGE import mk_audit
            audit_perms = mk_audit([ok], tool_id=3)
            sys.monitoring.free_tool_id(3)
            sys.monitoring.use_tool_id(3, "other")
            try:
                audit_perms().__enter__()
            except RuntimeError as error:
                print("no longer belongs to fastaudit_rs" in str(error), guarded())
            sys.monitoring.free_tool_id(3)
            import orjson
            mk_audit([ok])
            with audit_perms():
                print(guarded(), sys.monitoring.get_events(3) == sys.monitoring.events.CALL)
        """)
        assert seen == ["True", "False", "True", "True"]
