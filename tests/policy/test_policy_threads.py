"""`Policy(threads="inherit")`: threads run under the guard that they are started under."""

import _thread
import asyncio
import multiprocessing.resource_tracker
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fastaudit_rs import AuditDenied, Policy


@pytest.fixture
def perms(places):
    policy = Policy(write=[places.ok], threads="inherit")
    return policy.guard(monitor_calls=False)


def in_a_thread(function, *args):
    results = []

    def run():
        try:
            results.append(function(*args))
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


class TestInherit:
    def test_a_thread_runs_under_the_guard(self, perms, places):
        with perms() as guard:
            os.mkdir(places.ok + "/a")
            assert in_a_thread(os.mkdir, places.ok + "/b") is None
            denied = in_a_thread(os.mkdir, places.out + "/a")
        assert isinstance(denied, AuditDenied)
        assert [denied.path for denied in guard.violations] == [places.out + "/a"]
        assert os.listdir(places.out) == []

    def test_also_threads_that_threads_start(self, perms, places):
        with perms() as guard:
            inner = in_a_thread(in_a_thread, os.mkdir, places.out + "/a")
        assert isinstance(inner, AuditDenied)
        assert guard.violation_count == 1

    def test_also_after_the_block(self, perms, places):
        """The thread goes on under its guard; whoever left it is free."""
        go = threading.Event()
        results = []

        def wait():
            go.wait(10)
            try:
                os.mkdir(places.out + "/a")
            except AuditDenied as denied:
                results.append(denied)

        with perms() as guard:
            thread = threading.Thread(target=wait)
            thread.start()
        os.mkdir(places.out + "/b")
        go.set()
        thread.join()
        assert len(results) == 1
        assert guard.violation_count == 1
        assert os.listdir(places.out) == ["b"]

    def test_executors(self, perms, places):
        with perms(), ThreadPoolExecutor(2) as executor:
            future = executor.submit(os.mkdir, places.out + "/a")
            assert isinstance(future.exception(), AuditDenied)
            assert list(executor.map(int, ["1", "2"])) == [1, 2]

    def test_asyncio(self, perms, places):
        async def main():
            await asyncio.to_thread(os.mkdir, places.ok + "/a")
            loop = asyncio.get_running_loop()
            for run in (
                asyncio.to_thread(os.mkdir, places.out + "/a"),
                loop.run_in_executor(None, os.mkdir, places.out + "/b"),
            ):
                with pytest.raises(AuditDenied):
                    await run

        with perms():
            asyncio.run(main())
        assert os.listdir(places.out) == []

    def test_timers(self, perms, places):
        done = threading.Event()
        results = []

        def run():
            try:
                os.mkdir(places.out + "/a")
            except AuditDenied as denied:
                results.append(denied)
            done.set()

        with perms():
            threading.Timer(0.01, run).start()
        assert done.wait(10)
        assert len(results) == 1

    def test_the_low_level_functions(self, perms, places):
        """With a native function too, which has no frame."""
        caught = []

        def run(path, done):
            try:
                os.mkdir(path)
            except AuditDenied as denied:
                caught.append(denied)
            done.release()

        for start in {_thread.start_new_thread, _thread.start_new}:
            done = threading.Semaphore(0)
            with perms():
                start(run, (places.out + "/a", done))
                start(run, (), {"path": places.out + "/a", "done": done})
                assert done.acquire(timeout=10)
                assert done.acquire(timeout=10)
        assert len(caught) >= 2
        unraisable = []
        hook, sys.unraisablehook = sys.unraisablehook, unraisable.append
        try:
            with perms() as guard:
                _thread.start_new_thread(os.mkdir, (places.out + "/a",))
                deadline = time.monotonic() + 10
                while not guard.violation_count and time.monotonic() < deadline:
                    time.sleep(0.001)
                assert guard.violations[0].event == "os.mkdir"
        finally:
            sys.unraisablehook = hook

    def test_tqdm(self, perms, places):
        tqdm = pytest.importorskip("tqdm")

        class Bar(tqdm.tqdm):
            monitor_interval = 0.01

        # A lock of multiprocessing starts a process of its own for it, where there is none yet.
        multiprocessing.resource_tracker.ensure_running()
        with perms() as guard, open(places.ok + "/bar", "w") as file:
            assert list(Bar(range(3), file=file)) == [0, 1, 2]
        assert guard.violations == []

    def test_other_hooks_can_tell_what_a_thread_calls(self, perms):
        seen = []
        threads = ("_thread.start_new_thread", "_thread.start_joinable_thread")

        def hook(event, args):
            if not seen and event in threads and hasattr(args[0].__self__, "function"):
                seen.append(repr(args[0].__self__.function))

        sys.addaudithook(hook)
        with perms():
            in_a_thread(int)
        assert "Thread._bootstrap of" in seen[-1]

    def test_errors_are_those_of_the_function(self, perms):
        with perms():
            for arguments in ((), (1,), (int, 1)):
                with pytest.raises(TypeError, match="start_new_thread|callable|tuple"):
                    _thread.start_new_thread(*arguments)

    def test_unguarded_threads_are_as_ever(self, perms, places):
        assert in_a_thread(os.mkdir, places.out + "/a") is None
        with perms():
            pass
        assert in_a_thread(os.mkdir, places.out + "/b") is None

    def test_a_later_call_of_the_function_carries_nothing(self, perms, places):
        """An object that a hook gets hold of is no way to put a guard in force elsewhere."""
        seen = []

        def hook(event, args):
            if not seen and event == "_thread.start_new_thread":
                seen.append(args[0])

        sys.addaudithook(hook)
        done = threading.Semaphore(0)
        with perms():
            _thread.start_new_thread(done.release, ())
        assert done.acquire(timeout=10)
        seen[-1]()
        assert done.acquire(timeout=10)
        os.mkdir(places.out + "/a")


DAEMONS = {
    "sleeping": "time.sleep(0.001)",
    "opening": "os.close(os.open(fifo, os.O_RDONLY))",
    "looking up": "socket.getaddrinfo('localhost', 80)",
    "writing": "file.write(b'x'); file.flush()",
    "being denied": "denied()",
}


def assert_ends(program):
    """Three times, as a process with daemon threads does.

    About one in 200 such processes crashes on CPython 3.10, with this package or without: after
    waiting for the GIL, a thread reads the interpreter that `Py_Finalize` has freed. One such crash
    is made up for by another try.
    """
    tries = 3
    may_crash = sys.version_info < (3, 11)
    while tries:
        result = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
        )
        if may_crash and (result.returncode, result.stderr) == (-signal.SIGSEGV, ""):
            may_crash = False
            continue
        assert (result.returncode, result.stderr) == (0, "")
        tries -= 1


CALLBACKS = ("before_deny=slow", "on_denied=slow", "violation", "repr", "fspath", "hook")


@pytest.mark.parametrize("kind", CALLBACKS)
def test_daemon_threads_in_code_that_a_check_calls(places, kind):
    """The thread is held there when the process ends."""
    program = f"""
import os, sys, threading, time
from fastaudit_rs import Policy
def slow(*args):
    time.sleep(0.001)
class Slow:
    def __repr__(self):
        slow()
        return "slow"
    def __fspath__(self):
        slow()
        return {places.out + "/a"!r}
kind = {kind!r}
def run():
    while True:
        try:
            sys.audit("os.mkdir", Slow() if kind in ("repr", "fspath") else "/", 0, -1)
        except OSError:
            pass
        if kind == "hook":
            sys.audit("fastaudit_rs.test")
if kind == "hook":
    sys.addaudithook(lambda event, args: slow() if event == "fastaudit_rs.test" else None)
policy = Policy(threads="inherit", **({{"on_violation": slow}} if kind == "violation" else {{}}))
options = {{kind.split("=")[0]: slow}} if "=" in kind else {{}}
with policy.guard(monitor_calls=False, **options)():
    for _ in range(4):
        threading.Thread(target=run, daemon=True).start()
time.sleep(0.05)
"""
    assert_ends(program)


@pytest.mark.skipif(sys.platform == "win32", reason="has no named pipes")
@pytest.mark.parametrize("work", DAEMONS)
def test_daemon_threads_end_with_the_process(places, work):
    """CPython ends them by unwinding their stacks, which must get past what is ours there."""
    program = f"""
import os, socket, sys, threading, time
from fastaudit_rs import AuditDenied, Network, Policy
os.chdir({places.cwd!r})
fifo = os.path.realpath(f"fifo-{{os.getpid()}}")
os.mkfifo(fifo)
file = open("file", "wb")
def denied():
    try:
        os.mkdir({places.out + "/a"!r})
    except AuditDenied:
        pass
def run():
    while True:
        {DAEMONS[work]}
policy = Policy(write=["."], threads="inherit", max_bytes="1G", network=Network())
with policy.guard(monitor_calls=False)():
    for _ in range(4):
        threading.Thread(target=run, daemon=True).start()
time.sleep(0.05)
"""
    assert_ends(program)


class TestDeny:
    def test_by_default(self, places):
        def start():
            threading.Thread(target=int).start()

        with Policy().guard(monitor_calls=False)(), pytest.raises(AuditDenied) as caught:
            start()
        denied = caught.value
        assert (denied.rule, denied.effect, denied.hint) == (
            "threads", "thread", "threads = 'inherit'",
        )  # fmt: skip
        assert Policy.parse_toml(denied.hint) == Policy(threads="inherit")

    def test_a_thread_that_would_not_carry_the_guard(self):
        """An event that does not come from starting one."""
        assert Policy(threads="inherit").explain("_thread.start_new_thread", int).rule == "threads"
