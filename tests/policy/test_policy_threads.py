"""`Policy(threads="inherit")`: threads run under the guard that they are started under."""

import _thread
import json
import multiprocessing.resource_tracker
import os
import sys
import threading

import at_once
import pytest
import waiting

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

    at_once.run(run)
    return results[0]


class TestInherit:
    def test_a_thread_runs_under_the_guard(self, perms, places):
        with perms() as guard:
            os.mkdir(places.ok + "/a")
            assert in_a_thread(os.mkdir, places.ok + "/b") is None
            denied = in_a_thread(os.mkdir, places.out + "/a")
            inner = in_a_thread(in_a_thread, os.mkdir, places.out + "/b")
        assert isinstance(denied, AuditDenied) and isinstance(inner, AuditDenied)
        assert [denied.path for denied in guard.violations] == [
            places.out + "/a",
            places.out + "/b",
        ]
        assert os.listdir(places.out) == []

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
                waiting.until(lambda: guard.violation_count)
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
        # A guard is in force as long as a thread runs under it.
        Bar.monitor.exit()

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

    def test_a_recording_has_the_name_of_what_a_thread_calls(self):
        def work():
            pass

        class Working(threading.Thread):
            def run(self):
                pass

        with Policy().observe(monitor_calls=False)() as recording:
            for thread in (threading.Thread(target=work), Working()):
                thread.start()
                thread.join()
            _thread.start_new_thread(work, ())
        effects = json.loads(recording.to_json())["effects"]
        told = {effect["args"][0] for effect in effects if effect["effect"] == "thread"}
        named = f"{__name__}.{work.__qualname__}"
        assert told == {named, "threading.Thread._bootstrap"}

    @pytest.mark.parametrize("way", ["guard", "observe"])
    def test_a_method_of_an_object_with_odd_attributes(self, way):
        class Odd:
            def __getattr__(self, name):
                raise ZeroDivisionError(name)

            def work(self):
                done.set()

        done = threading.Event()
        with getattr(Policy(threads="inherit"), way)(monitor_calls=False)():
            _thread.start_new_thread(Odd().work, ())
            assert done.wait(10)

    def test_errors_are_those_of_the_function(self, perms):
        with perms():
            for arguments in ((), (1,), (int, 1)):
                with pytest.raises(TypeError, match="start_new_thread|callable|tuple"):
                    _thread.start_new_thread(*arguments)

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
        # The hook stays, and what it holds has the guard.
        seen[-1] = None
