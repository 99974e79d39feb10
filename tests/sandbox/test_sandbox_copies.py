"""Sandboxes across copies of the host (`os.fork`): the copy begins anew, the original goes on."""

import functools
import os
import subprocess
import sys
import textwrap

import pytest
from sandboxes import LOOSE, gone, in_copy, of, running, until

from fastaudit_rs import Limits, Policy, Sandbox, SandboxManager

LIMITS = Limits(wall_seconds=20)


@pytest.mark.parametrize("confine", ["require", "audit"])
def test_a_sandbox_that_has_run(confine):
    with Sandbox(LOOSE, LIMITS, confine=confine) as sandbox:
        assert sandbox.run("1", value=True).value == 1
        assert until(lambda: len(running(of(sandbox))) == 2)
        before = running(of(sandbox))

        def runs():
            for number in range(2):
                assert sandbox.run(f"{number}", value=True).value == number
            others = set(running(of(sandbox))) - {*before, os.getppid()}
            assert others or confine == "audit"
            sandbox.close()
            assert not others.intersection(running(of(sandbox)))

        in_copy(runs)
        assert running(of(sandbox)) == before
        assert sandbox.directory.exists()
        assert sandbox.run("2", value=True).value == 2
    assert gone(of(sandbox))


@pytest.mark.slow
def test_a_session_is_the_originals(sandbox):
    with sandbox.session() as session, Policy(write=[]).session() as here:
        assert session.run("a = 1; a").value == 1
        snapshot = session.snapshot()

        def refused():
            acts = [
                lambda: session.run("a = 2"),
                lambda: session.get("a"),
                lambda: session.names,
                session.undo,
                session.reset,
                session.snapshot,
                lambda: session.restore(snapshot),
                session.diff,
                lambda: here.run("1"),
            ]
            for act in acts:
                with pytest.raises(RuntimeError, match="is one of another process: make one in"):
                    act()
            assert not session.interrupt()
            snapshot.close()
            session.close()
            with pytest.raises(RuntimeError, match="closed"):
                session.run("a")
            with sandbox.session() as own:
                assert own.run("3").value == 3

        in_copy(refused)
        for number in range(5):
            assert session.run(f"a + {number}").value == 1 + number
        session.restore(snapshot)
        assert session.run("a").value == 1


@pytest.mark.slow
def test_the_processes_end_with_the_original_though_a_copy_lives(sandbox):
    code = """
        import os, sys, time
        from fastaudit_rs import Sandbox
        sandbox = Sandbox()
        session = sandbox.session()
        sandbox.run("1"), session.run("1")
        print(sandbox.directory.parent, flush=True)
        if os.fork():
            os.kill(os.getpid(), 9)
        sys.stdin.read()
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)]
    host = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with host:
        place = host.stdout.readline().strip()
        host.wait()
        assert gone(place, 5)
        host.stdin.close()
    subprocess.run(["rm", "-r", place], check=True)


@pytest.mark.slow
def test_a_pool_and_a_manager(sandbox):
    with sandbox.pool(2) as pool, SandboxManager(limits=LIMITS) as manager:
        manager.create("a")
        runners = {pool: pool.run, manager: functools.partial(manager.run, "a")}
        for one, run in runners.items():
            assert run("1", value=True).value == 1

            def runs(one=one, run=run):
                for number in range(3):
                    assert run(f"{number}", value=True).value == number
                one.close()

            in_copy(runs)
            assert run("2", value=True).value == 2


def test_a_run_that_reads_its_input_to_the_end_as_the_host_is_copied(sandbox):
    import threading

    results = []
    (sandbox.directory / "go").unlink(missing_ok=True)
    code = "import sys; open('go', 'w').close(); print(len(sys.stdin.read()))"
    given = b"x" * (1 << 20)
    thread = threading.Thread(target=lambda: results.append(sandbox.run(code, stdin=given)))
    thread.start()
    child = os.fork()
    if not child:
        os.read(os.pipe()[0], 1)
    thread.join()
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert (results[0].stdout, results[0].killed_by) == (f"{1 << 20}\n", None)


def test_a_confined_call():
    policy = Policy(write=[])
    assert policy.call(os.path.basename, "a/b") == "b"

    def calls():
        assert policy.call(os.path.basename, "a/c") == "c"

    in_copy(calls)
    assert policy.call(os.path.basename, "a/d") == "d"
