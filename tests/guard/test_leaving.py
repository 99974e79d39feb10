"""A guard of a `with` statement is left by the end of that statement alone."""

import asyncio
import contextlib
import functools
import gc
import os
import signal
import sys
import weakref

import pytest

pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::pytest.PytestUnhandledThreadExceptionWarning",
)
NONE = (None, None, None)


@pytest.fixture(params=["monitored", "not monitored"])
def audit_perms(request, mk_audit, places):
    # Steps that are left undone as an object goes away are reported to the hook of such errors.
    def pass_on(event, *_):
        return event in ("sys.unraisablehook", "signal.raise_signal")

    monitored = request.param == "monitored"
    return mk_audit([places.ok], before_deny=pass_on, monitor_calls=monitored)


class Result:
    pass


def by_weakref(guard):
    result = Result()
    kept.append(weakref.ref(result, functools.partial(guard.__exit__, None, None)))
    return result


def by_finalizer(guard):
    return type("Result", (), {"__del__": functools.partialmethod(guard.__exit__, *NONE)})()


kept = []


@pytest.fixture(autouse=True)
def forget():
    yield
    kept.clear()
    sys.settrace(None)
    sys.setprofile(None)


class TestWhatIsGuardedCannotLeaveIt:
    @pytest.mark.parametrize("make", [by_weakref, by_finalizer])
    def test_as_an_object_goes_away(self, audit_perms, guarded, make):
        with audit_perms() as guard:
            make(guard)
            assert guarded()
            result = make(guard)
            result = None
            assert guarded()
            del result
            for _result in [make(guard)]:
                assert guarded()
            assert guarded()
        assert not guarded()

    @pytest.mark.parametrize("opcodes", [False, True])
    def test_by_a_trace_function_of_the_frame(self, audit_perms, guarded, opcodes):
        def trace(guard):
            frame = sys._getframe(1)
            frame.f_trace, frame.f_trace_opcodes = guard.__exit__, opcodes
            sys.settrace(lambda *args: None)

        before = sys.gettrace()
        was = []
        with contextlib.suppress(RuntimeError):
            with audit_perms() as guard:
                trace(guard)
                was.append(guarded())
        sys.settrace(before)
        # The trace function failed as the next line began.
        assert was in ([], [True])

    def test_by_a_profile_function(self, audit_perms, guarded):
        def profile(guard):
            sys.setprofile(guard.__exit__)

        with contextlib.suppress(RuntimeError):
            with audit_perms() as guard:
                profile(guard)
                assert guarded()
        sys.setprofile(None)

    @pytest.mark.slow
    def test_by_the_collector(self, audit_perms, guarded):
        with audit_perms() as guard:
            leave = functools.partial(guard.__exit__, None)
            gc.callbacks.append(leave)
            try:
                gc.collect()
                assert guarded()
            finally:
                gc.callbacks.remove(leave)
        assert not guarded()

    def test_by_a_signal(self, audit_perms, guarded):
        before = signal.getsignal(signal.SIGUSR1)
        with audit_perms() as guard:
            signal.signal(signal.SIGUSR1, functools.partial(guard.__exit__, None))
            with contextlib.suppress(RuntimeError, TypeError):
                signal.raise_signal(signal.SIGUSR1)
                for _ in range(100):
                    pass
            assert guarded()
        signal.signal(signal.SIGUSR1, before)
        assert not guarded()

    @pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="came with 3.12")
    def test_by_a_tool_of_sys_monitoring(self, audit_perms, guarded):
        monitoring = sys.monitoring
        was = []

        def watch(guard):
            leave = functools.partial(guard.__exit__, None)
            monitoring.use_tool_id(1, "other")
            monitoring.register_callback(1, monitoring.events.LINE, leave)
            monitoring.set_local_events(1, body.__code__, monitoring.events.LINE)

        def body():
            with audit_perms() as guard:
                watch(guard)
                was.append(guarded())

        try:
            with contextlib.suppress(RuntimeError):
                body()
        finally:
            monitoring.set_local_events(1, body.__code__, 0)
            monitoring.free_tool_id(1)
        assert was in ([], [True])

    @pytest.mark.skipif(sys.version_info < (3, 11), reason="code says no more of it")
    def test_by_the_end_of_another_statement(self, audit_perms, guarded):
        def manager(guard):
            end = functools.partialmethod(guard.__exit__, None, None, None)
            return type("Made", (), {"__enter__": lambda self: self, "__exit__": end})()

        with audit_perms() as guard:
            with contextlib.suppress(RuntimeError, TypeError):
                with manager(guard):
                    pass
            assert guarded()
            with contextlib.suppress(RuntimeError, TypeError):
                native = contextlib.ExitStack()
                native.push(functools.partial(guard.__exit__))
                with native:
                    pass
            assert guarded()
        assert not guarded()

    @pytest.mark.skipif(sys.version_info < (3, 11), reason="code says no more of it")
    def test_by_a_statement_in_one_that_is_awaited(self, audit_perms, guarded):
        async def main():
            async with contextlib.AsyncExitStack():
                async with audit_perms() as guard:
                    other = contextlib.AsyncExitStack()
                    other.push(guard.__exit__)
                    with contextlib.suppress(RuntimeError):
                        async with other:
                            await asyncio.sleep(0)
                    assert guarded()

        asyncio.run(main())
        assert not guarded()


class TestStatementsEnd:
    def test_with_an_exception(self, audit_perms, guarded):
        for _ in range(3):
            with pytest.raises(KeyError):
                with audit_perms():
                    raise KeyError
            assert not guarded()

    def test_with_return_break_and_continue(self, audit_perms, guarded):
        def function(value):
            for index in range(5):
                with audit_perms():
                    if index == 0:
                        continue
                    if index == 2:
                        break
                    if value:
                        with contextlib.suppress(ValueError):
                            return guarded()
                assert not guarded()
            return None

        assert function(True) is True
        assert not guarded()
        assert function(False) is None
        assert not guarded()

    def test_in_others_and_of_more_than_one(self, audit_perms, guarded):
        with (
            audit_perms(),
            open(os.devnull) as file,
            audit_perms() as inner,
        ):
            assert guarded()
            try:
                with audit_perms():
                    raise KeyError
            except KeyError:
                assert guarded()
            finally:
                assert inner.violation_count
        assert file.closed
        assert not guarded()

    def test_in_a_large_function(self, audit_perms, guarded):
        body = "\n".join(f"            x{number} = {number}.5" for number in range(2000))
        code = f"def f():\n    for _ in range(2):\n        with perms():\n{body}\n"
        code += "            if x1999 and not guarded(): raise SystemExit\n    return guarded()\n"
        space = {"perms": audit_perms, "guarded": guarded}
        exec(code, space)
        assert space["f"]() is False

    def test_in_generators_and_coroutines(self, audit_perms, guarded):
        def generate():
            with audit_perms():
                yield guarded()

        assert list(generate()) == [True]
        generator = generate()
        assert next(generator)
        generator.close()
        assert not guarded()
        generator = generate()
        assert next(generator)
        with pytest.raises(KeyError):
            generator.throw(KeyError)
        assert not guarded()
        generator = generate()
        assert next(generator)
        del generator
        gc.collect()
        assert not guarded()

        async def enter(fails):
            async with audit_perms():
                await asyncio.sleep(0)
                assert guarded()
                if fails:
                    raise KeyError
            async with audit_perms(), contextlib.AsyncExitStack():
                return guarded()

        async def main():
            assert await enter(False)
            with pytest.raises(KeyError):
                await enter(True)
            return guarded()

        assert asyncio.run(main()) is False

    @pytest.mark.parametrize("leaves", ["pass", "return", "continue", "break", "raise KeyError"])
    @pytest.mark.parametrize(
        "statement",
        [
            "async with other(): async with perms():",
            "async with other(), perms() as guard:",
            "with null(): async with perms():",
            "with null(): with perms() as guard:",
            "async with perms(): async with other(): async with perms():",
            "async with other(): try: async with perms():",
            "async for _ in numbers(): async with perms():",
        ],
    )
    def test_in_others_that_are_awaited(self, audit_perms, guarded, statement, leaves):
        code = "async def f():\n  for _ in range(3):\n"
        for depth, line in enumerate(statement.replace(": ", ":\n").split("\n")):
            code += "   " + " " * depth + line + "\n"
        body = " " * (depth + 4)
        code += f"{body}await sleep(0)\n{body}held.append(guarded())\n{body}{leaves}\n"
        if "try:" in statement:
            code += "    finally: pass\n"

        @contextlib.asynccontextmanager
        async def other():
            await asyncio.sleep(0)
            yield

        async def numbers():
            yield 1

        held = []
        space = {"perms": audit_perms, "guarded": guarded, "held": held, "other": other}
        space |= {"numbers": numbers, "null": contextlib.nullcontext, "sleep": asyncio.sleep}
        exec(code, space)
        with contextlib.suppress(KeyError):
            asyncio.run(space["f"]())
        assert held in ([True], [True] * 3)
        assert not guarded()

    def test_traced(self, audit_perms, guarded):
        def trace(frame, event, argument):
            frame.f_trace_opcodes = True
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            with audit_perms():
                inside = guarded()
        finally:
            sys.settrace(before)
        assert inside
        assert not guarded()
