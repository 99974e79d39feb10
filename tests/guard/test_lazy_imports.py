"""Lazy imports of guarded code are eager, and judged as they are made (PEP 810)."""

import sys

import pytest

from fastaudit_rs import AuditDenied, Policy

pytestmark = pytest.mark.skipif(sys.version_info < (3, 15), reason="no lazy imports")

FORMS = [
    "lazy import guest_module",
    "lazy from guest_module import VALUE",
    "__lazy_modules__ = ['guest_module']\nimport guest_module",
    "import builtins\n__lazy_import__('guest_module', globals())",
]


@pytest.fixture
def guest(tmp_path, monkeypatch):
    """A module that writes a file outside of its root as it is imported; the file."""
    root, target = tmp_path / "root", tmp_path / "target"
    root.mkdir()
    (root / "guest_module.py").write_text(f"open({str(target)!r}, 'w').close()\nVALUE = 1\n")
    monkeypatch.syspath_prepend(root)
    yield target
    sys.modules.pop("guest_module", None)


def guard(path):
    return Policy(write=[path / "root"]).guard(monitor_calls=False)()


@pytest.mark.parametrize("form", FORMS)
def test_a_name_that_is_used_after_the_guard(form, guest, tmp_path):
    names = {}
    with guard(tmp_path), pytest.raises(AuditDenied):
        exec(form, names)
    assert "guest_module" not in names
    assert not guest.exists()


def test_another_mode(guest, tmp_path):
    before = sys.get_lazy_imports()
    try:
        with guard(tmp_path), pytest.raises(AuditDenied):
            exec("import sys\nsys.set_lazy_imports('all')\nimport guest_module", {})
    finally:
        sys.set_lazy_imports(before)
    assert not guest.exists()


def test_the_filter_is_kept(guest, tmp_path):
    code = "import sys\nsys.set_lazy_imports_filter(lambda *given: True)"
    # That of a guard, where another test left one in force.
    before = sys.get_lazy_imports_filter()
    with guard(tmp_path), pytest.raises(AuditDenied, match="sys.set_lazy_imports_filter"):
        exec(code, {})
    # A function of the code's own in its place does nothing either.
    asked = []
    real = sys.set_lazy_imports_filter
    try:
        with guard(tmp_path):
            sys.set_lazy_imports_filter = asked.append
    finally:
        sys.set_lazy_imports_filter = real
    assert asked == []
    assert sys.get_lazy_imports_filter() is before


def test_the_filter_of_the_host_is_asked_and_comes_back(tmp_path):
    asked = []

    def allow(importer, name, names):
        asked.append(name)
        return True

    sys.set_lazy_imports_filter(allow)
    try:
        nested = Policy(write=[tmp_path / "root"]).guard(monitor_calls=False)
        with nested(), nested():
            # Code of an installed package, as far as its name says.
            exec(compile("lazy import wave", pytest.__file__, "exec"), {})
        assert sys.get_lazy_imports_filter() is allow
        exec("lazy import sched", {})
    finally:
        sys.set_lazy_imports_filter(None)
    assert asked == ["wave", "sched"]


def test_those_of_the_host_stay_lazy(tmp_path):
    with guard(tmp_path):
        pass
    exec("lazy import guest_module_that_is_not_there", {})
