"""`import ctypes` for the first time, under a guard: nothing is found in a library by it."""

import os
import sys
import textwrap

import programs
import pytest

GUARDS = {
    "mk_audit": "mk_audit(['.'])",
    "0.2 rules": "v02.mk_audit(['.'])",
    "a policy": "Policy().guard()",
    "workspace": "Policy.preset('workspace').guard()",
}


def run(guard, code):
    program = f"""
import sys
from fastaudit_rs import AuditDenied, Policy, mk_audit, v02
def denied(function, *args):
    try:
        function(*args)
    except AuditDenied as error:
        return error.event
audit_perms = {guard}
assert "ctypes" not in sys.modules
with audit_perms() as guard:
{textwrap.indent(textwrap.dedent(code), "    ")}
"""
    return programs.printed(program, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
class TestImport:
    def test_passes(self, guard):
        code = """
        import ctypes
        class Pair(ctypes.Structure):
            _fields_ = [("first", ctypes.c_int)]
        print(Pair(3).first, guard.violation_count)
        """
        assert run(guard, code) == "3 0\n"

    def test_nothing_is_found_by_it(self, guard):
        code = """
        import ctypes
        program = ctypes.CDLL(None)
        print(denied(getattr, program, "getpid"), denied(getattr, ctypes.pythonapi, "Py_Exit"))
        print(denied(ctypes.CDLL, "libc.so.6"), denied(ctypes.CDLL, ""))
        print(bool(denied(ctypes.string_at, 1, 1)))
        print(denied(sys.audit, "ctypes.dlopen"), denied(sys.audit, "ctypes.dlopen", None, 1))
        """
        names = ["ctypes.dlsym"] * 2 + ["ctypes.dlopen"] * 2 + ["True"] + ["ctypes.dlopen"] * 2
        assert run(guard, code).split() == names


def test_a_client_that_imports_it():
    pytest.importorskip("httpx")
    code = "import httpx; print(httpx.URL('http://a/b').path, guard.violation_count)"
    assert run(GUARDS["workspace"], code) == "/b 0\n"
