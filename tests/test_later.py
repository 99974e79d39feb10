"""What guarded code leaves behind to run after its guard."""

import subprocess
import sys
import textwrap

import pytest

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
        program = HEAD + textwrap.dedent(code)
        done = subprocess.run(
            [sys.executable, "-c", program, places.ok, places.out],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

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
        done = subprocess.run(
            [sys.executable, "-c", program, places.ok, places.out], capture_output=True, text=True
        )
        assert "PermissionError" in done.stderr or "AuditDenied" in done.stderr

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
