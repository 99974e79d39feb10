"""A Python that cannot watch calls (before 3.12): the default does without and says so once."""

import sys

import programs
import pytest

WATCHES = sys.version_info >= (3, 12)
SINCE_3_12 = pytest.mark.skipif(WATCHES, reason="has sys.monitoring")

IMPORTS = """
import os, warnings
from fastaudit_rs import Policy, mk_audit, v02
"""

# Each makes a guard, and says nothing of calls.
DEFAULTS = {
    "mk_audit": "mk_audit([])",
    "mk_audit-0.2": "mk_audit([], rules='0.2')",
    "v02": "v02.mk_audit([])",
    "tool_id": "mk_audit([], tool_id=4)",
    "guard": "Policy().guard()",
    "observe": "Policy().observe(enforce=True)",
}


@pytest.fixture
def run(tmp_path):
    """`run(code, *options)`: what a program of its own printed, and its lines of `stderr`."""

    def run(code, *options):
        file = tmp_path / "program.py"
        file.write_text(IMPORTS + code)
        done = programs.python(*options, str(file))
        assert done.returncode == 0, done.stderr
        return done.stdout.split(), done.stderr.splitlines()

    return run


def expected(line):
    """The warning about a call of `mk_audit` in a line of the program, and its text."""
    return (
        f"program.py:{line}: RuntimeWarning: Python 3.{sys.version_info.minor} cannot watch calls, "
        "3.12 and newer can: under a guard native code is called unseen. "
        "monitor_calls=False says that you know."
    )


@pytest.mark.parametrize("make", DEFAULTS.values(), ids=DEFAULTS)
def test_the_default_holds_without_and_says_so_once(run, make):
    printed, told = run(
        f"""
def make():
    return {make}
for perms in (make(), make()):
    with perms():
        try:
            os.mkdir("made")
        except PermissionError:
            print("stopped")
""",
        "-Walways",
    )
    assert printed == ["stopped", "stopped"]
    if WATCHES:
        assert told == []
    else:
        assert [told[0].rpartition("/")[2], *told[1:]] == [expected(6), f"  return {make}"]


def test_so_it_is_for_the_whole_process(run):
    code = 'Policy(write=["."]).install()\ntry: os.mkdir("/nowhere/made")\n'
    code += 'except PermissionError: print("stopped")\n'
    printed, told = run(code)
    assert printed == ["stopped"]
    assert len(told) == (0 if WATCHES else 2)


@pytest.mark.parametrize(
    "make",
    [
        "mk_audit([], monitor_calls=False)",
        "v02.mk_audit([], monitor_calls=False)",
        "Policy().guard(monitor_calls=False)",
        # Nothing would be watched anyway.
        "Policy(native=True).guard()",
    ],
)
def test_where_nothing_is_missed_nothing_is_told(run, make):
    assert run(make, "-Walways") == ([], [])


@SINCE_3_12
@pytest.mark.parametrize(
    ("make", "argument"),
    [
        ("mk_audit([], {})", "monitor_calls=True"),
        ("mk_audit([], {})", "retire_sites=True"),
        ("mk_audit([], {}=print)", "on_call"),
        ("v02.mk_audit([], {})", "monitor_calls=True"),
        ("v02.mk_audit([], {}=print)", "on_call"),
        ("Policy().guard({})", "monitor_calls=True"),
        ("Policy().guard({}=print)", "on_call"),
        ("Policy().observe({})", "monitor_calls=True"),
        ("Policy().install({})", "monitor_calls=True"),
    ],
)
def test_who_asks_for_it_gets_an_error(run, make, argument):
    code = f"try: {make.format(argument)}\nexcept RuntimeError as error: print(*error.args)\n"
    printed, told = run(code, "-Walways")
    assert " ".join(printed) == f"{argument} requires Python 3.12+ sys.monitoring"
    assert told == []


@SINCE_3_12
def test_a_warning_that_is_an_error_is_one_each_time(run):
    """And until somebody hears of it, it counts as not told."""
    code = """
for _ in range(2):
    try: mk_audit([])
    except RuntimeWarning: print("error")
warnings.simplefilter("always")
mk_audit([])
mk_audit([])
"""
    printed, told = run(code, "-Werror::RuntimeWarning")
    assert printed == ["error", "error"]
    assert len(told) == 2


# Guards of the package's own that do without watching where they have to: their docs say so.
OWN = {
    "guarded": "from fastaudit_rs import guarded\n@guarded(Policy())\ndef f(): pass\nf()",
    "run": "from fastaudit_rs.tools.cli import main\nmain(['run', '-c', 'pass'])",
    "trace": "from fastaudit_rs.tools.cli import main\nmain(['trace', '-c', 'pass'])",
    "pytest": "import pytest\npytest.main(['--audit=raise', '-qs', __file__])\ndef test(): pass",
    "notebook": """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "fastaudit_rs")
for line in "%%audit", "%%audit", "%audit on", "pass":
    assert shell.run_cell(line + "\\npass").success
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_what_guards_by_itself_warns_of_nothing(run, name, monkeypatch, tmp_path):
    if name == "notebook":
        pytest.importorskip("IPython")
        monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    printed, told = run(OWN[name], "-Wdefault", "-Werror::RuntimeWarning")
    assert "RuntimeWarning" not in " ".join(printed + told)
