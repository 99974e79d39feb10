"""The pytest plugin, in runs of pytest of its own."""

import re
import sys
import textwrap
from functools import partial

import programs
import pytest
from pytest_runs import without_others
from repository import ROOT

PAGE = ROOT / "docs" / "pytest.md"


REACHES = """
def test_inside(tmp_path):
    (tmp_path / "a").write_text("x")

def test_outside():
    open(OUT + "/a", "w").close()

def test_swallowed():
    try:
        os.mkdir(OUT + "/b")
    except OSError:
        pass
"""


@pytest.mark.slow
def test_idle(run, out):
    result = run(REACHES)
    result.assert_outcomes(passed=3)
    assert "= audit =" not in result.stdout.str()


@pytest.mark.slow
def test_bad_fields_of_the_fixture(run):
    result = run("def test_a(audit_perms):\n    audit_perms(wirte=[])")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*TypeError*wirte*"])


class TestMarker:
    def test_a_test_that_swallows_a_denial_is_told(self, run):
        result = run("""
from fastaudit_rs import AuditDenied

@pytest.mark.audit
def test_swallows():
    try:
        os.mkdir(OUT + "/a")
    except OSError:
        pass

@pytest.mark.audit
def test_expects():
    with pytest.raises(AuditDenied):
        os.mkdir(OUT + "/a")
""")
        result.assert_outcomes(passed=2, warnings=1)
        result.stdout.fnmatch_lines(["*PytestWarning: passed in spite of a denial: os.mkdir *"])

    def test_a_preset(self, run):
        result = run("""
@pytest.mark.audit("readonly")
def test_a():
    os.mkdir("a")
""")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["*AuditDenied: Denied: make the directory 'a'*"])

    def test_wrong_fields(self, run):
        result = run("""
@pytest.mark.audit(wirte=["."])
def test_a():
    pass
""")
        result.assert_outcomes(failed=1)
        shown = result.stdout.str()
        assert "@pytest.mark.audit: a policy has no field" in shown
        assert "During handling" not in shown
        assert "pytest_plugin.py" not in shown

    def test_the_hint_for_a_network_needs_no_import(self, run):
        test = """
@pytest.mark.audit
def test_a():
    import socket
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"", ("192.0.2.1", 9))
"""
        [hint, *_] = re.findall(r"To allow it: (@.*)", run(test, "--tb=short").stdout.str())
        assert "network={'hosts': [" in hint and "192.0.2.1:9" in hint
        result = run(test.replace("@pytest.mark.audit", hint), "--tb=short").stdout.str()
        assert "Denied" not in result and "NameError" not in result

    def test_the_hint_of_a_doctest_is_no_marker(self, pytester):
        pytester.makepyfile(module='def f():\n    """\n    >>> open(\'/srv/x\', \'w\')\n    """\n')
        ran = pytester.runpytest_subprocess(*without_others(), "--doctest-modules", "--audit=raise")
        ran.assert_outcomes(failed=1)
        ran.stdout.fnmatch_lines(["To allow it: write = */srv/x*"])
        assert "@pytest.mark" not in ran.stdout.str()

    def test_a_test(self, run):
        result = run("""
@pytest.mark.audit
def test_a(tmp_path):
    (tmp_path / "a").write_text("x")
    os.mkdir(OUT + "/a")

@pytest.mark.audit(write=[OUT], env=False)
def test_b(tmp_path):
    (tmp_path / "a").write_text("x")
    os.mkdir(OUT + "/a")
    os.environ["A"] = "B"

def test_c():
    os.mkdir(OUT + "/c")
""")
        result.assert_outcomes(passed=1, failed=2)
        result.stdout.fnmatch_lines(
            [
                "*AuditDenied: Denied: make the directory *",
                "*AuditDenied: Denied: set the environment *",
            ]
        )

    @pytest.mark.slow
    def test_a_policy(self, run):
        run("""
from fastaudit_rs import Policy

@pytest.mark.audit(Policy(write=[OUT]), env=True)
class TestAll:
    def test_a(self):
        os.mkdir(OUT + "/a")
        os.environ["A"] = "B"

    @pytest.mark.audit(False)
    def test_b(self):
        os.mkdir(os.path.dirname(OUT) + "/b")
""").assert_outcomes(passed=2)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "marker, error",
        [
            ("audit(1)", "takes a Policy, the name of a preset or of a TOML file, or False, not 1"),
            ("audit(None, None)", "takes one policy"),
            ("audit(wirte=1)", "wirte"),
            ("audit(write=1)", "write"),
        ],
    )
    def test_bad_ones(self, run, marker, error):
        result = run(f"@pytest.mark.{marker}\ndef test_a(): pass")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines([f"*@pytest.mark.audit: *{error}*"])


@pytest.mark.slow
class TestWholeRun:
    def test_record(self, run, out):
        result = run(REACHES, "--audit=record")
        result.assert_outcomes(passed=3)
        result.stdout.fnmatch_lines(
            [
                "*= audit =*",
                "test_it.py::test_outside",
                f"    open {out}/a, at test_it.py:*",
                "test_it.py::test_swallowed",
                f"    os.mkdir {out}/b, at test_it.py:*",
            ]
        )
        assert "test_inside" not in result.stdout.str()

    @pytest.mark.parametrize("mode", ["record", "raise"])
    def test_temporary_files(self, run, mode):
        code = """
        import tempfile
        def test_a():
            with tempfile.TemporaryDirectory() as place:
                open(place + "/a", "w").close()
                assert os.listdir(place) == ["a"]
            with tempfile.NamedTemporaryFile() as file, tempfile.TemporaryFile() as other:
                other.write(b"x")
                assert os.path.basename(os.path.dirname(file.name)).startswith("fastaudit_")
        def test_b():
            assert os.listdir(tempfile.gettempdir()) == []
        """
        result = run(textwrap.dedent(code), f"--audit={mode}")
        result.assert_outcomes(passed=2)
        assert "No test reached outside." in result.stdout.str()

    def test_raise(self, run, out):
        result = run(REACHES, "--audit=raise")
        result.assert_outcomes(passed=1, failed=2)
        result.stdout.fnmatch_lines(
            [
                "*AuditDenied: Denied: open the file *",
                f"reached outside: os.mkdir {out}/b, at test_it.py:*; "
                f"to allow it: @pytest.mark.audit(write=[[]'{out}/b'[]])",
                "*= audit =*",
                "test_it.py::test_outside",
                "test_it.py::test_swallowed",
            ]
        )

    def test_by_the_ini_file(self, run, pytester):
        pytester.makeini("[pytest]\naudit = raise")
        run(REACHES).assert_outcomes(passed=1, failed=2)
        run(REACHES, "--audit=off").assert_outcomes(passed=3)

    def test_bad_ini_values(self, run, pytester):
        pytester.makeini("[pytest]\naudit = rise")
        result = run(REACHES)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*'audit' is one of off, record, raise, not 'rise'*"])
        pytester.makeini("[pytest]\naudit_policy = missing.toml")
        result = run(REACHES)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*'audit_policy'*missing.toml*"])

    def test_a_policy_file(self, run, pytester, out):
        (pytester.path / "policy.toml").write_text(f'write = ["{out}"]\n')
        pytester.makeini("[pytest]\naudit = raise\naudit_policy = policy.toml")
        run(REACHES).assert_outcomes(passed=3)

    def test_marked_tests_have_their_own_guard(self, run):
        run(
            """
@pytest.mark.audit(False)
def test_a():
    os.mkdir(OUT + "/a")

@pytest.mark.audit(write=[OUT])
def test_b():
    os.mkdir(OUT + "/b")
""",
            "--audit=raise",
        ).assert_outcomes(passed=2)

    def test_modules_of_the_project_can_be_imported(self, run, pytester):
        """The import system keeps what it compiled beside them, or does without."""
        pytester.makepyfile(helper="VALUE = 1")
        run("def test_a():\n    import helper", "--audit=raise").assert_outcomes(passed=1)

    def test_ordinary_tests(self, run):
        run(
            """
import logging, socket, threading, warnings

def test_captured(capsys, caplog, recwarn, monkeypatch):
    print("x")
    assert capsys.readouterr().out == "x\\n"
    logging.warning("y")
    assert caplog.messages == ["y"]
    warnings.warn("z")
    monkeypatch.setenv("A", "B")

def test_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    open("a", "w").close()
    os.rename("a", "b")
    os.makedirs("c/d")

def test_threads():
    done = []
    thread = threading.Thread(target=done.append, args=(1,))
    thread.start()
    thread.join()
    assert done == [1]

def test_other_networks():
    with pytest.raises(PermissionError):
        socket.create_connection(("192.0.2.1", 80), 1)
""",
            "--audit=record",
        ).assert_outcomes(passed=3, failed=1)


@pytest.mark.slow
class TestOtherPlugins:
    def test_xdist(self, run, out):
        result = run(REACHES, "--audit=raise", "-n2", needs=["xdist"])
        result.assert_outcomes(passed=1, failed=2)
        result.stdout.fnmatch_lines(
            [
                "*= audit =*",
                "test_it.py::test_outside",
                f"    open {out}/a, at test_it.py:*",
                "*test_swallowed",
            ]
        )

    def test_coverage(self, run):
        result = run(
            REACHES, "--audit=raise", "--cov=test_it", "--cov-report=term", needs=["pytest_cov"]
        )
        result.assert_outcomes(passed=1, failed=2)
        result.stdout.fnmatch_lines(["test_it.py *100%"])

    def test_unittest(self, run):
        run(
            """
import unittest

class TestCase(unittest.TestCase):
    def test_a(self):
        self.assertEqual(os.path.basename("a/b"), "b")

    def test_b(self):
        os.mkdir(OUT + "/a")
""",
            "--audit=raise",
        ).assert_outcomes(passed=1, failed=1)

    def test_doctests(self, run):
        result = run(
            """
def inside():
    '''
    >>> 1 + 1
    2
    '''

def outside():
    '''
    >>> os.mkdir(OUT + "/a")
    '''
""",
            "--audit=raise",
            "--doctest-modules",
        )
        result.assert_outcomes(passed=1, failed=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"), [("notes", ["-q", "--tb=no"]), ("report", ["--audit=record"])]
)
def test_the_page(pytester, monkeypatch, name, options):
    """The page docs/pytest.md shows what is printed to a terminal of 80 columns."""
    for variable in ("CI", "BUILD_NUMBER"):  # There pytest does not shorten lines.
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    shown = re.findall(r"```python\n(# test_.*?)```.*?```text\n(.*?)```", PAGE.read_text(), re.S)
    ((code, output),) = [found for found in shown if found[0].startswith(f"# test_{name}.py")]
    pytester.makepyfile(**{f"test_{name}": code})
    lines = pytester.runpytest_subprocess(*without_others(), *options).outlines
    expected = output.splitlines()
    start = lines.index(expected[0])
    assert lines[start : start + len(expected)] == expected


@pytest.mark.slow
def test_the_baseline_of_the_page(pytester):
    text = PAGE.read_text()
    (code,) = re.findall(r"```python\n(# test_report.*?)```", text, re.S)
    (block,) = re.findall(r"```console\n(.*?)```", text, re.S)
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M)
    pytester.makepyfile(test_report=code)
    without_times = partial(re.sub, r"in \d+\.\d+s( \(\d+:\d+:\d+\))?", "")
    for command, shown in steps:
        command = command.replace("pytest", f"{sys.executable} -m pytest -p no:asyncio", 1)
        done = programs.run(command, shell=True, cwd=pytester.path, check=True)
        assert without_times(done.stdout) == without_times(shown)
    assert len(steps) == 3


class TestAroundATest:
    """What pytest and its plugins do is not the test's."""

    def test_what_hypothesis_and_the_cache_keep(self, run, pytester):
        code = """
from hypothesis import given, strategies

@given(strategies.text())
def test_texts(text):
    pass

def test_cache(cache):
    cache.set("a/b", 1)
    assert cache.get("a/b", 0) == 1

@pytest.mark.parametrize("place", [".hypothesis/../made", ".pytest_cache.txt"])
def test_others(place):
    os.mkdir(place)

def test_a_program():
    os.system(".hypothesis/; touch made")
"""
        options = ("--audit=raise", "-pcacheprovider")
        result = run(code, *options, needs=["hypothesispytest"])
        result.assert_outcomes(passed=2, failed=3)
        assert not (pytester.path / "made").exists()
        # Where a test may write is told without them.
        result.stdout.no_fnmatch_line("*: not in *.hypothesis*")
        result.stdout.no_fnmatch_line("*: not in *.pytest_cache*")
        result.stdout.fnmatch_lines(["E *: not in '*'"])

    def test_without_temporary_directories(self, run):
        for mode in ("record", "raise"):
            run("def test_a(): pass", f"--audit={mode}", "-pno:tmpdir").assert_outcomes(passed=1)

    def test_a_fixture_that_stands_in_for_what_a_guard_needs(self, run):
        code = """
import gc, sqlite3

@pytest.fixture(autouse=True)
def stands_in(monkeypatch):
    own = sqlite3.Connection.execute
    [attributes] = gc.get_referents(sqlite3.Connection.__dict__)
    monkeypatch.setitem(attributes, "execute", lambda *args: own(*args))

def test_a():
    sqlite3.connect(":memory:").execute("SELECT 1")
"""
        run(code, "--audit=raise").assert_outcomes(passed=1)
        run(code + "\ntest_a = pytest.mark.audit(test_a)").assert_outcomes(passed=1)
