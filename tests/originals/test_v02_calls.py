"""Native calls under the rules of fastaudit 0.2, beside those that fastaudit 0.2.10 sees."""

import json
import sys

import peers
import programs
import pytest
from repository import SUPPORT

if sys.version_info < (3, 12):
    pytest.skip("the other side needs sys.monitoring", allow_module_level=True)

WORKER = SUPPORT / "calls_worker.py"
AS_FASTAUDIT = ["-m", "fastaudit_rs.as_fastaudit"]


@pytest.fixture
def ask(tmp_path):
    """`ask(case, package)`: what the worker answers."""

    def ask(case, package="fastaudit_rs"):
        options = AS_FASTAUDIT if package == "fastaudit_rs" else []
        command = [peers.python(), *options, WORKER, case, *options]
        environment = peers.environment(tmp_path)
        done = programs.run(command, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        module, answer = json.loads(done.stdout)
        assert module.partition(".")[0] == package
        return answer

    return ask


NATIVE = "markupsafe._speedups._escape_inner"

# Ours sees native code also as it is handed to what will call it, and a wrapper of Python code is
# no native call itself; `f.__call__()` is a call of `f`.
SEEN = {
    "partial": [NATIVE] * 2,
    "nested partial": [NATIVE] * 3,
    "wrapped": [NATIVE],
    "by its __call__": [NATIVE],
}


@pytest.mark.slow
def test_names_are_those_of_the_original(ask):
    original, ours = ask("names", "fastaudit"), ask("names")
    assert original["a function"] == [NATIVE]
    for name, asked in original.items():
        assert ours[name] == SEEN.get(name, asked), name


@pytest.mark.slow
def test_denials_are_those_of_the_original(ask):
    original, ours = ask("denied_names", "fastaudit"), ask("denied_names")
    assert NATIVE in original["partial"]
    for name, told in original.items():
        if name == "by its __call__":
            assert told is None and NATIVE in ours[name]
            continue
        if name == "wrapped":
            # The wrapper is the caller.
            told = told.replace("'__main__.<lambda>'", "'__main__.wrapping.<locals>.wrapper'")
        assert ours[name] == told, name


@pytest.mark.slow
def test_no_callee_blinds_a_call_site(ask):
    assert ask("one_site") == ["ran"] * 4 + ["denied"]
    assert ask("one_site", "fastaudit") == ["ran"] * 5


def test_what_is_remembered_as_safe_is_safe_alone(ask):
    each = ["ran", "ran", "denied", "denied"]
    assert ask("after_a_safe_call") == [*each, *each, *each, "denied", "ran", "ran"]


def test_a_host_may_switch_a_site_off_for_its_guard(ask):
    assert ask("after_a_disable") == [NATIVE] * 2


@pytest.mark.nightly
def test_first_imports_pass(ask):
    assert ask("first_import") == dict.fromkeys(
        ["ctypes", "numpy", "pandas", "matplotlib.pyplot", "asyncio"], True
    )
    denied = [
        name for name, passes in ask("first_import", "fastaudit").items() if passes is not True
    ]
    # Since 3.14 importing ctypes raises fewer events.
    assert denied[-1] == "matplotlib.pyplot"


@pytest.mark.slow
def test_what_was_imported_is_watched(ask):
    first, second = ask("ctypes_after_import")
    assert first == "Audit: ctypes.dlopen"
    # Since 3.14 it is a call of a function.
    called = ("ctypes.call_function", "fastaudit.call")
    assert second in ("Audit: ctypes.string_at", *(f"Audit: {event}" for event in called))
