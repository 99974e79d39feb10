"""Sandboxes that start in odd places, and what is left where one does not."""

import os
import subprocess
import sys
import textwrap

import pytest

from fastaudit_rs import Sandbox, SandboxError

pytest.importorskip("sandlock")

pytestmark = pytest.mark.once

RUN = "from fastaudit_rs import Sandbox\nwith Sandbox() as s: print(s.run('7', value=True).value)"

APART = ("unshare", "-m", "-p", "-n", "--fork", "--mount-proc")


def test_signals_meanwhile():
    code = """
        import os, signal
        from fastaudit_rs import Sandbox
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for _ in range(20):
            with Sandbox() as sandbox:
                code = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, ())"
                assert sandbox.run(code, value=True).error is None
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            print(os.waitpid(-1, os.WNOHANG))
        except ChildProcessError:
            print("none")
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == ("none\n", "")


@pytest.mark.skipif(
    bool(subprocess.run([*APART, "true"], capture_output=True, check=False).returncode),
    reason="no namespaces can be made here",
)
@pytest.mark.parametrize("hosts", [8, pytest.param(48, marks=pytest.mark.slow)])
def test_hosts_that_share_an_ipc_namespace_alone(hosts):
    said = []
    for _ in range(hosts // 4):
        started = [
            subprocess.Popen([*APART, sys.executable, "-c", RUN], stdout=-1, stderr=-1, text=True)
            for _ in range(4)
        ]
        said += [process.communicate(timeout=60) for process in started]
    assert said == [("7\n", "")] * hosts


@pytest.mark.parametrize(
    "number",
    [0, 1, 2],
)
def test_a_standard_stream_is_closed(tmp_path, number):
    file = tmp_path / "said"
    code = RUN.replace("print(", f"open({str(file)!r}, 'w').write(str(").replace(
        ".value)", ".value))"
    )
    shell = f'exec {number}>&-; exec "$0" -c "$1"'
    subprocess.run(["sh", "-c", shell, sys.executable, code], timeout=60, check=True)
    assert file.read_text() == "7"


@pytest.mark.parametrize("confine", ["require", "prefer", "audit"])
def test_a_frozen_application(monkeypatch, confine):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(SandboxError, match="this frozen application itself"):
        Sandbox(confine=confine)


def test_one_that_cannot_be_made_leaves_no_directory_and_no_descriptor(monkeypatch, tmp_path):
    from fastaudit_rs.sandbox.host import sandbox

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(sandbox, "Files", fail)
    with pytest.raises(OSError, match="No space"):
        Sandbox(parent=tmp_path)
    monkeypatch.undo()
    assert not [*tmp_path.iterdir()]
    with Sandbox(parent=tmp_path) as made:
        from fastaudit_rs.sandbox.host import process

        monkeypatch.setattr(process.tempfile, "TemporaryDirectory", fail)
        for _ in range(3):
            with pytest.raises(OSError, match="No space"):
                made.run("1")
    assert len(os.listdir("/proc/self/fd")) == before


def test_too_few_descriptors_are_named():
    code = """
        import resource
        from fastaudit_rs import Sandbox, SandboxError
        made = Sandbox(), Sandbox()
        resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
        try:
            for sandbox in made:
                sandbox.run("1")
        except SandboxError as error:
            print("of 30 descriptors open" in str(error), error)
        except OSError as error:
            print(error.errno == 24, error)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stdout.startswith("True"), (ended.stdout, ended.stderr)
