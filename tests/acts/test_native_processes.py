"""Native code is judged by the programs that it starts and the processes that it signals."""

import errno
import os

import pytest

from fastaudit_rs import Policy

START = ("system", "popen", "posix_spawn", "posix_spawnp", "pidfd_spawn", "pidfd_spawnp")
EXECUTE = ("execve", "execv", "execvp", "execl", "execlp", "execle", "syscall execve")


def guard(**fields):
    return Policy(**{"write": ["."], "native": True, "env": True, **fields}).guard()()


def command(path):
    return f"touch {path}"


@pytest.mark.parametrize("function", START)
def test_starts(acts, tmp_path, function, thread):
    made = tmp_path / "made"
    with guard() as entered:
        assert acts.act(function, made, command(made), thread) == errno.EACCES
        [denial] = entered.violations
    assert not made.exists()
    assert denial.rule == "commands" and "native_acts" in denial.library
    program = "/bin/sh" if function in {"system", "popen"} else "touch"
    assert denial.suggestion["commands"] in (["touch"], ["/usr/bin/touch"], [program])
    with guard(commands=denial.suggestion["commands"]) as entered:
        assert acts.act(function, made, command(made), thread) == 0
        assert entered.violations == []
    assert made.exists()


@pytest.mark.parametrize("function", EXECUTE)
def test_becomes_a_program_in_a_copy_of_the_process(acts, tmp_path, function, thread):
    """A copy has its own memory, so that what it was denied is told by its library alone."""
    made = tmp_path / "made"

    def before_deny(*_):
        """The host is not asked in the copy, where Python does not run."""
        os.close(os.open(tmp_path / "asked", os.O_CREAT))
        return True

    with Policy(write=["."], native=True).guard(before_deny=before_deny)():
        assert acts.act(function, made, "", thread) == errno.EACCES
    assert os.listdir(tmp_path) == []
    with guard(commands=["touch"]):
        assert acts.act(function, made, "", thread) == 0
    assert made.exists()


def test_signals(acts, thread):
    with guard() as entered:
        assert acts.act("kill 0", "", thread=thread) == 0
        assert entered.violations == []
        assert acts.act("kill", "", thread=thread) == errno.EACCES
        [denial] = entered.violations
    assert denial.event == "os.kill"


@pytest.mark.parametrize("function", ["chdir", "chdir, syscall"])
def test_changes_directory(acts, tmp_path, monkeypatch, function, thread):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "root")
    with guard() as entered:
        assert acts.act(function, "inside", thread=thread) == 0
        assert os.getcwd() == str(tmp_path / "root" / "inside")
        assert acts.act(function, tmp_path, thread=thread) == 0
        assert entered.violations == []
    # The next guard does not begin where the code went.
    with Policy(write=["."], native=True).guard()() as entered:
        assert acts.act("open", "new", thread=thread) == errno.EACCES
        assert acts.act("open", tmp_path / "root" / "inside" / "new", thread=thread) == 0


def test_rings_are_not_there_under_a_guard(acts, thread):
    without = acts.act("io_uring", "", thread=thread)
    with guard() as entered:
        assert acts.act("io_uring", "", thread=thread) == errno.ENOSYS
        assert entered.violations == []
    assert without != errno.ENOSYS or acts.act("io_uring", "", thread=thread) == errno.ENOSYS
