"""The line of a syntax error in text: CPython looks for a file of the text's name."""

import ast
import os
import sys

import pytest

from fastaudit_rs import AuditDenied, Policy


@pytest.fixture
def policy(tmp_path, monkeypatch):
    """A policy that lets nothing be read in the current directory."""
    monkeypatch.chdir(tmp_path)
    return Policy(read=[])


def test_a_syntax_error_in_text_is_no_violation(policy):
    with policy.guard(monitor_calls=False)() as guard:
        for run in (ast.parse, exec):
            with pytest.raises(SyntaxError):
                run("x = (")
        with pytest.raises(SyntaxError):
            compile("x = (", "<step 1>", "exec")
    assert guard.violations == []


def test_a_file_of_that_name_is_not_read(policy, tmp_path):
    (tmp_path / "<unknown>").write_text("x = (the_secret\n")
    with policy.guard(monitor_calls=False)() as guard:
        with pytest.raises(SyntaxError) as raised:
            ast.parse("x = (")
        with pytest.raises(AuditDenied):
            open("<unknown>")
    assert "secret" not in str(raised.value.text)
    assert [denied.path for denied in guard.violations] == ["<unknown>"] * 2


#: Before 3.12 Python looks for a source in each directory of `sys.path`.
BELOW = ["a/<unknown>", "/<unknown>"] if sys.version_info >= (3, 12) else []


@pytest.mark.parametrize("name", ["unknown", "<unknown", *BELOW, "<a/b>"])
def test_other_names_are_denied(policy, name):
    with policy.guard(monitor_calls=False)():
        with pytest.raises(AuditDenied):
            open(name)


def test_nothing_is_made_by_such_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Policy(read=[]).guard(monitor_calls=False)():
        for mode in ("w", "x", "a", "r+"):
            with pytest.raises(AuditDenied):
                open("<unknown>", mode)
        with pytest.raises(AuditDenied):
            os.open("<unknown>", os.O_RDONLY | os.O_CREAT)
    assert os.listdir(tmp_path) == []
