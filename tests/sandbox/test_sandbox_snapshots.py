"""Snapshots of sessions in sandboxes: copies of a process that wait."""

import os
import time

import pytest
from sandboxes import LOOSE, gone, of
from waiting import until

from fastaudit_rs import Limits, Sandbox, SandboxError

#: A step that ends its process, by a signal that no policy denies.
END = "import signal, time; signal.setitimer(0, 0.01); time.sleep(9)"


def test_objects_and_settings_are_those_of_then(session):
    session.run("import os, sys\nx = [1]\nos.environ['A'] = '1'")
    kept = session.snapshot()
    for _ in range(2):
        session.run("x.append(2); os.environ['A'] = '2'; import this")
        session.restore(kept)
        assert session.run("x, os.environ['A'], 'this' in sys.modules").value == ([1], "1", False)


@pytest.mark.parametrize("undo_depth", [0, 1])
def test_a_process_that_ended(shared, undo_depth):
    with shared.session(undo_depth=undo_depth) as session:
        session.run("x = 1")
        first = session.snapshot()
        session.run("x = 2")
        second = session.snapshot()
        for kept, x in ((first, 1), (second, 2), (first, 1)):
            assert session.run(END).returncode == -14
            with pytest.raises(SandboxError, match=r"\(signal 14\): .*restore\(\) to a snapshot"):
                session.get("x")
            session.restore(kept)
            assert session.get("x") == x
        session.run(END)
        session.reset()
        assert session.names == []


@pytest.mark.slow
def test_a_process_that_was_killed_without_a_state(shared):
    """A step that ignores its interrupt, where no state from before it is kept."""
    with shared.session(undo_depth=0) as session:
        session.run("x = 1")
        kept = session.snapshot()
        # Before 3.13 a block's own handlers miss what arrives where its loop goes back.
        wait = "def wait():\n  while True: pass\n"
        code = wait + "while True:\n  try: wait()\n  except BaseException: pass"
        assert "was killed" in session.run(code, timeout=0.2).error.message
        session.restore(kept)
        assert session.get("x") == 1


def copy_of(session):
    """The process of the last snapshot."""
    return [*session._process.snapshots.values()][-1].process


def test_a_snapshot_that_is_killed(session):
    session.run("x = 1")
    first, second = session.snapshot(), session.snapshot()
    session.run("x = 2")
    os.kill(copy_of(session), 9)
    assert until(lambda: session._process.snapshots[second._number].has_ended)
    with pytest.raises(SandboxError, match="the snapshot's process has ended: the session is as"):
        session.restore(second)
    assert session.get("x") == 2
    session.undo()
    session.restore(first)
    assert session.get("x") == 1


@pytest.mark.slow
def test_the_process_of_all_is_killed(session):
    kept = session.snapshot()
    os.kill(session._process.worker.pid, 9)
    with pytest.raises(SandboxError, match=r"snapshots have ended .* reset\(\) begins anew"):
        for _ in range(3):
            session.restore(kept)
            time.sleep(0.1)
    session.reset()
    assert session.run("1").value == 1
    with pytest.raises(RuntimeError, match="the snapshot is closed"):
        session.restore(kept)


def test_no_process_is_left_for_it(shared):
    """The code has started as many as there may be: the session goes on without a snapshot."""
    with Sandbox(LOOSE, Limits(wall_seconds=20, processes=4)) as sandbox:
        with sandbox.session(undo_depth=0) as session:
            code = "import subprocess\nfor _ in range(9): subprocess.Popen(['sleep', '60'])"
            assert not session.run(code).success
            with pytest.raises(SandboxError, match="cannot be copied: no more may be started"):
                session.snapshot()
            assert session.run("1").value == 1


def test_close_ends_them():
    with Sandbox(LOOSE) as sandbox:
        session = sandbox.session()
        session.snapshot()
        session.close()
        assert gone(of(sandbox))
