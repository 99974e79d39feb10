"""`Policy.install()`: in force in the whole process for good, whatever tries to lift it.

Each test runs in a process of its own.
"""

import os
import sys
import textwrap

import programs
import pytest

HEAD = """
import os, sys
import fastaudit_rs
from fastaudit_rs import AuditDenied, Network, Policy, installed_policy, mk_audit

def denied(function, *args, **options):
    try:
        function(*args, **options)
    except AuditDenied as error:
        return error.rule
    except PermissionError as error:
        return "plain"

out = sys.argv[1]
def overreach():
    return denied(os.mkdir, out + "/made")
"""


@pytest.fixture
def run(places):
    """`run(code)`: runs it in a process that has a policy installed; what it prints."""

    def run(code, install="Policy(write=['.'], threads='inherit').install(monitor_calls=False)"):
        program = HEAD + install + "\n" + textwrap.dedent(code)
        result = programs.ran(program, places.out, cwd=places.cwd)
        run.stderr = result.stderr
        assert result.returncode == 0, result.stderr
        assert os.listdir(places.out) == []
        return result.stdout.split()

    return run


class TestInForce:
    def test_from_then_on(self, run):
        code = """
        os.mkdir("fine")
        print(overreach(), installed_policy() == Policy(write=["."], threads="inherit"))
        """
        assert run(code) == ["write", "True"]
        assert run("print(installed_policy())", install="") == ["None"]

    def test_in_every_thread_and_context(self, run):
        """Also those that were started before."""
        install = """
import asyncio, contextvars, threading
go, results = threading.Event(), []
def wait():
    go.wait(10)
    results.append(overreach())
earlier = threading.Thread(target=wait)
earlier.start()
context = contextvars.copy_context()
Policy(write=['.'], threads='inherit').install(monitor_calls=False)
"""
        code = """
        go.set()
        earlier.join()
        later = threading.Thread(target=wait)
        later.start()
        later.join()
        print(results, context.run(overreach), contextvars.Context().run(overreach))
        async def task():
            return overreach(), await asyncio.to_thread(overreach)
        print(*asyncio.run(task()))
        """
        out = run(code, install)
        assert out == ["['write',", "'write']", "write", "write", "write", "write"]

    def test_in_a_child_that_is_forked(self, run):
        install = "Policy(write=['.']).install(monitor_calls=False)"
        code = """
        child = os.fork()
        if not child:
            os._exit(0 if overreach() == "write" else 1)
        print(os.waitpid(child, 0)[1])
        """
        assert run(code, install) == ["0"]

    def test_while_the_interpreter_ends(self, run):
        """Exit handlers, and what is freed last."""
        code = """
        import atexit
        mkdir, write, path = os.mkdir, os.write, out + "/made"

        def attempt(mkdir=mkdir, write=write, path=path):
            try:
                mkdir(path)
                write(1, b"made ")
            except PermissionError:
                write(1, b"stopped ")

        class Last:
            def __del__(self, attempt=attempt):
                attempt()

        atexit.register(attempt)
        sys.last = Last()
        """
        assert run(code) == ["stopped"] * 2
        assert run.stderr == ""

    def test_guards_restrict_more(self, run):
        code = """
        with Policy(write=None, block=["private"]).guard(monitor_calls=False)() as guard:
            print(overreach(), denied(os.mkdir, "private"), denied(os.mkdir, "public"))
            print(guard.violation_count)
        with mk_audit([], monitor_calls=False)():
            print(denied(os.mkdir, "other"), overreach())
        os.mkdir("other")
        """
        assert run(code) == ["write", "block", "None", "1", "write", "write"]

    def test_events_of_policies(self, run):
        install = """Policy(write=['.'], read=['.'], network=Network(hosts=["127.0.0.1"]),
            imports={"block": ["wave"]}, unknown_events="deny").install(monitor_calls=False)"""
        code = """
        import socket
        print(denied(os.listdir, "/"), denied(__import__, "wave"), denied(sys.audit, "tests.ours"))
        with socket.socket() as made:
            print(denied(made.connect, ("127.8.8.8", 9)))
        """
        assert run(code, install) == ["read", "imports", "unknown_events", "network.hosts"]

    def test_quota(self, run):
        install = "Policy(write=['.'], max_bytes=10).install(monitor_calls=False)"
        code = """
        def write(count):
            with open("a", "wb", buffering=0) as file:
                file.write(b"x" * count)
        with Policy(write=["."], max_bytes=5).guard(monitor_calls=False)():
            print(denied(write, 6), denied(write, 5))
        print(denied(write, 6), denied(write, 5))
        """
        assert run(code, install) == ["max_bytes", "None", "max_bytes", "None"]

    def test_native_calls(self, run):
        pytest.importorskip("orjson")
        install = "import orjson; Policy(write=['.']).install()"
        code = """
        import contextvars
        print(denied(orjson.dumps, 1), contextvars.Context().run(denied, orjson.dumps, 1))
        with Policy(write=["."], native=True).guard()():
            print(denied(orjson.dumps, 1))
        with mk_audit(["."], on_call=lambda *args: False)():
            print(denied(orjson.dumps, 1))
        """
        # The last is let pass by its own callback before the event is raised, by which alone the
        # installed policy could tell.
        assert run(code, install)[:3] == ["native", "native", "native"]

    def test_callbacks(self, run):
        install = """
asked, told = [], []
def before_deny(event, args, frame, message, data):
    asked.append((event, data))
    return event == "os.rmdir"
Policy(write=['.']).install(before_deny, None, 7, monitor_calls=False, on_denied=told.append)
"""
        code = """
        print(overreach(), asked == [("os.mkdir", 7)], len(told))
        """
        assert run(code, install) == ["write", "True", "1"]

    def test_violations_may_proceed(self, run, places):
        install = """
told = []
Policy(on_violation=told.append).install(monitor_calls=False)
"""
        assert run("os.mkdir('made'); print(len(told))", install) == ["1"]


class TestLifting:
    """Attempts to turn it off, all at once and one by one: none succeeds."""

    def test_a_second_hook(self, run):
        code = """
        seen = []
        sys.addaudithook(lambda event, args: seen.append(event))
        print(overreach(), seen)
        """
        assert run(code) == ["write", "[]"]

    def test_modules_and_their_globals(self, run):
        code = """
        import fastaudit_rs._native as native, fastaudit_rs.denied as module
        for namespace in (vars(native), vars(module), vars(fastaudit_rs)):
            for name in list(namespace):
                if name not in ("__name__", "__builtins__"):
                    del namespace[name]
        for name in [name for name in sys.modules if name.startswith("fastaudit_rs")]:
            del sys.modules[name]
        try:
            os.mkdir(out + "/made")
        except PermissionError:
            print("stopped")
        """
        assert run(code) == ["stopped"]

    def test_classes_and_objects(self, run):
        code = """
        import gc
        policy = installed_policy()
        for attempt in (
            lambda: setattr(policy, "write", None),
            lambda: setattr(Policy, "write", None),
            lambda: setattr(AuditDenied, "__new__", None),
            lambda: setattr(AuditDenied, "__init__", None),
            lambda: policy.__init__(write=None),
            lambda: Policy.__dict__["write"].__set__(policy, None),
            lambda: type(policy).__new__(Policy, write=None).install(monitor_calls=False),
        ):
            try:
                attempt()
            except (AttributeError, TypeError, RuntimeError):
                pass
        for found in gc.get_objects():
            if type(found).__module__.startswith("fastaudit_rs"):
                for name in dir(found):
                    try:
                        setattr(found, name, None)
                    except Exception:
                        pass
        gc.collect()
        print(overreach(), installed_policy() == policy)
        """
        assert run(code) == ["write", "True"]

    def test_frames(self, run):
        """Code that runs during a check finds nothing to change."""
        code = """
        import gc
        names = set()
        class Path:
            def __fspath__(self):
                frame = sys._getframe()
                while frame:
                    names.add(frame.f_globals.get("__name__"))
                    frame.f_locals.clear() if frame.f_code.co_name == "check" else None
                    frame = frame.f_back
                return out + "/made"
        print(denied(os.mkdir, Path()), sorted(names))
        """
        assert run(code) == ["write", "['__main__']"]

    def test_evil_objects_in_an_event(self, run):
        """A comparison, a repr or a hash that walks to the hook and tells it to stop."""
        code = """
        class Evil(str):
            def evil(self, *args):
                return True
            __eq__ = __ne__ = __lt__ = __gt__ = __contains__ = __bool__ = evil
            def __hash__(self):
                self.evil()
                return 0
            def __repr__(self):
                self.evil()
                return "evil"
            def __fspath__(self):
                self.evil()
                return "."
        evil = Evil(out + "/made")
        print(denied(sys.audit, "os.mkdir", evil, 0o777, -1))
        print(denied(sys.audit, "open", evil, Evil("w"), Evil("0")))
        for event in ("os.mkdir", "open", "subprocess.Popen", "audit_perms.set_config"):
            denied(sys.audit, event, evil, evil, evil)
        print(overreach())
        """
        assert run(code) == ["write", "write", "write"]

    def test_interpreter_state(self, run):
        code = """
        import contextvars, gc
        variables = [found for found in gc.get_objects() if type(found) is contextvars.ContextVar]
        for variable in [*variables, *contextvars.copy_context()]:
            if variable.name == "fastaudit_rs_guard":
                variable.set(None)
        sys.settrace(lambda *args: None)
        sys.setprofile(lambda *args: None)
        try:
            overreach()
            print("stopped")
        finally:
            sys.settrace(None)
        for name in ("audit", "addaudithook", "_getframe", "excepthook"):
            setattr(sys, name, lambda *args: None)
        os.path.realpath = lambda path, **options: "."
        os.fspath = os.fsdecode = lambda path: "."
        def attempt():
            return overreach()
        print(contextvars.Context().run(attempt))
        """
        assert run(code) == ["stopped", "write"]

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="has no sys.monitoring")
    def test_the_monitor(self, run):
        pytest.importorskip("orjson")
        install = "import orjson; Policy(write=['.']).install()"
        code = """
        for attempt in (
            lambda: sys.monitoring.register_callback(3, sys.monitoring.events.CALL, None),
            lambda: sys.monitoring.register_callback(3, sys.monitoring.events.CALL, print),
        ):
            print(denied(attempt))
        print(denied(orjson.dumps, 1))
        """
        assert run(code, install) == ["None", "None", "native"]

    def test_child_interpreters(self, run):
        """None can be made, and those that are there already may do nothing either."""
        name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
        install = f"""
import {name} as interpreters
earlier = interpreters.create()
CHILD = '''
import os
try:
    os.mkdir(PATH)
    os.write(1, b"made ")
except PermissionError:
    os.write(1, b"stopped ")
'''
Policy(write=['.']).install(monitor_calls=False)
"""
        code = """
        try:
            interpreters.create()
            print("made")
        except Exception as error:
            print("stopped")
        interpreters.run_string(earlier, CHILD.replace("PATH", repr(out + "/made")))
        """
        assert run(code, install) == ["stopped", "stopped"]


class TestInstallingAgain:
    def test_the_same_and_a_stricter_one(self, run):
        code = """
        Policy(write=["."], threads="inherit").install(monitor_calls=False)
        Policy(write=["."], block=["other"]).install(monitor_calls=False)
        print(denied(os.mkdir, "other"), denied(os.mkdir, "sub"), installed_policy().block)
        """
        assert run(code) == ["block", "None", "('other',)"]
        code = """
        Policy(write=[]).install(monitor_calls=False)
        print(denied(os.mkdir, "another"))
        """
        assert run(code) == ["write"]

    def test_exceptions_that_nobody_caught_are_told(self, run):
        code = """
        sys.excepthook = lambda *args: print("told")
        sys.unraisablehook = lambda *args: print("told")
        class Failing:
            def __del__(self):
                raise ValueError
        Failing()
        sys.excepthook(ValueError, ValueError(), None)
        import threading
        threading.excepthook = lambda *args: print("told")
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        """
        assert run(code) == ["told"] * 3

    @pytest.mark.parametrize(
        ("policy", "field"),
        [
            ("Policy(write=None)", "write"),
            ("Policy(write=['/'])", "write"),
            ("Policy(env=True)", "env"),
            ("Policy(commands=['ls'])", "commands"),
            ("Policy(native=True)", "native"),
            ("Policy(protect=False)", "protect"),
            ("Policy(on_violation='log')", "on_violation"),
            ("Policy(on_violation=print)", "on_violation"),
            ("Policy(import_allow=['*'])", "import_allow"),
        ],
    )
    def test_one_that_allows_more(self, run, policy, field):
        code = f"""
        try:
            {policy}.install(monitor_calls=False)
        except RuntimeError as error:
            print(str(error).replace(" ", "_"))
        print(overreach())
        """
        message, rule = run(code)
        assert message == (
            f"a_policy_is_installed_already,_and_this_one_is_not_stricter:_its_{field}_allows_what_"
            "that_does_not"
        )
        assert rule == "write"

    def test_callbacks_of_a_later_one_lift_nothing(self, run):
        code = """
        same = Policy(write=["."], threads="inherit")
        same.install(lambda *args: True, monitor_calls=False)
        print(overreach())
        """
        assert run(code) == ["write"]

    def test_not_under_a_guard(self, run):
        code = """
        with mk_audit([], monitor_calls=False)():
            print(denied(Policy().install, monitor_calls=False))
        print(installed_policy())
        """
        assert run(code, install="") == ["None", "None"]

    def test_bad_arguments_install_nothing(self, run):
        code = """
        for arguments in ({"before_deny": 1}, {"tool_id": 9}, {"monitor_calls": 1}):
            try:
                Policy().install(**arguments)
            except (TypeError, ValueError) as error:
                print(next(name in str(error) for name in arguments))
        print(installed_policy())
        """
        assert run(code, install="") == ["True", "True", "True", "None"]
