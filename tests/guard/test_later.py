"""Code that a guarded block leaves behind to run after its guard."""

import os
import sys
import textwrap

import programs
import pytest

# Since Python 3.11 `asyncio.run` does.
SETS_A_HANDLER = sys.version_info >= (3, 11)

HEAD = """
import atexit, os, sys
from fastaudit_rs import mk_audit
ok, out = sys.argv[1:]
audit_perms = mk_audit([ok], monitor_calls=False)

def guarded(*args, **kwargs):
    try:
        os.mkdir(out + "/made")
    except PermissionError:
        print(True, *args, *kwargs.items())
        return
    os.rmdir(out + "/made")
    print(False, *args, *kwargs.items())
"""


@pytest.fixture
def run(places):
    """`run(code)`: the lines that it prints in a process of its own."""

    def run_code(code):
        return programs.printed(HEAD + textwrap.dedent(code), places.ok, places.out).splitlines()

    return run_code


class TestAtExit:
    """It is called under the guard that it was registered under, and no other is."""

    def test_functions(self, run):
        assert run("""
            atexit.register(guarded, "host")
            with audit_perms():
                made = atexit.register(guarded, "guarded", a=1)
                print(made is guarded)
            guarded("now")
        """) == ["True", "False now", "True guarded ('a', 1)", "False host"]

    def test_as_a_decorator(self, run):
        assert run("""
            with audit_perms():
                @atexit.register
                def end():
                    guarded()
                print(type(end).__name__)
        """) == ["function", "True"]

    def test_unregistered(self, run):
        assert run("""
            def other():
                guarded("other")
            with audit_perms():
                atexit.register(guarded)
                atexit.register(other)
                atexit.unregister(guarded)
        """) == ["True other"]

    def test_by_way_of_native_code(self, run):
        assert run("""
            with audit_perms():
                list(map(atexit.register, [guarded]))
        """) == ["True"]

    def test_a_denial_is_told(self, run, places):
        program = HEAD + "with audit_perms(): atexit.register(os.mkdir, out + '/late')"
        assert "AuditDenied" in programs.ran(program, places.ok, places.out).stderr

    def test_what_the_standard_library_registers_is_left(self, run):
        """A finalizer of the host's runs without the guard, though the first was made under one."""
        assert run("""
            import weakref
            class Kept:
                pass
            kept, other = Kept(), Kept()
            with audit_perms():
                weakref.finalize(kept, guarded, "under a guard")
            weakref.finalize(other, guarded, "host")
        """) == ["False host", "False under a guard"]

    def test_what_is_no_function(self, run):
        assert (
            run("""
            with audit_perms():
                for arguments in ((), (1,)):
                    try:
                        atexit.register(*arguments)
                    except TypeError:
                        print("TypeError")
        """)
            == ["TypeError"] * 2
        )


class TestAtSignals:
    """A handler runs under the guard that it was set under, whenever the signal comes."""

    def test_handlers(self, run):
        assert run("""
            import signal
            def handler(number, frame):
                guarded(number == signal.SIGUSR1, frame is None)
            with audit_perms():
                signal.signal(signal.SIGUSR1, handler)
            signal.raise_signal(signal.SIGUSR1)
            signal.signal(signal.SIGUSR1, handler)
            signal.raise_signal(signal.SIGUSR1)
        """) == ["True True False", "False True False"]

    def test_a_handler_that_fires_under_another_guard(self, run):
        """Both hold then."""
        assert run("""
            import signal
            with audit_perms():
                signal.signal(signal.SIGUSR1, lambda *_: guarded("first"))
            with mk_audit([ok, out], lambda event, *_: "signal" in event, monitor_calls=False)():
                signal.raise_signal(signal.SIGUSR1)
            with mk_audit([ok], lambda event, *_: "signal" in event, monitor_calls=False)():
                signal.signal(signal.SIGUSR2, lambda *_: guarded("other"))
            with mk_audit([out], lambda event, *_: "signal" in event, monitor_calls=False)():
                guarded("now")
                signal.raise_signal(signal.SIGUSR2)
        """) == ["True first", "False now", "True other"]

    def test_a_host_that_restores_a_handler_keeps_its_guard(self, run):
        assert run("""
            import signal
            with audit_perms():
                signal.signal(signal.SIGUSR1, guarded)
            old = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            print(old == guarded, hash(old) == hash(guarded))
            signal.signal(signal.SIGUSR1, old)
            print(signal.getsignal(signal.SIGUSR1) is old, old.__wrapped__ is guarded)
            print(repr(old) == f"<{guarded!r} under a guard of fastaudit_rs>")
            signal.signal(signal.SIGUSR1, lambda *_: old())
            signal.raise_signal(signal.SIGUSR1)
        """) == ["True True", "True True", "True", "True"]

    def test_asyncio(self, run):
        """asyncio sets a handler of its own, and looks whether it is still there."""
        assert run("""
            import asyncio, signal
            def is_default():
                return signal.getsignal(signal.SIGINT) is signal.default_int_handler
            async def main():
                guarded("in a task", is_default())
            with audit_perms():
                asyncio.run(main())
                print(is_default())
            print(is_default())
            asyncio.run(main())
        """) == [
            f"True in a task {not SETS_A_HANDLER}",
            "True",
            "True",
            f"False in a task {not SETS_A_HANDLER}",
        ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="has no fork")
class TestAtForks:
    def test_functions(self, run):
        assert run("""
            os.register_at_fork(before=lambda: guarded("host"))
            with audit_perms():
                os.register_at_fork(before=lambda: guarded("before"),
                    after_in_parent=lambda: guarded("parent"), after_in_child=lambda: os._exit(0))
            sys.stdout.flush()
            os.waitpid(os.fork() or os._exit(0), 0)
        """) == ["True before", "False host", "True parent"]
