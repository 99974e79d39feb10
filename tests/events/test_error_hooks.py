"""Exceptions that nobody can catch: Python's hook tells of them, and no denial hides them."""

import _thread
import sys
import threading

import pytest
from programs import printed

from fastaudit_rs import Policy, mk_audit

PRESETS = [*Policy.PRESETS, None]


def policy_of(preset):
    return Policy() if preset is None else Policy.preset(preset)


@pytest.fixture(autouse=True)
def own_hooks(monkeypatch):
    """Python's own, not those of pytest."""
    for name in ("unraisablehook", "excepthook"):
        monkeypatch.setattr(sys, name, getattr(sys, f"__{name}__"))


#: An object whose end fails, and one whose weak reference has a callback that does.
DROP = """
import weakref

class Fails:
    def __del__(self):
        raise ValueError("as it goes")

class Plain:
    pass

def fail(reference):
    raise ValueError("as it goes")

one, other = Fails(), Plain()
reference = weakref.ref(other, fail)
del one, other
"""


def drop():
    exec(compile(DROP, "<guest>", "exec"), {})


@pytest.mark.parametrize("preset", PRESETS)
def test_pythons_own_is_called(preset, capsys):
    with policy_of(preset).guard(monitor_calls=False)() as guard:
        drop()
    told = capsys.readouterr().err
    assert told.count("ValueError: as it goes") == 2
    assert "Audit" not in told
    assert not guard.violations


def test_in_a_thread_of_its_own(capsys):
    ended = threading.Event()

    class Ends:
        def __del__(self):
            ended.set()

    def run(_ends):
        raise ValueError("as it goes")

    with Policy(threads="inherit").guard(monitor_calls=False)() as guard:
        _thread.start_new_thread(run, (Ends(),))
        # Without the interpreter's lock, what this thread made ends as it runs.
        assert any(ended.wait(0.1) for _ in range(100))
        told = ""
        while "as it goes\n" not in told and not guard.violations:
            told += capsys.readouterr().err
    assert "Audit" not in told
    assert not guard.violations


def test_another_is_judged_by_what_it_does(tmp_path, monkeypatch):
    called = []

    def hook(told):
        called.append(str(told.exc_value))
        with open(tmp_path / "a", "w"):
            pass

    monkeypatch.setattr(sys, "unraisablehook", hook)
    with Policy().guard(monitor_calls=False)() as guard:
        drop()
    assert called == ["as it goes"] * 2
    assert not (tmp_path / "a").exists()
    assert {denied.event for denied in guard.violations} == {"open"}


@pytest.mark.parametrize("name", ["excepthook", "unraisablehook"])
def test_native_code_is_denied(name, monkeypatch):
    orjson = pytest.importorskip("orjson")
    monkeypatch.setattr(sys, name, orjson.dumps)
    with Policy().guard()() as guard, pytest.raises(PermissionError):
        sys.audit(f"sys.{name}", orjson.dumps, ValueError("x"))
    assert [denied.event for denied in guard.violations] == [f"sys.{name}"]


def test_fastaudit_denies_it(capsys):
    with mk_audit(["."], monitor_calls=False)() as guard:
        drop()
    assert [denied.event for denied in guard.violations] == ["sys.unraisablehook"] * 2
    capsys.readouterr()


def test_what_the_package_needs_to_judge_it_is_imported_before():
    """`atexit` is: a policy that lets code import little denies it to the guard as well."""
    code = """
    import sys
    from fastaudit_rs import AuditDenied, Policy
    make = Policy(imports=["json"]).guard(monitor_calls=False)
    sys.modules.pop("atexit", None)
    with make():
        try:
            sys.audit("sys.unraisablehook", (), ValueError("x"))
        except AuditDenied as denied:
            print(denied.event)
    """
    assert printed(code) == ""
