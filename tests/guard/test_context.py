"""Where a guard is in force: nesting, tasks, threads, generators, decorated functions."""

import asyncio
import contextvars
import gc
import sys
import weakref

import at_once
import pytest


@pytest.fixture
def audit_perms(mk_audit, places):
    return mk_audit([places.ok], monitor_calls=False)


class TestNesting:
    def test_the_same_factory_may_be_entered_again(self, audit_perms, guarded):
        with audit_perms():
            with audit_perms():
                assert guarded()
            assert guarded()
        assert not guarded()

    def test_another_may_not(self, audit_perms, mk_audit, guarded):
        other = mk_audit(["/"], monitor_calls=False)
        message = r"^Audit: audit_perms.set_config blocked in sandbox with args: \(AuditCfg\(oks="
        with audit_perms():
            with pytest.raises(PermissionError, match=message), other():
                pass
            with pytest.raises(PermissionError, match="audit_perms.set_config blocked"):
                mk_audit(["/"])
            assert guarded()

    def test_another_may_if_the_host_says_so(self, mk_audit, places, guarded):
        asked = []

        def before_deny(event, args, frame, message, data):
            asked.append((event, args[0].oks))
            return event == "audit_perms.set_config"

        outer = mk_audit([places.out], before_deny, monitor_calls=False)
        inner = mk_audit([places.ok], monitor_calls=False)
        with outer():
            assert not guarded()
            with inner():
                assert guarded()
            assert not guarded()
        assert asked == [("audit_perms.set_config", (places.ok,))]

    @pytest.mark.original_fails()
    def test_left_out_of_order(self, audit_perms, guarded):
        first, second, third = (audit_perms() for _ in range(3))
        first.__enter__()
        second.__enter__()
        third.__enter__()
        second.__exit__(None, None, None)
        assert guarded()
        first.__exit__(None, None, None)
        assert guarded()
        third.__exit__(None, None, None)
        assert not guarded()

    @pytest.mark.slow
    def test_deep_and_never_left(self, audit_perms):
        def enter():
            for _ in range(50_000):
                guards.append(audit_perms())
                guards[-1].__enter__()

        guards = []
        context = contextvars.Context()
        context.run(enter)
        del context
        guards.clear()
        gc.collect()


@pytest.mark.original_fails()
class TestOneGuardObject:
    def test_can_be_entered_again_after_it_was_left(self, audit_perms, guarded):
        guard = audit_perms()
        for _ in range(2):
            with guard:
                assert guarded()
            assert not guarded()

    def test_cannot_be_entered_twice_at_a_time(self, audit_perms, guarded):
        guard = audit_perms()
        with guard:
            with pytest.raises(RuntimeError, match=r"entered already.*call audit_perms\(\) anew"):
                guard.__enter__()
            assert guarded()
        assert not guarded()

    def test_cannot_be_left_before_it_was_entered(self, audit_perms):
        with pytest.raises(RuntimeError, match="^this guard is not entered$"):
            audit_perms().__exit__(None, None, None)


class TestTasks:
    def test_inherit_at_creation_and_do_not_leak(self, audit_perms, guarded):
        async def later():
            await asyncio.sleep(0.01)
            return guarded()

        async def main():
            sibling = asyncio.create_task(later())
            with audit_perms():
                child = asyncio.create_task(later())
                assert guarded()
                await asyncio.sleep(0)
                assert guarded()
            assert not guarded()
            return await sibling, await child

        assert asyncio.run(main()) == (False, True)

    def test_nested_inside_an_inherited_guard(self, audit_perms, guarded):
        async def child():
            await asyncio.sleep(0.01)
            with audit_perms():
                pass
            return guarded()

        async def main():
            with audit_perms():
                task = asyncio.create_task(child())
            return await task

        assert asyncio.run(main()) is True

    def test_left_in_another_task(self, audit_perms, guarded):
        guard = audit_perms()

        async def enter():
            guard.__enter__()

        async def leave():
            guard.__exit__(None, None, None)

        async def main():
            await asyncio.create_task(enter())
            assert not guarded()
            with pytest.raises(ValueError, match="[Cc]ontext"):
                await asyncio.create_task(leave())

        asyncio.run(main())

    @pytest.mark.original_fails()
    def test_async_with(self, audit_perms, guarded):
        async def main():
            async with audit_perms():
                await asyncio.sleep(0)
                assert guarded()
            return guarded()

        assert asyncio.run(main()) is False


def test_threads_that_the_host_allows(mk_audit, places, guarded):
    """They start without the guard; since 3.14 in a context that is made under it, so with it."""
    answers = []
    audit_perms = mk_audit([places.ok], lambda event, *_: "thread" in event, monitor_calls=False)
    with audit_perms():
        at_once.run(lambda: contextvars.Context().run(lambda: answers.append(guarded())))
    assert answers == [sys.version_info >= (3, 14)]


def test_other_threads_are_not_guarded(audit_perms, guarded, elsewhere):
    with audit_perms():
        assert not elsewhere(guarded)


class TestDecorator:
    def test_guards_each_call(self, audit_perms, guarded):
        @audit_perms()
        def function(a, b=2):
            "Returns its arguments."
            return a, b, guarded()

        assert function(1) == (1, 2, True)
        assert function(1, b=3) == (1, 3, True)
        assert not guarded()
        assert (function.__name__, function.__doc__) == ("function", "Returns its arguments.")

    @pytest.mark.original_fails(until=(3, 15))
    def test_guards_coroutine_functions(self, audit_perms, guarded):
        @audit_perms()
        async def function():
            await asyncio.sleep(0)
            return guarded()

        async def main():
            return await function(), guarded()

        assert asyncio.run(main()) == (True, False)

    @pytest.mark.original_fails()
    def test_refuses_what_it_cannot_guard(self, audit_perms):
        def generator_function():
            yield

        async def async_generator_function():
            yield

        for function in (generator_function, async_generator_function):
            with pytest.raises(TypeError, match="cannot decorate a generator function"):
                audit_perms()(function)
        with pytest.raises(TypeError, match="^a guard decorates a function, not int$"):
            audit_perms()(3)


@pytest.mark.slow
def test_nothing_is_kept_alive(mk_audit, places):
    class Data:
        pass

    data = Data()
    alive = weakref.ref(data)

    data.before_deny = lambda *args, kept=data: kept
    data.audit_perms = mk_audit([places.ok], data.before_deny, data=data, monitor_calls=False)
    with data.audit_perms():
        pass
    del data
    gc.collect()
    assert alive() is None
