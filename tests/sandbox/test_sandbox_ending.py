"""Runs that are ended from outside: by a cancelled `arun`, and by closing."""

import asyncio
import contextlib
import threading
import time

import promises
import pytest
from programs import SLOWER, printed
from sandboxes import LOOSE, gone, of, wait_for

from fastaudit_rs import Sandbox, SandboxManager

#: The seconds that a run may go on after it was ended: most of them are for busy machines.
SOON = 20.0 * SLOWER

#: A run that says that it has begun, and goes on for long.
LONG = """
import time
open("begun", "w").close()
for _ in range(2000):
    time.sleep(0.05)
    open("at", "w").write(str(time.time()))
"""


@contextlib.contextmanager
def running(sandbox, run, *args):
    """A run in a thread, which has begun; the errors that it ended with."""
    errors = []

    def work():
        try:
            run(*args)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(sandbox.directory / "begun")
    try:
        yield errors
    finally:
        thread.join(SOON)
        assert not thread.is_alive()


async def cancelled(sandbox, coroutine):
    task = asyncio.create_task(coroutine)
    await asyncio.to_thread(wait_for, sandbox.directory / "begun")
    begun = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - begun < SOON
    return time.time()


def last_sign(sandbox):
    """The time when its code wrote last, as nothing of it runs any more."""
    at = sandbox.directory / "at"
    before = None
    while (now := at.read_text() if at.exists() else "0") != before:
        before = now
        time.sleep(0.3)
    return float(before or 0)


@pytest.mark.slow
@pytest.mark.holds("host", promises.ENDING)
@pytest.mark.parametrize("through", ["sandbox", "pool", "manager"])
def test_a_cancelled_run_ends(through):
    with contextlib.ExitStack() as stack:
        if through == "manager":
            manager = stack.enter_context(SandboxManager(LOOSE.replace(read=[])))
            sandbox = manager.create("one")
            coroutine = manager.arun("one", LONG)
        else:
            sandbox = stack.enter_context(Sandbox(LOOSE))
            runner = sandbox if through == "sandbox" else stack.enter_context(sandbox.pool(1))
            coroutine = runner.arun(LONG)
        ended = asyncio.run(cancelled(sandbox, coroutine))
        assert last_sign(sandbox) < ended + SOON
        # It can be used on.
        again = manager.run("one", "1") if through == "manager" else runner.run("1")
        assert again.success


@pytest.mark.slow
def test_a_cancelled_run_that_waits_for_its_turn(make_sandbox):
    sandbox = make_sandbox()

    async def main(pool):
        first = asyncio.create_task(pool.arun(LONG))
        await asyncio.to_thread(wait_for, sandbox.directory / "begun")
        second = asyncio.create_task(pool.arun("open('second', 'w')"))
        await asyncio.sleep(0.1)
        for task in (second, first):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with sandbox.pool(1) as pool:
        asyncio.run(main(pool))
        assert pool.run("1").success
    assert "second" not in sandbox.list_files()


@pytest.mark.holds("host", promises.ENDING)
@pytest.mark.parametrize("confine", ["require", "audit"])
def test_closing_ends_a_run(confine):
    sandbox = Sandbox(LOOSE, confine=confine)
    with running(sandbox, sandbox.run, LONG) as errors:
        begun = time.monotonic()
        sandbox.close()
        assert time.monotonic() - begun < SOON
    assert [(type(error), str(error)) for error in errors] == [
        (RuntimeError, "the sandbox was closed meanwhile")
    ]
    assert gone(of(sandbox)) and not sandbox.directory.exists()


@pytest.mark.holds("host", promises.ENDING)
@pytest.mark.parametrize("closed", ["the pool", "the sandbox"])
def test_closing_ends_the_runs_of_a_pool(closed):
    sandbox = Sandbox(LOOSE)
    pool = sandbox.pool(1)
    with running(sandbox, pool.run, LONG) as errors, running(sandbox, pool.run, "1") as waiting:
        begun = time.monotonic()
        (pool if closed == "the pool" else sandbox).close()
        assert time.monotonic() - begun < SOON
    for [error] in (errors, waiting):
        assert (type(error), str(error)) == (RuntimeError, f"{closed} was closed meanwhile")
    with pytest.raises(RuntimeError, match=f"{closed} is closed"):
        pool.run("1")
    pool.close()
    sandbox.close()
    assert gone(of(sandbox)) and not sandbox.directory.exists()


@pytest.mark.slow
def test_closing_by_a_callback_of_its_own_thread(make_sandbox, monkeypatch):
    """A signal handler may close the sandbox whose run its thread waits for."""
    import signal

    sandbox = make_sandbox()
    monkeypatch.setattr("fastaudit_rs.sandbox.host.runner.PATIENCE", 0.1)
    before = signal.signal(signal.SIGALRM, lambda *_: sandbox.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 1)
        with pytest.raises(RuntimeError, match="the sandbox was closed meanwhile"):
            sandbox.run("while True: pass")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_nothing_compiled_is_left(tmp_path):
    """Modules of the sandbox, of `path`, and of programs that it starts."""
    (tmp_path / "elsewhere.py").write_text("x = 1")
    code = """
import subprocess, sys
import own, elsewhere
subprocess.run([sys.executable, "-c", "import own"], check=True)
"""
    with Sandbox(LOOSE, path=[tmp_path]) as sandbox:
        sandbox.write_file("own.py", "x = 1")
        ran = sandbox.run(code)
    assert (ran.success, ran.violations, ran.changed) == (True, [], []), ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere.py"]


#: Asks the kernel in a thread, which goes on between steps.
ASKING = """
import os, threading
open("x", "w").close()
def ask():
    while True:
        os.chmod("x", 0o600)
threading.Thread(target=ask, daemon=True).start()
"""

#: Forgets a sandbox and a session, and has some thread collect them.
FORGETTING = """
import gc, sys, threading, time
from fastaudit_rs import Network, Policy, Sandbox

gc.disable()
policy = Policy.preset("sandbox").replace(network=Network(hosts=["good.test"]))
sandbox = Sandbox(policy)
session = sandbox.session()
assert session.run(sys.argv[1]).success
base, loop = sandbox.directory.parent, sandbox._setup._proxy._loop
forgotten = [sandbox, session]
forgotten.append(forgotten)
threads = []
gc.callbacks.append(lambda *_: threads.append(threading.current_thread().name.split("-")[0]))
del sandbox, session, forgotten
exec(sys.argv[2])
end = time.monotonic() + 20
while base.exists() and time.monotonic() < end:
    time.sleep(0.1)
print(threads[0], base.exists())
"""


@pytest.mark.parametrize(
    ("collects", "thread"),
    [
        # What the code asks comes by a thread of `sandlock`.
        ("gc.set_threshold(1); gc.enable(); time.sleep(1); gc.disable()", "Dummy"),
        ("loop.call_soon_threadsafe(gc.collect)", "fastaudit_rs proxy"),
    ],
)
def test_a_forgotten_sandbox_ends_in_whatever_thread(collects, thread):
    """Also in one that its end waits for."""
    assert printed(FORGETTING, ASKING, collects, timeout=60) == f"{thread} False\n"
