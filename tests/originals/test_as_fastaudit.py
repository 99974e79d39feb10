"""`install_as_fastaudit`: third-party code that imports `fastaudit` gets this package."""

import re
import sys

import peers
import programs
import pytest
from repository import ROOT

PROGRAM = """
import sys
import fastaudit
import fastaudit.core
from fastaudit import *
from fastaudit.core import mk_audit as same

assert mk_audit is same is fastaudit.mk_audit
print(sys.argv[1:], __name__, mk_audit.__module__, fastaudit.__name__)
audit_perms = mk_audit([], monitor_calls=False)
try:
    with audit_perms():
        sys.audit("somelib.event")
    print("passed")
except PermissionError as error:
    print(error.args[0])
"""


@pytest.fixture
def release():
    """The fastaudit that is installed, where a test does not say another one."""
    return "0.2.10"


RULES_01 = ["passed"]
RULES_02 = ["Audit: somelib.event blocked in sandbox with args: ()"]


def install(directory, version):
    """The distribution that `importlib.metadata` finds first there, whatever is installed."""
    information = directory / f"fastaudit-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: fastaudit\nVersion: {version}\n"
    )


@pytest.fixture
def run(tmp_path, release):
    """`run(*options)`: runs this interpreter; what came of it."""
    install(tmp_path, release)

    def run(*options, python=sys.executable, **variables):
        environment = peers.environment(tmp_path, **variables)
        command = [python, *map(str, options)]
        return programs.run(command, env=environment, cwd=tmp_path)

    return run


def printed(done):
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("version", "package", "told"), [("", ".v02", RULES_02), ("'0.1'", "", RULES_01)]
)
def test_in_a_process(run, version, package, told):
    code = f"import fastaudit_rs; fastaudit_rs.install_as_fastaudit({version})\n{PROGRAM}"
    lines = printed(run("-c", code))
    assert lines == [f"[] __main__ fastaudit_rs._native fastaudit_rs{package}", *told]


def test_submodules(run):
    lines = printed(
        run(
            "-c",
            "from fastaudit_rs import install_as_fastaudit as install, v02\n"
            "install(); install(version='0.2')\n"
            "import fastaudit.hooks, fastaudit.core\n"
            "print(fastaudit.core is v02.core, fastaudit.hooks.lxml_monitor)\n"
            "print(fastaudit.__version__)\n"
            "from fastaudit.core import track_call, active_calls, CallTracker, TrackedCall\n"
            "from fastaudit.core import audit_state\n"
            "import sys\n"
            "print([name for name in sys.modules if name.startswith('fastaudit.')])\n"
            "try: import fastaudit.other\n"
            "except ModuleNotFoundError as error: print(error)\n",
        )
    )
    assert lines[0] == "True <built-in function _lxml_monitor>"
    assert lines[1] == "0.2.10"
    assert lines[2] == "['fastaudit.core', 'fastaudit.hooks']"
    assert lines[3] == "No module named 'fastaudit.other'"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "error"),
    [
        (
            "import fastaudit",
            "RuntimeError: fastaudit.* was imported before (.*/fastaudit/.*.py), and what",
        ),
        ("import fastaudit.core", "RuntimeError: fastaudit.* was imported before "),
        (
            "import fastaudit_rs; fastaudit_rs.install_as_fastaudit('0.1')",
            "RuntimeError: fastaudit_rs was installed as another version of fastaudit before, "
            "not as 0.2",
        ),
    ],
)
def test_what_comes_too_late(run, before, error):
    code = f"{before}\nimport fastaudit_rs, sys\nbefore = dict(sys.modules)\n"
    code += "try: fastaudit_rs.install_as_fastaudit()\n"
    code += "finally: print([n for n in before if n in ('fastaudit', 'fastaudit.core') and "
    code += "sys.modules[n] is not before[n]])\n"
    done = run("-c", code, python=peers.python())
    assert done.returncode == 1
    assert done.stdout == "[]\n"
    assert re.match(error.replace("(", r"\(").replace(")", r"\)"), done.stderr.splitlines()[-1])


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (0.2, (TypeError, "version must be '0.1' or '0.2', not float")),
        ("0.3", (ValueError, "version must be '0.1' or '0.2', not '0.3'")),
    ],
)
def test_versions_that_there_are_not(version, error):
    from fastaudit_rs import install_as_fastaudit

    kind, message = error
    with pytest.raises(kind) as raised:
        install_as_fastaudit(version)
    assert str(raised.value) == message
    assert "fastaudit" not in sys.modules or not sys.modules["fastaudit"].__name__.endswith("v02")


RELEASES = [
    ("0.2.10", "0.2", "fastaudit_rs.v02", RULES_02),
    ("0.1.0", "0.1", "fastaudit_rs", RULES_01),
    ("0.3.1", "0.2", "fastaudit_rs.v02", RULES_02),
]


@pytest.mark.slow
@pytest.mark.parametrize(("release", "version", "package", "told"), RELEASES)
def test_it_stands_in_for_what_is_installed_and_says_so(run, release, version, package, told):
    done = run("-m", "fastaudit_rs.as_fastaudit", "-c", PROGRAM)
    assert printed(done) == [f"[] __main__ fastaudit_rs._native {package}", *told]
    says = f"fastaudit_rs: stands in for fastaudit {version}, as {release} is installed\n"
    assert done.stderr == says
    code = "import fastaudit_rs; print(fastaudit_rs.install_as_fastaudit())\n" + PROGRAM
    assert printed(run("-c", code)) == [version, *printed(done)]
    chosen = run("-m", "fastaudit_rs.as_fastaudit", "--version", version, "-c", PROGRAM)
    assert (printed(chosen), chosen.stderr) == (printed(done), "")


def test_where_none_is_installed(run):
    code = """
import sys
import fastaudit_rs.as_fastaudit
sys.path[:] = [path for path in sys.path if path.endswith(("lib-dynload", ".zip"))]
sys.path += [sys.base_prefix + "/lib/python{}.{}".format(*sys.version_info)]
fastaudit_rs.as_fastaudit._main(["-c", "import fastaudit; print(fastaudit.__name__)"])
"""
    done = run("-c", code)
    assert printed(done) == ["fastaudit_rs.v02"]
    says = "fastaudit_rs: stands in for fastaudit 0.2, as no fastaudit is installed\n"
    assert done.stderr == says


def test_who_comes_from_todays_release_is_sent_to_its_rules_first():
    text = (ROOT / "docs/compatibility.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| of 0.")]
    assert [re.findall(r"`from fastaudit_rs(.*) import mk_audit`", row) for row in rows] == [
        [".v02"],
        [""],
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "told"), [([], RULES_02), (["--version", "0.1"], RULES_01)])
def test_programs_that_cannot_be_changed(run, tmp_path, options, told):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = ["-m", "fastaudit_rs.as_fastaudit", *options]
    package = "fastaudit_rs" if options else "fastaudit_rs.v02"
    for program in (["-m", "program"], ["program.py"], ["-c", PROGRAM]):
        lines = printed(run(*command, *program, "-x", "y"))
        assert lines == [f"['-x', 'y'] __main__ fastaudit_rs._native {package}", *told]


def test_programs_run_as_python_runs_them(run, tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below/helper.py").write_text("")
    (tmp_path / "below/program.py").write_text(
        "import helper, sys\nprint(__file__, sys.argv)\nsys.exit(7)\n"
    )
    (tmp_path / "raises.py").write_text("1 / 0\n")
    done = run("-m", "fastaudit_rs.as_fastaudit", "below/program.py", "a")
    assert done.returncode == 7
    assert done.stdout == f"{tmp_path}/below/program.py ['below/program.py', 'a']\n"
    done = run("-m", "fastaudit_rs.as_fastaudit", "raises.py")
    assert done.returncode == 1
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "a module, code or a file is missing"),
        (["-m"], "a module, code or a file is missing"),
        (["--version"], "--version takes 0.1 or 0.2"),
        (["--version", "1"], "--version takes 0.1 or 0.2"),
        (["--other"], "unknown option --other"),
    ],
)
def test_wrong_command_lines(run, options, told):
    done = run("-m", "fastaudit_rs.as_fastaudit", *options)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m fastaudit_rs.as_fastaudit ")
    assert done.stderr.endswith(f"error: {told}\n")


def test_help(run):
    lines = printed(run("-m", "fastaudit_rs.as_fastaudit", "--help"))
    assert lines[0].startswith("usage: python -m fastaudit_rs.as_fastaudit ")
