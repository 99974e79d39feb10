"""Declarations of installed packages for `fastaudit` in their entry points."""

import sys
import textwrap

import peers
import programs
import pytest

ENTRY_POINTS = """
[fastaudit_safe_native]
declared = safe_and_missing._rust
numpy = numpy

[fastaudit_import_allow]
declared = declared_import

[fastaudit_monitor_hook]
declared = declared_hooks:monitor
lxml = fastaudit.hooks:lxml_monitor
none = declared_hooks:no_such_function
odd = declared_hooks:takes_one

[fastaudit_audit_hook]
declared = declared_hooks:before_deny
missing = no_such_module:before_deny
"""

HOOKS = """
import sys

asked = []

def monitor(caller, callee, fn, code, off, data, calls):
    asked.append((callee, data, calls))
    if callee == "markupsafe._speedups._escape_inner" and data == "suppress":
        return False
    if data == "switch off":
        return sys.monitoring.DISABLE

def takes_one(caller):
    pass

def before_deny(event, args, frame, msg, data, calls):
    return event == "declared.event" and data == "data"
"""


@pytest.fixture
def run(tmp_path):
    """`run(code)`: runs it where such a package is installed; what it printed."""
    (tmp_path / "link").mkdir()
    environment = peers.environment(tmp_path / "link")
    metadata = tmp_path / "declared-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: declared\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "declared_hooks.py").write_text(HOOKS)
    (tmp_path / "declared_import.py").write_text("def f(): pass\nf.__kwdefaults__ = {}\n")

    def run(code):
        prelude = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from fastaudit_rs import AuditDenied
from fastaudit_rs.v02 import audit_state, mk_audit
"""
        command = [peers.python(), "-c", prelude + textwrap.dedent(code)]
        done = programs.run(command, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines(), done.stderr

    return run


def test_names_are_read_and_nothing_is_imported(run):
    printed, _ = run(
        """
        state = audit_state()
        print("safe_and_missing._rust" in state["safe_native"], state["safe_native"].count("numpy"))
        print(state["import_allow"])
        print("safe_and_missing" in sys.modules, "declared_import" in sys.modules)
        print([name for name in sys.modules if name.split(".")[0] == "fastaudit"])
        """
    )
    assert printed == ["True 1", "('declared_import',)", "False False", "[]"]


def test_an_import_that_is_declared(run):
    printed, _ = run(
        """
        with mk_audit([])():
            import declared_import
        print("imported")
        """
    )
    assert printed == ["imported"]


def test_an_audit_hook_is_asked_first(run):
    printed, _ = run(
        """
        before_deny = lambda event, *_: print("before_deny", event)
        with mk_audit([], before_deny, data="data")():
            sys.audit("declared.event")
            try:
                sys.audit("other.event")
            except AuditDenied as error:
                print("denied", error.event)
        """
    )
    assert printed == ["before_deny other.event", "denied other.event"]


def test_hooks_are_asked_first(run):
    printed, _ = run(
        """
        import declared_hooks, numpy, orjson
        from markupsafe import _speedups as native
        on_call = lambda caller, callee, *_: print("on_call", callee)
        before_deny = lambda event, *_: print("before_deny", event)
        with mk_audit([], before_deny, on_call, data="data")():
            orjson.loads(b"[1]")
            numpy.arange(3).sum()
            print(declared_hooks.asked)
            try:
                native._escape_inner("x")
            except AuditDenied as error:
                print("denied", error.event, error.callee)
        print(declared_hooks.asked)
        """
    )
    callee = "markupsafe._speedups._escape_inner"
    assert printed == [
        "[]",
        f"on_call {callee}",
        "before_deny fastaudit.call",
        f"denied fastaudit.call {callee}",
        f"[({callee!r}, 'data', ())]",
    ]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="it answers sys.monitoring.DISABLE")
def test_what_they_answer_holds(run):
    printed, _ = run(
        """
        import declared_hooks
        from markupsafe import _speedups as native
        on_call = lambda *_: print("on_call")
        for data in ("suppress", "switch off"):
            with mk_audit([], on_call=on_call, data=data)():
                for _ in range(3):
                    native._escape_inner("x")
            print(len(declared_hooks.asked))
        """
    )
    assert printed == ["3", "4"]


def test_hooks_that_are_of_no_use_are_told_of(run):
    _, warned = run("mk_audit([])")
    watching = (
        ("declared_hooks:no_such_function", "AttributeError"),
        ("declared_hooks:takes_one", "TypeError: on_call must take the arguments"),
    )
    for name, why in (*watching, ("no_such_module:before_deny", "ModuleNotFoundError")):
        assert f"RuntimeWarning: fastaudit_rs ignores '{name}'" in warned
        assert f": {why}" in warned
    assert "lxml_monitor" not in warned
