"""Sandboxes that start in odd places, and what is left where one does not."""

import os
import subprocess
import sys
import textwrap

import pytest
import waiting
from programs import printed, ran
from sandboxes import of, running
from users import run_as
from waiting import until

from fastaudit_rs import Sandbox, SandboxError

RUN = "from fastaudit_rs import Sandbox\nwith Sandbox() as s: print(s.run('7', value=True).value)"

SUPPORT = os.path.dirname(waiting.__file__)

APART = ("unshare", "-m", "-p", "-n", "--fork", "--mount-proc")


def can(*command):
    return not subprocess.run([*command, "true"], capture_output=True, check=False).returncode


@pytest.mark.slow
@pytest.mark.parametrize("starts", [3, pytest.param(40, marks=pytest.mark.nightly)])
def test_signals_meanwhile(starts):
    code = f"""
        import os, signal
        from fastaudit_rs import Sandbox
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for _ in range({starts}):
            with Sandbox() as sandbox:
                code = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, ())"
                assert sandbox.run(code, value=True).error is None
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            print(os.waitpid(-1, os.WNOHANG))
        except ChildProcessError:
            print("none")
    """
    assert printed(code) == "none\n"


@pytest.mark.slow
@pytest.mark.skipif(not can(*APART), reason="no namespaces can be made here")
@pytest.mark.parametrize("hosts", [4, pytest.param(48, marks=pytest.mark.nightly)])
def test_hosts_that_share_an_ipc_namespace_alone(hosts):
    said = []
    for _ in range(hosts // 4):
        started = [
            subprocess.Popen([*APART, sys.executable, "-c", RUN], stdout=-1, stderr=-1, text=True)
            for _ in range(4)
        ]
        said += [process.communicate(timeout=60) for process in started]
    assert said == [("7\n", "")] * hosts


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["0>&-", "0>&- 1>&- 2>&-"])
def test_standard_streams_are_closed(tmp_path, closed):
    file = tmp_path / "said"
    code = RUN.replace("print(", f"open({str(file)!r}, 'w').write(str(").replace(
        ".value)", ".value))"
    )
    shell = f'exec {closed}; exec "$0" -c "$1"'
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
    # The one of the kernel's word on changes is closed by a thread of its own.
    assert until(lambda: len(os.listdir("/proc/self/fd")) <= before)


@pytest.mark.parametrize("part", ["Review", "Process", "ToolAnswers"])
def test_a_session_that_cannot_be_made_leaves_no_process(monkeypatch, sandbox, part):
    from fastaudit_rs.sandbox.host import session

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    before = running(of(sandbox))
    monkeypatch.setattr(session, part, fail)
    with pytest.raises(OSError, match="No space"):
        sandbox.session()
    assert until(lambda: running(of(sandbox)) == before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "first", "words"),
    [
        ((), "deny(PIDFD_GETFD, 1)", "pidfd_getfd is denied: in Docker run with --cap-add SYS_PTR"),
        ((), "deny(OPENAT2, 38)", "a seccomp filter is in force here"),
        (("unshare", "-p", "--fork"), "", "/proc does not show this PID namespace: mount it"),
        (
            ("unshare", "-i"),
            "open('/proc/sys/kernel/shmmni', 'w').write('0')",
            "0 of 0 segments of shared memory are taken: raise kernel.shmmni",
        ),
    ],
    ids=["descriptors", "filter", "processes", "memory"],
)
def test_what_keeps_it_from_starting_is_named(before, first, words):
    if before and not can(*before):
        pytest.skip("no namespaces can be made here")
    code = f"""
        import sys
        sys.path.append({SUPPORT!r})
        from denied_calls import OPENAT2, PIDFD_GETFD, deny
        from fastaudit_rs import Sandbox, SandboxError
        from fastaudit_rs.tools import doctor
        {first}
        try:
            with Sandbox() as sandbox:
                print(sandbox.run("1"))
        except SandboxError as error:
            print(error)
        print(*doctor._kernel(), *doctor._sandbox())
    """
    said = ran(code, before=before)
    error, _, found = said.stdout.partition("\nFinding(")
    assert words in error, said
    assert words in found, said


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can run as another user")
def test_too_few_processes_are_named():
    """They count by user, and not for root."""
    code = """
        import resource
        from fastaudit_rs import Sandbox, SandboxError
        resource.setrlimit(resource.RLIMIT_NPROC, (2, 2))
        try:
            with Sandbox() as sandbox:
                print(sandbox.run("1"))
        except SandboxError as error:
            print(error)
    """
    said = run_as("nameless", textwrap.dedent(code))
    assert "of 2 processes and threads: raise the limit (ulimit -u)" in said, said


@pytest.mark.slow
def test_too_few_descriptors_are_named_and_nothing_is_left(tmp_path):
    code = f"""
        import os, resource
        from fastaudit_rs import Sandbox, SandboxError
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

        def attempt(free):
            held = []
            try:
                while True:
                    held.append(os.open("/dev/null", 0))
            except OSError:
                for _ in range(free):
                    os.close(held.pop())
            try:
                with Sandbox(parent={str(tmp_path)!r}) as sandbox:
                    sandbox.run("1")
            except SandboxError as error:
                print("of 64 descriptors open, and a sandbox takes" in str(error) or error)
            finally:
                for descriptor in held:
                    os.close(descriptor)

        # What is imported needs descriptors too.
        attempt(60)
        for free in (0, 1, 2, 3, 5, 7, 9, 12):
            attempt(free)
        attempt(60)
        print(os.listdir({str(tmp_path)!r}))
        attempt(3)
    """
    said = ran(code)
    assert said.stdout == "True\n" * 8 + "[]\nTrue\n", said
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_few_descriptors_are_named_wherever_they_lack():
    """By the sandbox, its files, its process, its session and its run."""
    code = """
        import os, resource
        from fastaudit_rs import Sandbox, SandboxError
        with Sandbox() as sandbox:
            sandbox.run("1")
            sandbox.session().close()
        there = len(os.listdir("/proc/self/fd"))
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        said = set()
        for more in range(0, 60, 2):
            # Descriptors are given by their numbers, from the lowest free one.
            resource.setrlimit(resource.RLIMIT_NOFILE, (there + more, hard))
            try:
                with Sandbox() as sandbox, sandbox.session() as session:
                    session.run("1")
                    sandbox.run("1")
                said.add("it starts")
            except SandboxError as error:
                said.add("ulimit -n" in str(error) or repr(error))
            except OSError as error:
                said.add(repr(error))
        print(sorted(said, key=str))
    """
    said = ran(code, timeout=300)
    assert said.stdout == "[True, 'it starts']\n", said


@pytest.mark.slow
def test_few_descriptors_are_named_where_a_session_has_ended():
    code = """
        import os, resource, time
        from fastaudit_rs import Sandbox, SandboxError
        with Sandbox() as sandbox, sandbox.session() as session:
            number = session.run("import os; os.getpid()").value
            os.kill(number, 9)
            while os.path.exists(f"/proc/{number}"):
                time.sleep(0.01)
            there = len(os.listdir("/proc/self/fd"))
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (there + 1, hard))
            try:
                session.run("1")
            except SandboxError as error:
                print("has ended (signal 9; " in str(error), "ulimit -n" in str(error))
    """
    assert ran(code).stdout == "True True\n"


@pytest.mark.slow
@pytest.mark.skipif(not can("unshare", "-m"), reason="nothing can be mounted here")
def test_a_full_disk():
    code = """
        import os, subprocess
        from fastaudit_rs import Sandbox

        # In this mount namespace alone.
        place = "/mnt"
        for files in range(2, 6):
            command = ["mount", "-t", "tmpfs", "-o", f"nr_inodes={files}", "none", place]
            subprocess.run(command, check=True)
            try:
                with Sandbox(parent=place) as sandbox:
                    print(sandbox.run("7", value=True).value, os.listdir(place) != [])
            except OSError as error:
                print(error.errno, os.listdir(place))
    """
    said = ran(code, before=("unshare", "-m"))
    assert said.stdout == "28 []\n" * 3 + "7 True\n", said


@pytest.mark.slow
def test_a_user_without_a_name_and_a_home():
    code = RUN + "\nimport os; print('HOME' in os.environ)"
    assert run_as("nameless", code) == "7\nFalse\n"
