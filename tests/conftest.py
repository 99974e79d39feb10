"""Fixtures of all tests: the implementation under test, and a directory tree to overreach in."""

import contextvars
import importlib
import os
import queue
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import cython_modules
import extras
import programs
import pytest
import pytest_runs
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# Hypothesis tries constants of the modules that are loaded: a test's examples would depend on the
# tests before it.
providers._get_local_constants = providers.Constants
# A busy machine makes no test fail.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is where a shell started the tests in the background, and then for all that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Programs that tests start print as they do for someone who set nothing.
os.environ.pop("PYTHONUNBUFFERED", None)
cython_modules.share_compiled()


def pytest_addoption(parser):
    parser.addoption(
        "--implementation",
        default="fastaudit_rs",
        choices=["fastaudit_rs", "fastaudit"],
        help="the package whose mk_audit is tested (the original, to see which tests it fails)",
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes long; `make test` leaves it out")
    config.addinivalue_line(
        "markers", "nightly: takes very long; `make test-full` leaves it out as well"
    )
    config.addinivalue_line(
        "markers",
        "once: does not depend on the version of Python, as most tests of some folders; "
        "`make test-all QUICK=1` leaves it out, `make test` and `make test-full` have it",
    )
    config.addinivalue_line(
        "markers",
        "alone: measures its process: it runs in one of its own, where no other test leaves "
        "threads or descriptors",
    )
    config.addinivalue_line(
        "markers",
        "one_side(side='events'): is about one way to watch calls; others run in each",
    )
    config.addinivalue_line(
        "markers",
        "holds(ring, promise): shows that this ring of a sandbox holds what docs/assurance.md "
        "promises; `make promises-page` makes a table of them",
    )
    config.addinivalue_line(
        "markers",
        "original_fails(since=None, until=None): the original fails this test, on the Python "
        "versions from `since` up to `until`; test_against_original.py sees to it that it does",
    )


#: Errors of pytest itself, in the order in which they came.
_internal_errors = []


def pytest_internalerror(excrepr):
    _internal_errors.append(str(excrepr))


def pytest_unconfigure(config):
    """Say once more what went wrong first: a log may keep its last lines alone."""
    if _internal_errors and not hasattr(config, "workerinput"):
        lines = _internal_errors[0].splitlines()
        print("\nThe first internal error ended with:", *lines[-20:], sep="\n", flush=True)


#: Folders whose tests do not depend on the version of Python, and their files that do.
ONCE = {"adapters", "pages", "sandbox", "tools"}
EACH = {
    "test_cli.py", "test_notebook.py", "test_pytest_plugin.py", "test_sandbox.py",
    "test_sandbox_program.py", "test_sandbox_session.py", "test_sandbox_values.py",
}  # fmt: skip


def pytest_itemcollected(item):
    if item.get_closest_marker("nightly"):
        item.add_marker("slow")
    if item.path.parent.name in ONCE and item.path.name not in EACH:
        item.add_marker("once")


def pytest_ignore_collect(collection_path, config):
    """Leave tests of the repository itself to `make lint`, which names them."""
    is_there = collection_path.name == "repository" and collection_path.is_dir()
    return True if is_there and not any("repository" in arg for arg in config.args) else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return skip_for_want_of_a_package((yield), str(collector.path))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return skip_for_want_of_a_package((yield), item.location[0])


def skip_for_want_of_a_package(report, path):
    """Make a failed report one that is skipped, if a package of an extra is missing."""
    package = extras.missing(str(report.longrepr)) if report.failed else None
    if package:
        report.outcome = "skipped"
        report.longrepr = (path, 0, f"Skipped: {package} is not installed")
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run each test in a context of its own: a guard that one leaves behind ends with it."""
    if pyfuncitem.get_closest_marker("alone") and ALONE not in os.environ:
        return run_alone(pyfuncitem)
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    contextvars.copy_context().run(pyfuncitem.obj, **arguments)
    return True


#: The variable that says to a run of pytest that its one test runs alone.
ALONE = "FASTAUDIT_RS_ALONE"


def run_alone(item):
    """Run a test in a run of pytest of its own; fail with what that printed."""
    config = item.config
    command = [sys.executable, "-m", "pytest", "-pno:cacheprovider", f"--rootdir={config.rootpath}"]
    command += pytest_runs.without_others()
    command += ["-c", str(config.inipath), f"{item.path}::{item.nodeid.partition('::')[2]}"]
    ran = subprocess.run(
        command,
        env={**os.environ, ALONE: "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if ran.returncode:
        pytest.fail(ran.stdout + ran.stderr, pytrace=False)
    return True


@pytest.fixture(scope="session")
def mk_audit(request):
    """`mk_audit` of the implementation under test."""
    return importlib.import_module(request.config.getoption("--implementation")).mk_audit


@dataclass(frozen=True)
class Places:
    """Three directories: `ok` is approved, `out` is not, `cwd` is the current one and is not."""

    ok: str
    out: str
    cwd: str


@pytest.fixture
def places(tmp_path, monkeypatch) -> Places:
    base = Path(os.path.realpath(tmp_path))
    for name in ("ok", "out", "cwd"):
        (base / name).mkdir()
    monkeypatch.chdir(base / "cwd")
    monkeypatch.setenv("TMPDIR", str(base / "ok"))
    monkeypatch.setattr("tempfile.tempdir", None)
    return Places(str(base / "ok"), str(base / "out"), str(base / "cwd"))


@pytest.fixture
def command(places):
    """`command(*arguments)`: the result of `fastaudit-rs` run with them in `places.cwd`."""

    def run(*arguments, stdin=""):
        return programs.python("-m", "fastaudit_rs", *arguments, input=stdin)

    return run


@pytest.fixture
def out(tmp_path_factory):
    """A directory outside the roots of the tests in runs of pytest."""
    return str(tmp_path_factory.mktemp("out"))


@pytest.fixture
def run(pytester, out):
    """`run(code, *options)`: a run of pytest on it, as `pytest_runs.runner` makes it."""
    return pytest_runs.runner(pytester, out)


@pytest.fixture
def elsewhere():
    """`elsewhere(function, *args)`: its result in another thread, which no guard reaches."""
    jobs = queue.Queue()

    def work():
        for function, args, future in iter(jobs.get, None):
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)

    def run(function, *args):
        future = Future()
        jobs.put((function, args, future))
        return future.result()

    thread = threading.Thread(target=work)
    thread.start()
    yield run
    jobs.put(None)
    thread.join()


@pytest.fixture
def guard(mk_audit, places):
    """`guard(**options)`: a guard with `places.ok` approved, without call monitoring."""

    def make(oks=None, **options):
        options.setdefault("monitor_calls", False)
        return mk_audit([places.ok] if oks is None else oks, **options)()

    return make


@pytest.fixture
def under(places):
    """`under(function, **fields)`: runs the function under a policy; the denial, or `None`."""

    from fastaudit_rs import AuditDenied, Policy

    def run(function, *args, shell=None, **fields):
        fields.setdefault("write", [places.ok])
        options = {} if shell is None else {"shell": shell}
        try:
            with Policy(**fields).guard(monitor_calls=False)():
                function(*args, **options)
        except AuditDenied as denied:
            return denied
        return None

    return run


@pytest.fixture
def make_sandbox():
    """`make_sandbox(policy, **limits)`: a sandbox that the kernel confines, closed afterwards."""
    pytest.importorskip("sandlock")
    from programs import SLOWER
    from sandboxes import LOOSE

    from fastaudit_rs import Limits, Sandbox

    made = []

    def make(policy=LOOSE, **limits):
        made.append(Sandbox(policy, Limits(**{"wall_seconds": 20 * SLOWER, **limits})))
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.close()


@pytest.fixture
def guarded(places):
    """`guarded()`: true if a guard whose root is `places.ok` is in force, whatever it is given."""

    def check(*_):
        try:
            open(places.out + "/file", "w").close()
        except PermissionError:
            return True
        return False

    return check
