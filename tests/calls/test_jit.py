"""Code that the JIT compiled before the first guard sees functions that the guard replaced."""

import os
import sys

import programs
import pytest

HAS_JIT = getattr(getattr(sys, "_jit", None), "is_available", bool)()
pytestmark = pytest.mark.skipif(not HAS_JIT, reason="this Python was built without a JIT")

PROGRAM = """
import os, sys
from fastaudit_rs import AuditDenied, Policy, mk_audit

OK, OUT = sys.argv[1:]
FILE = open(OUT + '/file', 'wb', buffering=0)
assert sys._jit.is_enabled()

def acts(names):
    ran = False
    for name in names:
        {act}
        ran = ran or sys._jit.is_active()
    return ran

# Until a trace of it runs.
ran = any(acts(map(str, range(start, start + 5_000))) for start in range(0, 50_000, 5_000))
print("compiled" if ran else "not compiled")
with {guard}:
    try:
        acts(["a", "b"])
    except AuditDenied as denied:
        print("denied", denied.event)
    else:
        print("passed")
"""

CASES = {
    "a function": ("os.mkfifo(OUT + '/' + name)", "mk_audit([OK])()", "os.mkfifo"),
    "a function with names": (
        "os.mkfifo(path=OUT + '/' + name, mode=0o600)",
        "mk_audit([OK])()",
        "os.mkfifo",
    ),
    "a method": (
        "FILE.write(b'xy')",
        "Policy(write=[OK, OUT], max_bytes=1).guard(monitor_calls=False)()",
        "fastaudit.write",
    ),
}


@pytest.mark.parametrize(("act", "guard", "event"), CASES.values(), ids=CASES)
def test_what_was_compiled_before(act, guard, event, places):
    program = PROGRAM.format(act=act, guard=guard)
    environment = {**os.environ, "PYTHON_JIT": "1"}
    done = programs.ran(program, places.ok, places.out, env=environment, timeout=120)
    assert done.stdout.split("\n")[:2] == ["compiled", f"denied {event}"], done
