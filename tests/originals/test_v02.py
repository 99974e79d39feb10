"""`fastaudit_rs.v02`: guards with the rules of fastaudit 0.2, their events, callbacks and messages.

The original's own tests, the differential test and the test of its client are not repeated here.
"""

import asyncio
import functools
import os
import re
import sys

import programs
import pytest

from fastaudit_rs import AuditDenied, mk_audit as mk_audit_01, v02

HAS_MONITOR = sys.version_info >= (3, 12)


@pytest.fixture
def guard(places):
    """`guard(**options)`: a guard with `places.ok` approved, without call monitoring."""

    def make(oks=None, **options):
        options.setdefault("monitor_calls", False)
        return v02.mk_audit([places.ok] if oks is None else oks, **options)()

    return make


def denial(function, *args):
    with pytest.raises(AuditDenied) as denied:
        function(*args)
    return denied.value


class TestEvents:
    def test_beside_the_rules_of_0_1(self, guard, places):
        """The guard of the context is in force, whichever others there are."""
        with mk_audit_01([places.ok], monitor_calls=False)():
            sys.audit("somelib.event")
        with guard():
            denial(sys.audit, "somelib.event")

    def test_opening_by_a_link_that_lands_inside(self, guard, places):
        os.symlink(places.ok, places.out + "/in")
        with guard():
            open(places.out + "/in/a", "w").close()
            denial(os.remove, places.out + "/in")
            os.remove(places.out + "/in/a")


class TestByName:
    def test_the_same_rules(self, places):
        audit_perms = mk_audit_01(["~", places.ok], rules="0.2", monitor_calls=False)
        with audit_perms():
            denied = denial(sys.audit, "somelib.event")
            os.mkdir(places.ok + "/a")
        assert denied.args == ("Audit: somelib.event blocked in sandbox with args: ()",)
        audit_perms.add_imports("x")
        with mk_audit_01(None, rules="0.2", monitor_calls=False)():
            os.mkdir(places.out + "/a")

    @pytest.mark.parametrize(
        ("rules", "error"),
        [
            ("0.3", (ValueError, "rules must be '0.1' or '0.2', not '0.3'")),
            (0.2, (TypeError, "rules must be '0.1' or '0.2', not float")),
            (None, (TypeError, "rules must be '0.1' or '0.2', not NoneType")),
        ],
    )
    def test_names_that_there_are_not(self, rules, error):
        kind, message = error
        with pytest.raises(kind) as raised:
            mk_audit_01([], rules=rules)
        assert str(raised.value) == message


class TestRoots:
    def test_none_is_everywhere(self, guard, places):
        with v02.mk_audit(None, monitor_calls=False)():
            os.mkdir(places.out + "/a")
            os.chdir(places.out)
            denial(sys.audit, "os.system", "x")


def five(event, args, frame, msg, data):
    return event == "somelib.event" and data == "data"


def six(event, args, frame, msg, data, calls):
    return event == "somelib.event" and calls == ()


class Host:
    def bound(self, event, args, frame, msg, data, calls):
        return calls == ()

    def __call__(self, event, args, frame, msg, data, calls):
        return calls == ()


def any_number(*args):
    return len(args) == 6 and args[-1] == ()


def with_more(event, args, frame, msg, data, calls, more=None, *, named=1):
    return calls == () and named == 1


def partial(event, args, frame, msg, data, calls, pre=None, _other=five):
    return calls == () and pre == "pre"


@functools.wraps(five)
def wrapping(*args, **kwargs):
    return five(*args, **kwargs)


class TestCallbacks:
    @pytest.mark.parametrize(
        "before_deny",
        [
            five, six, Host().bound, Host(), any_number, with_more, wrapping,
            functools.partial(partial, pre="pre"), functools.partial(Host.bound, None),
        ],
    )  # fmt: skip
    def test_get_the_calls_when_they_can_take_them(self, guard, before_deny):
        with guard(before_deny=before_deny, data="data"):
            sys.audit("somelib.event")

    @pytest.mark.parametrize(
        "before_deny",
        [
            lambda event: None,
            lambda event, args, frame, msg, data, calls, more: None,
            functools.partial(partial, msg="x"),
            functools.partial(five, event="x"),
            functools.partial(five, other="x"),
            3,
        ],
    )
    def test_that_cannot(self, guard, before_deny):
        with pytest.raises(TypeError, match="^before_deny must "):
            guard(before_deny=before_deny)

    def test_of_guards_with_the_rules_of_0_1(self, places):
        """They get the calls only where they have to, or say that it is them."""
        seen = []

        def log(event, args, frame, msg, data, log=seen):
            log.append(event)

        def named(event, args, frame, msg, data, calls=None):
            seen.append(calls)

        def needed(event, args, frame, msg, data, last):
            seen.append(last)

        def more(*args):
            seen.append(len(args))

        for callback in (log, named, needed, more):
            with mk_audit_01([places.ok], callback, monitor_calls=False)():
                denial(os.mkdir, places.out + "/a")
        assert seen == ["os.mkdir", (), (), 5]

    def test_what_they_are_told(self, guard, places):
        told = []

        def before_deny(event, args, frame, msg, data, calls):
            told.append((event, args, msg, frame.f_code.co_name))

        def inner():
            sys.audit("somelib.event", 1)

        with guard(before_deny=before_deny):
            denied = denial(inner)
            denial(os.mkdir, places.out + "/a")
        chain = " -> ".join(denied.call_chain)
        assert chain.endswith(".inner")
        assert f"{__name__}.denial -> " in chain
        assert told[0] == ("somelib.event", (1,), f"{denied.args[0]}\nCall chain: {chain}", "inner")
        assert told[1][2] == f"os.mkdir {places.out + '/a'!r} not in ({places.ok!r},)"
        assert str(denied).startswith(f"{denied.args[0]}\nCall chain: ")

    def test_an_approved_command_runs(self, guard):
        with guard(before_deny=lambda event, *_: event == "subprocess.Popen"):
            done = programs.run(["echo", "x"])
            assert done.stdout == "x\n"
            denial(os.system, "true")


class TestChain:
    def test_survives_code_that_cuts_the_traceback(self, guard):
        """The traceback that a handler leaves is shorter than the chain that led to the denial."""

        def overreach():
            os.mkdir("/nowhere/a")

        def clean():
            try:
                overreach()
            except PermissionError as error:
                raise error.with_traceback(None) from None

        with guard():
            denied = denial(clean)
        assert [name.rpartition(".")[2] for name in denied.call_chain[-2:]] == [
            "clean",
            "overreach",
        ]

    def test_keeps_no_frame_alive(self, guard):
        import weakref

        class Local:
            pass

        def overreach():
            local = Local()
            alive.append(weakref.ref(local))
            os.mkdir("/nowhere/a")

        alive = []
        with guard() as entered:
            try:
                overreach()
            except PermissionError as error:
                kept = error.with_traceback(None)
        assert kept.call_chain[-1].endswith("overreach")
        assert len(entered.violations) == 1
        assert alive[0]() is None


class TestImports:
    @pytest.fixture
    def module(self, tmp_path, monkeypatch):
        """`module(name, text)`: makes a module that can be imported."""
        monkeypatch.syspath_prepend(str(tmp_path))

        def make(name, text):
            (tmp_path / f"{name}.py").write_text(text)
            monkeypatch.delitem(sys.modules, name, raising=False)
            return name

        return make

    OVERREACH = "import os\ndef f(): pass\nf.__kwdefaults__ = {}\n"

    def test_what_importing_named_modules_does(self, guard, module):
        name = module("v02_allowed", self.OVERREACH + "import sys\nsys.audit('somelib.event')\n")
        with guard(allow_imports=[name]):
            __import__(name)
            denial(sys.audit, "somelib.event")

    def test_also_what_they_import_in_turn(self, guard, module):
        module("v02_helper", self.OVERREACH)
        name = module("v02_outer", "import v02_helper\n")
        with guard(allow_imports=name):
            __import__(name)

    def test_nor_may_guards_be_changed(self, guard, module):
        text = "import fastaudit_rs.v02\nfastaudit_rs.v02.mk_audit(None, monitor_calls=False)\n"
        name = module("v02_frees_itself", text)
        with guard(allow_imports=[name]):
            assert denial(__import__, name).event == "audit_perms.set_config"

    def test_code_that_was_not_imported_has_no_part_in_it(self, guard, module, monkeypatch):
        """Guarded code cannot do what it likes from inside an import that it set off."""
        name = module("v02_innocent", "")
        denials = []
        code = """
import sys

class Finder:
    def find_spec(self, name, path, target=None):
        try:
            sys.audit("somelib.event")
        except PermissionError as error:
            denials.append(error)

__spec__ = type("Spec", (), {"_initializing": True})()
__name__ = module
sys.meta_path.insert(0, Finder())
try:
    __import__(module)
finally:
    del sys.meta_path[0]
"""
        with guard(allow_imports=[name]):
            exec(code, {"module": name, "denials": denials})
        assert len(denials) == 1

    def test_can_be_added(self, guard, module, places):
        name = module("v02_added", self.OVERREACH)
        audit_perms = v02.mk_audit([places.ok], monitor_calls=False, allow_imports=["b"])
        with audit_perms():
            assert denial(audit_perms.add_imports, name).event == "audit_perms.add_imports"
            denial(__import__, name)
        assert audit_perms.add_imports(name, " a ", "b", "") == ("a", "b", name)
        with audit_perms():
            __import__(name)
            assert v02.audit_state()["import_allow"] == ("a", "b", name)

    def test_other_guards_have_none_to_add(self, places):
        with pytest.raises(RuntimeError, match="import_allow"):
            mk_audit_01([], monitor_calls=False).add_imports("x")


class TestEventLoop:
    def test_a_loop_of_its_own(self, guard, places):
        async def main():
            loop = asyncio.get_running_loop()
            assert await asyncio.to_thread(int, "3") == 3
            assert await loop.run_in_executor(None, int, "4") == 4
            assert await loop.getaddrinfo("127.0.0.1", 80)
            with pytest.raises(AuditDenied):
                await asyncio.to_thread(os.mkdir, places.out + "/a")
            return 5

        with guard():
            assert asyncio.run(main()) == 5
        assert os.listdir(places.out) == []

    def test_no_other_thread_of_that_name(self, guard):
        import threading

        if not HAS_MONITOR:
            pytest.skip("CPython raises no event for threads before 3.12")
        with guard():
            denied = denial(threading.Thread(target=int, name="asyncio_0").start)
        assert denied.event.startswith("_thread.start_")
        assert denied.rule == "threads"


class TestState:
    def test_without_a_guard_and_under_one(self, places):
        before = v02.audit_state()
        keys = "active import_allow monitor_calls monitor_on monitoring safe_native tool_id"
        assert sorted(before) == keys.split()
        assert before["active"] is False and before["monitor_calls"] is None
        assert before["monitoring"] is HAS_MONITOR
        assert {"numpy", "orjson", "regex._regex"} <= set(before["safe_native"])
        with v02.mk_audit([], monitor_calls=HAS_MONITOR)():
            inside = v02.audit_state()
        assert inside["active"] is True and inside["monitor_calls"] is HAS_MONITOR
        if HAS_MONITOR:
            assert inside["monitor_on"] == before["monitor_on"] + 1
            assert inside["tool_id"] == 3

    def test_of_the_configuration(self, places):
        told = []
        audit_perms = v02.mk_audit(
            [places.ok], lambda event, args, *_: told.append(args), monitor_calls=False
        )
        with audit_perms():
            denial(sys.audit, "audit_perms.set_config", 1)
        other = v02.mk_audit([], monitor_calls=False, allow_imports="x")
        with audit_perms():
            denial(other().__enter__)
        text = repr(told[-1][0])
        assert re.fullmatch(
            r"AuditCfg\(oks=\(\), before_deny=None, on_call=None, data=None, monitor_calls=False, "
            r"import_allow=\('x',\)\)",
            text,
        )


def test_the_repr_says_how_it_was_made():
    assert repr(v02.mk_audit(None)) == "<AuditPerms of v02.mk_audit(None)>"
    assert repr(v02.mk_audit([])) == "<AuditPerms of v02.mk_audit([])>"
