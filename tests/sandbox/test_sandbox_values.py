"""The value and the exit status of a run, also those that cannot be told as they are."""

import signal
import sys
import textwrap

import pytest

from fastaudit_rs import Limits, Policy, Sandbox


@pytest.fixture(scope="module")
def plain():
    with Sandbox(Policy(), Limits(wall_seconds=20)) as made:
        yield made


#: What a program exits with, and its status.
STATUSES = {
    "2**70": 255,
    "-2**70": 255,
    "300": 44,
    "3": 3,
    "-1": 255,
    "256": 0,
    "True": 1,
    "None": 0,
    "'text'": 1,
}


@pytest.mark.parametrize("code", STATUSES)
def test_statuses(plain, code):
    """They are those of the interpreter, and no violation or exception."""
    ran = plain.run(f"raise SystemExit({code})")
    assert (ran.returncode, ran.killed_by) == (STATUSES[code], None)
    assert (ran.violations, ran.error) == ([], None)
    assert ran.stderr == ("text\n" if "text" in code else "")


def test_the_status_of_a_signal(shared):
    ran = shared.run("import subprocess; subprocess.run(['sh', '-c', 'kill -ABRT $PPID'])")
    assert (ran.returncode, ran.success, ran.killed_by) == (-signal.SIGABRT, False, None)
    assert ran.stderr == ""


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("x = 2\nx * 21", 42),
        ("{'a': [1, None, True]}", {"a": [1, None, True]}),
        ("object", "<class 'object'>"),
        ("x = 1", None),
        ("", None),
        ("None", None),
        ("float('nan') != 0", True),
        ("'x' * (15 << 20)", "x" * (15 << 20)),
    ],
    ids=range(8),
)
def test_values(plain, code, value):
    ran = plain.run(code, value=True)
    assert (ran.value, ran.value_error, ran.success) == (value, None, True)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("'x' * (17 << 20)", "too large: 17.0 MB of JSON, of at most 16 MB"),
        ("[1] * (8 << 20)", "too large: 24.0 MB"),
        ("10**5000", "ValueError: Exceeds the limit"),
        ("[10**5000]", "ValueError: Exceeds the limit"),
        ("class A:\n    def __repr__(self): raise KeyError('no')\nA()", "KeyError: 'no'"),
        ("class A:\n    def __repr__(self): raise SystemExit(3)\nA()", "SystemExit: 3"),
        ("class A:\n    def __repr__(self): return 3\nA()", "TypeError: __repr__ returned"),
    ],
)
@pytest.mark.slow
def test_values_that_cannot_be_told(plain, code, says):
    """The run is as it was without them."""
    if "**" in code and "limit" in says and not hasattr(sys, "set_int_max_str_digits"):
        pytest.skip("this Python has no limit")
    ran = plain.run(code, value=True)
    assert (ran.returncode, ran.value, ran.success) == (0, None, True), ran.stderr
    assert says in str(ran.value_error)
    assert (ran.stderr, ran.violations) == ("", [])


@pytest.mark.slow
def test_a_report_that_is_cut_off(shared):
    """A run may write more to its report than is read of it; a value is missing then."""
    code = """
        import os
        for number in range(3, 20):
            try:
                os.write(number, b"x" * (17 << 20) + bytes([10]))
            except OSError:
                pass
        7
    """
    ran = shared.run(textwrap.dedent(code), value=True)
    assert (ran.value, ran.value_error) == (None, "its report is longer than 16 MB")


@pytest.mark.parametrize(
    ("code", "kind", "message", "line"),
    [
        ("x = 1\n1 / 0", "ZeroDivisionError", "division by zero", 2),
        ("def f():\n    raise KeyError('a')\n\nf()", "KeyError", "'a'", 2),
        ("import json\njson.loads('{')", "json.decoder.JSONDecodeError", "Expecting", 2),
        ("class A(Exception): pass\nraise A('b')", "A", "b", 2),
        ("a b", "SyntaxError", "invalid syntax", 1),
        ("open('/etc/x', 'w')", "fastaudit_rs.AuditDenied", "Denied: open the file '/etc/x'", 1),
    ],
)
def test_the_exception_that_ended_a_run(plain, code, kind, message, line):
    """As data; its text is that of standard error."""
    ran = plain.run(code)
    assert (ran.error.kind, ran.error.line) == (kind, line)
    assert ran.error.message.startswith(message)
    assert ran.error.traceback == ran.stderr and "sandbox_worker" not in ran.stderr


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("class A(Exception):\n    def __str__(self): raise SystemExit(5)\nraise A", "A"),
        ("e = SyntaxError('m')\ne.text = object()\nraise e", "SyntaxError"),
        ("class A(Exception):\n    __cause__ = __traceback__ = 5\nraise A", "A"),
        ("import traceback\ntraceback.format_exception = None\nraise KeyError", "KeyError"),
        ("import sys\nsys.stderr.close()\nraise KeyError", "KeyError"),
        ("import sys\nsys.stderr = None\nraise KeyError", "KeyError"),
    ],
)
def test_an_exception_that_cannot_be_shown(plain, code, kind):
    ran = plain.run(code)
    assert (ran.returncode, ran.error.kind) == (1, kind)
    assert kind in ran.error.traceback


@pytest.mark.parametrize("child", ["raise ValueError", "raise SystemExit(3)", "'child'", "a b c"])
def test_a_copy_of_the_process(plain, child):
    """Its value and its exception are not those of the run; its denials are."""
    code = f"""
        import os
        pid = os.fork()
        if not pid:
            try:
                open("/srv/x", "w")
            except PermissionError:
                eval(compile({child!r}, "", "single"))
        os.waitpid(pid, 0) if pid else None
        "parent" if pid else "child"
    """
    ran = plain.run(textwrap.dedent(code), value=True)
    assert (ran.returncode, ran.error, ran.value) == (0, None, "parent")
    assert [denied.path for denied in ran.violations] == ["/srv/x"]


def test_a_program_that_closes_all_descriptors(plain):
    """As a daemon does: that of its report is among them."""
    ran = plain.run("import os\nos.closerange(3, 256)\nprint('done')\n1", value=True)
    assert (ran.success, ran.stdout, ran.stderr, ran.value) == (True, "done\n", "", None)
