"""Where a guard was entered: what a denial tells in another thread or task, and tracked calls."""

import asyncio
import contextvars
import gc
import json
import pickle
import queue
import sys
import threading
import weakref

import pytest

from fastaudit_rs import AuditDenied, mk_audit as mk_audit_01, v02
from fastaudit_rs.calls import CallTracker, TrackedCall, active_calls, track_call

EVENT = "somelib.event"


@pytest.fixture
def perms(places):
    return v02.mk_audit([places.ok], monitor_calls=False)


def overreach():
    try:
        sys.audit(EVENT)
    except AuditDenied as denied:
        return denied
    raise AssertionError("it passed")


async def overreach_in_a_task():
    return overreach()


def in_a_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), name="other")
    thread.start()
    thread.join()
    return results[0]


class TestOrigin:
    def test_none_where_it_was_entered(self, perms):
        with perms():
            denied = overreach()
        assert denied.origin is None
        assert "Audit context entered" not in str(denied)

    def test_of_a_context_in_another_thread(self, perms):
        def enter():
            with perms():
                return contextvars.copy_context()

        context = enter()
        denied = in_a_thread(lambda: context.run(overreach))
        assert denied.origin.startswith("Audit context entered in thread 'MainThread' by: ")
        name = enter.__qualname__ if sys.version_info >= (3, 11) else "enter"
        assert denied.origin.endswith(f"{__name__}.{name}")
        assert f"\n{denied.origin}\n" in str(denied)

    def test_while_it_is_entered(self, perms):
        contexts, results = queue.SimpleQueue(), []
        thread = threading.Thread(target=lambda: results.append(contexts.get().run(overreach)))
        thread.start()
        with perms():
            contexts.put(contextvars.copy_context())
            thread.join()
        assert results[0].origin.endswith(".test_while_it_is_entered")

    def test_of_a_task(self, perms):
        async def main():
            with perms():
                inside = overreach()
                task = asyncio.create_task(overreach_in_a_task())
            return inside, await task

        inside, denied = asyncio.run(main())
        assert inside.origin is None
        assert denied.origin.endswith(".main")
        assert "asyncio." in denied.origin

    def test_entered_outside_of_the_loop(self, perms):
        with perms():
            denied = asyncio.run(overreach_in_a_task())
        assert denied.origin.endswith(".test_entered_outside_of_the_loop")

    def test_a_thread_that_is_named_later(self, perms):
        def enter():
            threading.current_thread().name = "late's"
            with perms():
                return contextvars.copy_context()

        context = in_a_thread(enter)
        assert 'in thread "late\'s" by: ' in context.run(overreach).origin

    def test_what_callbacks_get(self, places):
        messages = []

        def before_deny(event, args, frame, msg, data, calls):
            messages.append(msg)

        with v02.mk_audit([places.ok], before_deny, monitor_calls=False)():
            context = contextvars.copy_context()
        denied = in_a_thread(lambda: context.run(overreach))
        assert messages[0].endswith(f"\n{denied.origin}")

    def test_is_kept(self, perms):
        with perms():
            context = contextvars.copy_context()
        denied = in_a_thread(lambda: context.run(overreach))
        assert pickle.loads(pickle.dumps(denied)).origin == denied.origin
        fields = json.loads(json.dumps(denied.to_dict()))
        assert AuditDenied.from_dict(fields).origin == denied.origin

    def test_guards_with_the_rules_of_0_1_tell_none(self, places):
        with mk_audit_01([places.ok], monitor_calls=False)():
            context = contextvars.copy_context()
        assert in_a_thread(lambda: context.run(overreach_01)).origin is None

    def test_keeps_no_frame_alive(self, perms):
        """Neither when the guard is left nor when its context lives on."""

        class Local:
            pass

        def enter(alive, kept):
            local = Local()
            alive.append(weakref.ref(local))
            with perms():
                kept.append(contextvars.copy_context())

        alive, kept = [], []
        enter(alive, kept)
        assert alive[0]() is None
        kept.clear()
        enter(alive, kept)
        assert alive[1]() is None

    @pytest.mark.slow
    def test_a_guard_never_left_is_collected(self, perms):
        class Local:
            pass

        def enter():
            local = Local()
            alive = weakref.ref(local)
            guard = perms()
            guard.__enter__()
            local.guard = guard
            return alive

        alive = contextvars.copy_context().run(enter)
        gc.collect()
        assert alive() is None


def overreach_01():
    try:
        sys.audit("os.system", "x")
    except AuditDenied as denied:
        return denied


class TestTrackedCalls:
    def test_of_a_coroutine_function(self, places):
        seen = []

        def before_deny(event, args, frame, msg, data, calls):
            seen.append(calls)
            return True

        @track_call
        async def tool(number, *, named=None):
            """A tool."""
            await asyncio.sleep(0)
            sys.audit(EVENT)
            return await inner()

        @track_call
        async def inner():
            sys.audit(EVENT)
            return active_calls()

        async def main():
            with v02.mk_audit([places.ok], before_deny, monitor_calls=False)():
                calls = await tool(3, named=4)
                sys.audit(EVENT)
                return calls

        calls = asyncio.run(main())
        assert [len(calls) for calls in seen] == [1, 2, 0]
        [call] = seen[0]
        assert type(call) is TrackedCall
        assert call._fields == ("fn", "args", "kwargs", "module", "qualname", "name")
        assert call[1:3] == ((3,), {"named": 4})
        assert call.fn is tool.__wrapped__ is tool._fastaudit_orig
        assert call.module == __name__ and call.qualname.endswith(".<locals>.tool")
        assert call.name == f"{call.module}.{call.qualname}"
        assert calls == seen[1]
        assert tool.__doc__ == "A tool." and asyncio.iscoroutinefunction(tool)
        assert track_call(tool) is tool

    def test_others_are_not_tracked(self):
        def function():
            return active_calls()

        async def generator():
            yield

        assert track_call(function) is function
        assert track_call(generator) is generator
        assert track_call(len) is len

    def test_a_call_that_failed_has_ended(self):
        contexts = []

        @track_call
        async def fails():
            contexts.append(contextvars.copy_context())
            raise ValueError

        with pytest.raises(ValueError):
            asyncio.run(fails())
        assert contexts[0].run(active_calls) == ()

    def test_a_tracker_of_ones_own(self):
        tracker = CallTracker("mine")
        with tracker.track(len, ["a"], {"b": 1}) as call:
            assert tracker.active() == (call,) and active_calls() == ()
            assert call == (len, ("a",), {"b": 1}, "builtins", "len", "builtins.len")
            with tracker.track(object(), None) as other:
                assert tracker.active() == (call, other)
                assert other.name is None and other.args == ()
        assert tracker.active() == ()

    def test_callbacks_get_those_of_one_tracker(self):
        from fastaudit_rs import _native

        with pytest.raises(RuntimeError, match="another tracker"):
            _native._use_tracker(CallTracker())
