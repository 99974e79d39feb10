"""Tests under the guards of the pytest plugin, in runs of pytest of their own."""

import os

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(params=["record", "raise"])
def unnoticed(request, run):
    """`unnoticed(code)`: it passes under both modes, and nothing is told of it."""

    def check(code, *options, **more):
        result = run(code, f"--audit={request.param}", *options, **more)
        outcomes = result.parseoutcomes()
        assert outcomes.keys() <= {"passed", "warnings", "warning"}, result.stdout.str()
        assert "No test reached outside." in result.stdout.str()

    return check


def test_servers_of_this_machine(unnoticed):
    unnoticed("""
import http.server, socket, socketserver, threading, urllib.request

@pytest.mark.parametrize("at", ["localhost", "127.0.0.1", "", "0.0.0.0", "127.0.0.2"])
def test_at(at):
    with socket.socket() as server:
        server.bind((at, 0))
        server.listen()
        with socket.create_connection(server.getsockname(), 5):
            pass

@pytest.mark.parametrize("at", ["::1", "::", ""])
def test_at_6(at):
    if not socket.has_ipv6:
        return
    with socket.socket(socket.AF_INET6) as server:
        try:
            server.bind((at, 0))
        except PermissionError:
            raise
        except OSError:
            pass  # This machine has none.

@pytest.mark.parametrize("at", ["", "127.0.0.1", "localhost"])
def test_of_http(at):
    with http.server.HTTPServer((at, 0), http.server.SimpleHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        opener.open(f"http://localhost:{server.server_port}/", timeout=5).close()
        thread.join()
""")


def test_sockets(unnoticed):
    unnoticed("""
import socket, tempfile

def serve(directory):
    path = os.path.join(directory, "s")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(path)
        server.listen()
        client.connect(path)

def test_of_pytest(tmp_path):
    serve(tmp_path)

def test_of_tempfile():
    with tempfile.TemporaryDirectory() as directory:
        serve(directory)
""")


def test_the_environment_that_is_put_back(unnoticed):
    unnoticed("""
from unittest import mock

def test_monkeypatch(monkeypatch):
    monkeypatch.setenv("PATH", "/x", prepend=":")
    monkeypatch.setenv("HOME", "/x")
    monkeypatch.delenv("HOME")
    assert "HOME" not in os.environ

def test_undone(monkeypatch):
    monkeypatch.setenv("PATH", "/x")
    monkeypatch.undo()
    assert os.environ["PATH"] != "/x"

def test_context():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/x")
    assert os.environ["PATH"] != "/x"

def test_mock():
    path = os.environ["PATH"]
    with mock.patch.dict(os.environ, {"PATH": "/x"}):
        assert os.environ["PATH"] == "/x"
    with mock.patch.dict(os.environ, {"PATH": "/x"}, clear=True):
        assert list(os.environ) == ["PATH"]
    assert os.environ["PATH"] == path
""")


def test_what_stays_behind(run):
    """A Unix socket elsewhere, and the environment that nobody puts back."""
    run(
        """
import socket

def test_a_socket(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(OUT + "/s")

def test_a_variable(monkeypatch):
    os.environ["PATH"] = "/x"
""",
        "--audit=raise",
    ).assert_outcomes(failed=2)


def test_directories_that_are_there(unnoticed):
    unnoticed("""
from pathlib import Path

def test_it():
    Path(OUT).mkdir(exist_ok=True)
    os.makedirs(OUT + "/", exist_ok=True)
    with pytest.raises(FileExistsError):
        Path(OUT).mkdir(parents=True)
""")


class TestFixture:
    """The fixture `audit_perms` in a test that is guarded already."""

    def test_it_stands_in_place_of_the_test_s(self, run, out):
        result = run(
            """
def test_narrower(audit_perms, tmp_path):
    with audit_perms(env=False) as guard:
        (tmp_path / "a").write_text("x")
        with pytest.raises(PermissionError):
            os.environ["A"] = "B"
        with pytest.raises(PermissionError):
            os.mkdir(OUT + "/a")
    os.environ["A"] = "B"
    assert guard.violation_count == 2

def test_wider(audit_perms):
    with audit_perms(write=[OUT]):
        os.mkdir(OUT + "/b")

def test_back_in_the_test_s(audit_perms):
    with audit_perms(write=[OUT]):
        pass
    os.mkdir(OUT + "/c")

def test_another_guard():
    from fastaudit_rs import mk_audit
    with mk_audit([OUT])():
        os.mkdir(OUT + "/d")
""",
            "--audit=raise",
        )
        result.assert_outcomes(passed=2, failed=2)
        assert os.listdir(out) == ["b"]

    def test_under_the_marker(self, run):
        run("""
@pytest.mark.audit
def test_it(audit_perms):
    with audit_perms(), pytest.raises(PermissionError):
        os.mkdir(OUT + "/a")
""").assert_outcomes(passed=1)

    def test_nothing_is_recorded(self, run):
        result = run(
            "def test_it(audit_perms):\n    with audit_perms():\n        pass", "--audit=record"
        )
        result.stdout.fnmatch_lines(["No test reached outside."])


FIXTURES = """
import tempfile

@pytest.fixture(scope="session")
def server():
    os.mkdir(OUT + "/session")
    yield OUT + "/session"
    os.rmdir(OUT + "/session")

@pytest.fixture
def place(server):
    os.mkdir(server + "/place")
    yield server + "/place"
    os.rmdir(server + "/place")

@pytest.fixture
def directory():
    with tempfile.TemporaryDirectory() as directory:
        yield directory
"""


class TestFixturesAskedForInATest:
    def test_they_are_set_up_outside_of_the_guard(self, unnoticed, out):
        unnoticed(
            FIXTURES
            + """
def test_a(request, capsys):
    request.getfixturevalue("place")
    request.addfinalizer(lambda: os.rmdir(OUT + "/finalized"))
    request.getfixturevalue("late")

@pytest.fixture
def late():
    os.mkdir(OUT + "/finalized")

@pytest.mark.parametrize("name", ["capfd", "tmp_path", "place", "doctest_namespace"])
def test_b(request, name):
    assert request.getfixturevalue(name) is not None

def test_c(place):
    pass
"""
        )
        assert os.listdir(out) == []

    def test_the_test_is_guarded_again_afterwards(self, run, out):
        run(
            FIXTURES
            + """
def test_a(request):
    request.getfixturevalue("place")
    os.mkdir(OUT + "/a")

@pytest.fixture
def broken():
    raise OSError("broken")

def test_b(request):
    with pytest.raises(OSError, match="broken"):
        request.getfixturevalue("broken")
    os.mkdir(OUT + "/b")
""",
            "--audit=raise",
        ).assert_outcomes(failed=2)
        assert os.listdir(out) == []

    def test_in_a_task(self, run, out):
        run(
            FIXTURES
            + """
import asyncio

async def test_a(request):
    await asyncio.sleep(0)
    request.getfixturevalue("place")

async def test_b(request):
    await asyncio.sleep(0)
    request.getfixturevalue("place")
    os.mkdir(OUT + "/b")
""",
            "--audit=raise",
            "-oasyncio_mode=auto",
            needs=["asyncio"],
        ).assert_outcomes(passed=1, failed=1)
        assert os.listdir(out) == []

    def test_asynchronous_ones(self, unnoticed):
        unnoticed(
            FIXTURES
            + """
import asyncio
import pytest_asyncio

@pytest_asyncio.fixture
async def made():
    await asyncio.sleep(0)
    os.mkdir(OUT + "/made")
    yield
    os.rmdir(OUT + "/made")

async def test_a(made):
    await asyncio.sleep(0)

def test_b(request):
    request.getfixturevalue("made")
""",
            "-oasyncio_mode=auto",
            needs=["asyncio"],
        )


class TestTemporaryFiles:
    def test_of_fixtures(self, unnoticed):
        unnoticed(
            FIXTURES
            + """
def test_a(directory, tmp_path_factory):
    assert directory.startswith(str(tmp_path_factory.getbasetemp()))
    open(directory + "/a", "w").close()

def test_b(request):
    open(request.getfixturevalue("directory") + "/a", "w").close()

@pytest.mark.audit
def test_c(directory):
    open(directory + "/a", "w").close()
"""
        )

    def test_of_test_cases(self, unnoticed):
        unnoticed("""
import tempfile, unittest

class TestCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp()

    def setUp(self):
        self.own = tempfile.mkdtemp()

    def test_a(self):
        for place in (self.shared, self.own):
            open(place + "/a", "w").close()
""")

    def test_of_doctests(self, unnoticed):
        unnoticed(
            """
def function():
    '''
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     open(directory + "/a", "w").close()
    '''
""",
            "--doctest-modules",
        )

    def test_the_directory_of_the_host_stays(self, run):
        run("""
import tempfile
HOSTS = tempfile.gettempdir()

@pytest.mark.audit
def test_a(tmp_path):
    pass

@pytest.fixture
def directory():
    return tempfile.gettempdir()

def test_b(directory):
    assert directory == tempfile.gettempdir() == HOSTS
    assert tempfile.tempdir == HOSTS
""").assert_outcomes(passed=2)


def test_hypothesis(unnoticed):
    pytest.importorskip("hypothesis")
    unnoticed(
        """
from hypothesis import given, settings, strategies

@settings(database=None, max_examples=5)
@given(strategies.integers())
def test_it(number):
    assert isinstance(number, int)
""",
        needs=["hypothesispytest"],
    )
