"""The report of the pytest plugin on tests that reach outside, and its baseline."""

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

OBJECTS = """
import signal, socket, subprocess

def test_variable():
    os.environ["PATH"] = os.environ["PATH"] + ":/x"

def test_address():
    with socket.socket() as client:
        client.settimeout(0.1)
        try:
            client.connect(("192.0.2.1", 80))
        except OSError:
            pass

def test_process():
    try:
        os.kill(os.getppid(), signal.SIGCONT)
    except OSError:
        pass

def test_program():
    subprocess.run(["ls", "/"], stdout=subprocess.DEVNULL)

def test_socket():
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(OUT + "/s")

def test_files():
    open("settings.ini", "w").close()
    open(OUT + "/a", "w").close()
"""


class TestReport:
    def test_objects_places_and_markers(self, run, out):
        result = run(OBJECTS, "--audit=record")
        result.assert_outcomes(passed=6)
        result.stdout.fnmatch_lines(
            [
                "test_it.py::test_address",
                "    socket.connect 192.0.2.1:80, at test_it.py:[0-9]*",
                "    to allow it: @pytest.mark.audit(network={*'192.0.2.1:80'*})",
                "test_it.py::test_files",
                "    open settings.ini, at test_it.py:32",
                f"    open {out}/a, at test_it.py:33",
                f"    to allow it: @pytest.mark.audit(write=['settings.ini', '{out}/a'])",
                "test_it.py::test_process",
                "    os.kill [0-9]*, at test_it.py:*; no policy allows os.kill; *audit(False)*",
                "test_it.py::test_program",
                "    subprocess.Popen ls /, at test_it.py:*",
                "    to allow it: @pytest.mark.audit(commands=['ls'])",
                "test_it.py::test_socket",
                f"    socket.bind {out}/s, at test_it.py:*",
                f"    to allow it: @pytest.mark.audit(*'unix': [[]'{out}/s']*)",
                "test_it.py::test_variable",
                "    os.putenv PATH, at test_it.py:*",
                "    to allow it: @pytest.mark.audit(env=[[]'[*]', 'PATH'])",
            ]
        )

    def test_the_marker_allows_it(self, run, out):
        line = "        server.bind(OUT + '/s')"
        test = f"""
import socket
from fastaudit_rs import Network

MARKER
def test_it():
    with socket.socket(socket.AF_UNIX) as server:
{line}
    os.environ["PATH"] = os.environ["PATH"] + ":/x"
    open(OUT + "/a", "w").close()
    open("b", "w").close()
"""
        told = run(test.replace("MARKER", ""), "--audit=record").stdout.lines
        (marker,) = [line.partition("allow it: ")[2] for line in told if "allow it: @" in line]
        run(test.replace("/s'", "/t'").replace("MARKER", marker)).assert_outcomes(failed=1)
        test = test.replace(
            line, "        server.bind(OUT + '/s') if not os.path.exists(OUT + '/s') else 0"
        )
        run(test.replace("MARKER", marker)).assert_outcomes(passed=1)

    @pytest.mark.parametrize("options", [["--audit=raise"], []])
    def test_what_a_failing_test_swallows(self, run, out, options):
        mark = "" if options else "@pytest.mark.audit(env=False)"
        code = f"""
{mark}
def test_it():
    try:
        os.mkdir(OUT + "/a")
    except OSError:
        pass
    assert os.path.exists(OUT + "/a")
"""
        result = run(code, *options)
        result.stdout.fnmatch_lines(
            ["*Captured audit call*", f"os.mkdir {out}/a, at test_it.py:8; to allow it: @*"]
        )

    def test_no_frames_of_pytest(self, run):
        result = run("def test_it():\n    os.mkdir(OUT + '/a')", "--audit=raise")
        result.stdout.fnmatch_lines(
            ["*AuditDenied: Denied: make the directory*", "E*Call chain: test_it.test_it"]
        )
        assert "pluggy" not in result.stdout.str().partition("FAILURES")[2]


class TestPolicies:
    REACHES = """
def test_it():
    os.mkdir(OUT + "/a")
"""

    @pytest.fixture
    def file(self, pytester, out):
        (pytester.path / "p.toml").write_text(f'write = ["{out}"]\n')
        return "p.toml"

    def test_by_an_option(self, run, pytester, file):
        pytester.makeini("[pytest]\naudit_policy = missing.toml")
        run(self.REACHES, "--audit=raise", f"--audit-policy={file}").assert_outcomes(passed=1)
        result = run(self.REACHES, "--audit=raise", "--audit-policy=no.toml")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*--audit-policy: *no.toml*"])

    @pytest.mark.parametrize("given", ['policy="p.toml"', '"p.toml"', '"p.toml", env=False'])
    def test_by_the_marker(self, run, file, given):
        run(f"@pytest.mark.audit({given}){self.REACHES}").assert_outcomes(passed=1)

    def test_hints_keep_the_file(self, run, file):
        result = run('@pytest.mark.audit(policy="p.toml")\ndef test_it():\n    os.mkdir("a")')
        result.stdout.fnmatch_lines(["*To allow it: @pytest.mark.audit(..., write=[[]*"])

    def test_no_such_file(self, run):
        result = run(f'@pytest.mark.audit("no.toml"){self.REACHES}')
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["*no.toml*"])


MADE_UP = """
import datetime, secrets, socket, time, uuid

def ignoring(function, *args):
    try:
        function(*args)
    except OSError:
        pass

def test_names():
    for name in (f"tmp{uuid.uuid4().hex[:8]}", str(uuid.uuid4()), f"run-{os.getpid()}"):
        os.mkdir(f"{OUT}/{name}")

def test_times_and_tokens():
    now = datetime.datetime.now()
    for name in (f"{now:%Y%m%d_%H%M%S}", now.isoformat(), time.time(), secrets.token_hex(6)):
        os.mkdir(f"{OUT}/a_{name}.d")

def test_ports():
    with socket.socket() as client:
        client.settimeout(0.1)
        ignoring(client.connect, ("192.0.2.1", 40000 + os.getpid() % 1000))

def test_home():
    ignoring(os.mkdir, os.path.expanduser("~/no/such/directory"))

def test_programs():
    import subprocess, sys
    subprocess.run([sys.executable, "-c", ""])

@pytest.mark.xdist_group("group")
def test_in_a_group():
    os.mkdir(f"{OUT}/tmp{uuid.uuid4().hex[:8]}")
"""


class TestBaseline:
    def test_it_is_written_and_accepted(self, run, pytester):
        options = ("--audit-baseline=base.txt", "--audit=record")
        run(OBJECTS, *options).assert_outcomes(passed=6)
        first = (pytester.path / "base.txt").read_text()
        assert len([line for line in first.splitlines() if not line.startswith("#")]) == 7
        (pytester.path / "settings.ini").unlink()
        free = OBJECTS.replace('"/s"', 'f"/{os.getpid()}"')
        result = run(OBJECTS.replace("server.bind", "len"), "--audit=raise", options[0])
        result = run(free, "--audit=raise", options[0], "-k", "not socket")
        result.assert_outcomes(passed=5, deselected=1)
        result.stdout.fnmatch_lines(["No test reached outside, but for what is in *base.txt."])

    def test_a_file_that_was_there_when_it_was_written(self, run, out):
        """`touch` sets its times then, and makes it in a fresh checkout."""
        stamp = Path(out, "stamp")
        stamp.touch()
        code = f"import pathlib\ndef test_it(): pathlib.Path({str(stamp)!r}).touch()"
        run(code, "--audit-baseline=base.txt", "--audit=record").assert_outcomes(passed=1)
        stamp.unlink()
        run(code, "--audit-baseline=base.txt", "--audit=raise").assert_outcomes(passed=1)

    def test_the_rest_is_denied(self, run, out):
        run(OBJECTS, "--audit-baseline=base.txt", "--audit=record", "-k", "files")
        more = OBJECTS + '    os.mkdir(OUT + "/b")\n'
        result = run(more, "--audit-baseline=base.txt", "--audit=raise", "-k", "files")
        result.assert_outcomes(failed=1, deselected=5)
        result.stdout.fnmatch_lines(
            [
                "E *AuditDenied: Denied: make the directory *",
                "test_it.py::test_files",
                f"    os.mkdir {out}/b, at *",
            ]
        )
        assert "pytest_report" not in result.stdout.str()

    def test_it_is_the_same_each_time(self, run, out, pytester, monkeypatch):
        monkeypatch.setenv("HOME", "/home/somebody")
        lines = []
        for number, options in enumerate([[], ["-n2"], ["-n2", "--dist=loadgroup"]]):
            name = f"base{number}.txt"
            needs = ["xdist"] if options else []
            result = run(
                MADE_UP, "--audit=record", f"--audit-baseline={name}", *options, needs=needs
            )
            result.assert_outcomes(passed=6)
            lines.append((pytester.path / name).read_text().splitlines()[2:])
            for made in Path(out).iterdir():
                made.rmdir()  # a run within the same second makes one of them again
        assert lines[0] == lines[1] == lines[2] == sorted(lines[0])
        assert "test_it.py::test_ports: socket.connect 192.0.2.1:*" in lines[0]
        assert "test_it.py::test_home: os.mkdir ~/no/such/directory" in lines[0]
        assert "test_it.py::test_programs: subprocess.Popen python -c ''" in lines[0]
        result = run(MADE_UP, "--audit=raise", "--audit-baseline=base0.txt", "-n2", needs=["xdist"])
        result.assert_outcomes(passed=6)

    def test_places_in_it_are_the_same_elsewhere(self, run, pytester, monkeypatch):
        """With xdist, and with another directory for temporary files."""
        monkeypatch.setenv("TMPDIR", "/tmp")
        code = """
import os, subprocess, sys

def test_program(tmp_path):
    subprocess.run([sys.executable, "-c", "", str(tmp_path)])

def test_directories():
    os.makedirs("cache/tmp/a", exist_ok=True)
"""
        base = f"--basetemp={pytester.path}/base"
        run(code, "--audit=record", "--audit-baseline=base.txt", base).assert_outcomes(passed=2)
        lines = (pytester.path / "base.txt").read_text().splitlines()
        assert "test_it.py::test_directories: os.mkdir cache/tmp" in lines
        (pytester.path / "other").mkdir()
        monkeypatch.setenv("TMPDIR", str(pytester.path / "other"))
        options = ("--audit=raise", "--audit-baseline=base.txt", "-n2", base)
        run(code, *options, needs=["xdist"]).assert_outcomes(passed=2)

    def test_without_a_mode_it_is_refused(self, run):
        result = run(OBJECTS, "--audit-baseline=base.txt")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        told = "*--audit-baseline needs --audit=record, which writes it, or raise"
        result.stderr.fnmatch_lines([told])

    def test_tests_that_did_not_run_stay_in_it(self, run, pytester):
        file = pytester.path / "base.txt"
        options = ("--audit-baseline=base.txt", "--audit=record")
        run(OBJECTS, *options)
        before = file.read_text()
        (pytester.path / "settings.ini").unlink()
        run(OBJECTS, *options, "-k", "files or variable")
        assert file.read_text() == before
        run(OBJECTS.replace("open(", "len("), *options, "-k", "files")
        assert "test_variable" in file.read_text()
        assert "settings.ini" not in file.read_text()

    def test_it_is_not_there(self, run):
        result = run(OBJECTS, "--audit-baseline=base.txt", "--audit=raise")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*--audit-baseline*base.txt*--audit=record writes it"])

    @pytest.mark.parametrize("name", ["no/base.txt", "/proc/base.txt"])
    def test_it_cannot_be_written(self, run, name):
        result = run(OBJECTS, f"--audit-baseline={name}", "--audit=record")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        told = f"*--audit-baseline: *{name}: *No such file or directory: *{name}'"
        result.stderr.fnmatch_lines([told])

    @pytest.mark.parametrize("options", [[], ["-n2"]])
    def test_names_that_are_no_utf8(self, run, pytester, options):
        code = "def test_it():\n    os.makedirs(os.fsencode(OUT) + b'/\\xff\\x1b', exist_ok=True)"
        options = [*options, "--audit-baseline=base.txt"]
        run(code, "--audit=record", *options, needs=["xdist"]).assert_outcomes(passed=1)
        told = (pytester.path / "base.txt").read_text()
        assert told.endswith(r"/\udcff\x1b" + "\n")
        run(code, "--audit=raise", *options, needs=["xdist"]).assert_outcomes(passed=1)

    def test_a_recording_tells_of_it(self, run):
        result = run(OBJECTS, "--audit=record")
        result.stdout.fnmatch_lines(["--audit-baseline=FILE writes it to a file, which*"])


class TestCopiesOfTheProcess:
    CODE = """
import multiprocessing

def reach():
    try:
        os.mkdir(OUT + "/copied")
    except OSError:
        pass

def test_it():
    copy = multiprocessing.get_context("fork").Process(target=reach)
    copy.start()
    copy.join()
    assert copy.exitcode == 0

def test_another():
    pass
"""

    def test_what_they_reach_is_told(self, run, out):
        result = run(self.CODE, "--audit=record", "--audit-baseline=base.txt")
        result.assert_outcomes(passed=2)
        result.stdout.fnmatch_lines(
            [
                "test_it.py::test_it",
                f"    os.mkdir {out}/copied, at test_it.py:9",
                f"    to allow it: @pytest.mark.audit(write=[[]'{out}/copied'[]])",
                "base.txt: 1 written*",
            ]
        )
        os.rmdir(out + "/copied")
        result = run(self.CODE, "--audit=raise", "--audit-baseline=base.txt")
        result.assert_outcomes(passed=2)
        os.rmdir(out + "/copied")
        result = run(self.CODE, "--audit=raise")
        result.assert_outcomes(passed=1, failed=1)
        result.stdout.fnmatch_lines([f"reached outside: os.mkdir {out}/copied, at *"])
        assert os.listdir(out) == []


class TestWorkersOfXdist:
    CODE = """
import subprocess, sys
from concurrent.futures import ProcessPoolExecutor

def test_pool():
    with ProcessPoolExecutor(1) as pool:
        assert pool.submit(abs, -1).result() == 1

def test_fork():
    copy = os.fork()
    if not copy:
        os._exit(0)
    assert os.waitpid(copy, 0)[1] == 0

def test_fork_beside_a_thread():
    import threading
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait)
    thread.start()
    try:
        copy = os.fork()
        if not copy:
            os._exit(0)
        os.waitpid(copy, 0)
    finally:
        go_on.set()
        thread.join()
"""

    @pytest.mark.parametrize("mode", ["record", "raise"])
    def test_copies_of_the_process(self, run, mode):
        told = []
        for options in ([], ["-n2"]):
            needs = ["xdist"] if options else []
            result = run(self.CODE, f"--audit={mode}", "-Wignore", *options, needs=needs)
            lines = result.stdout.lines
            told.append(lines[lines.index("{:=^80}".format(" audit ")) :][:4])
            outcomes = {"passed": 3} if mode == "record" else {"passed": 2, "failed": 1}
            result.assert_outcomes(**outcomes)
        assert told[0] == told[1]
        assert told[0][1] == "test_it.py::test_fork_beside_a_thread"
        assert "no other thread" in told[0][2]
