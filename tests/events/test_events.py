"""The events of the contract: which are denied, which are checked where, with what message."""

import inspect
import itertools
import os
import sys
import types
from unittest import mock

import programs
import pytest
from event_rows import BOTH, DENIED, DENIED_BY_US, DESTINATION, FIRST, IGNORED

MADE = [("os.mkfifo", [0]), ("os.mknod", [0])]


def by_us(event):
    """A test that the original fails."""
    return pytest.param(event, marks=pytest.mark.original_fails())


@pytest.mark.parametrize("event", DENIED + [by_us(event) for event in DENIED_BY_US])
def test_denied_outright(guard, event):
    message = f"Audit: {event} blocked in sandbox with args: ('a', 1)"
    with guard(), pytest.raises(PermissionError) as denial:
        sys.audit(event, "a", 1)
    assert denial.value.args[0] == message
    assert denial.value.args == (message,)


@pytest.mark.parametrize(
    ("event", "judged"),
    [
        *((event, [0]) for event in FIRST),
        *(pytest.param(*row, marks=pytest.mark.original_fails()) for row in MADE),
        *((event, [1]) for event in DESTINATION),
        *((event, [0, 1]) for event in BOTH),
    ],
)
def test_paths_are_checked(guard, places, event, judged):
    inside, outside = places.ok + "/a", places.out + "/a"
    with guard():
        for paths in itertools.product([inside, outside], repeat=len(judged)):
            arguments = [outside if judged == [1] else 0] * 2
            for at, path in zip(judged, paths, strict=True):
                arguments[at] = path
            if outside not in paths:
                sys.audit(event, *arguments)
                continue
            with pytest.raises(PermissionError) as denial:
                sys.audit(event, *arguments)
            assert denial.value.args[0] == f"{event} {outside!r} not in ({places.ok!r},)"


@pytest.mark.parametrize("event", IGNORED)
def test_other_events_pass(guard, places, event):
    with guard():
        sys.audit(event, places.out + "/a")


def test_a_repr_that_interrupts_does(guard):
    class Odd:
        def __repr__(self):
            raise KeyboardInterrupt

    with guard(), pytest.raises(KeyboardInterrupt):
        sys.audit("os.system", Odd())


class TestSensitiveAttributes:
    @pytest.mark.original_fails()
    def test_a_mock_with_the_signature_of_a_function(self, guard):
        """It copies all attributes of the function to one that it makes."""

        def function(a, *, b=1):
            return a + b

        with guard():
            double = mock.create_autospec(function, return_value=3)
            assert double(1, b=1) == 3
            with pytest.raises(TypeError, match="unexpected keyword"):
                double(1, c=1)
            with mock.patch.object(os.path, "basename", autospec=True, return_value="x"):
                assert os.path.basename("y") == "x"

    @pytest.mark.original_fails()
    def test_marking_a_generator_function_awaitable_passes(self, guard):
        def generate():
            yield

        with guard():
            types.coroutine(generate)
        assert generate.__code__.co_flags & inspect.CO_ITERABLE_COROUTINE

    def test_marking_it_and_changing_more_is_denied(self, guard):
        def generate(a=1):
            yield "x"

        code = generate.__code__
        marked = code.co_flags | inspect.CO_ITERABLE_COROUTINE

        class Equal(str):
            __slots__ = ()

            def __eq__(self, other):
                return True

            __hash__ = str.__hash__

        consts = tuple(Equal("y") if const == "x" else const for const in code.co_consts)
        others = [
            code.replace(co_flags=marked, co_consts=consts),
            code.replace(co_flags=marked, co_name="other"),
            code.replace(co_flags=marked | inspect.CO_COROUTINE),
            code.replace(co_flags=marked, co_argcount=0),
            code.replace(),
            code,
        ]
        with guard():
            for other in others:
                with pytest.raises(PermissionError, match="__code__"):
                    generate.__code__ = other
        assert generate.__code__ is code


def test_the_first_import_of_asyncio_passes(request):
    program = """
import subprocess
import sys
from PACKAGE import mk_audit
with mk_audit([], monitor_calls=False)():
    import asyncio
    asyncio.run(asyncio.sleep(0))
"""
    program = program.replace("PACKAGE", request.config.getoption("--implementation"))
    programs.printed(program)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="raises no event for it under a guard")
def test_another_interpreter_is_refused_cleanly():
    """3.12 crashes where a hook refuses it as the event asks."""
    program = """
import _xxsubinterpreters as interpreters
from fastaudit_rs import mk_audit
with mk_audit(["/tmp"], monitor_calls=False)() as guard:
    try:
        interpreters.create()
    except Exception:
        print("refused", guard.violations[0].event)
interpreters.destroy(interpreters.create())
"""
    assert programs.printed(program) == "refused cpython.PyInterpreterState_New\n"
