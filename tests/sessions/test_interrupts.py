"""Interrupts of steps: those of tools of the host, and late ones."""

import asyncio
import threading

import pytest

from fastaudit_rs import Sandbox

#: It is interrupted as it calls `stop`.
STEP = "try:\n    stop()\n    hit(1)\nfinally:\n    ended()\nhit(2)"
ASYNC = STEP.replace("stop()", "await stop()")


@pytest.fixture
def stopping(make):
    """A session whose tool `stop` interrupts it, and the calls of its other tools."""
    calls = []

    def stop():
        assert session.interrupt()

    session = make(tools={"stop": stop, "hit": calls.append, "ended": lambda: calls.append(0)})
    return session, calls


def is_over(session):
    """True if the next step is left alone."""
    after = session.run("for _ in range(20000): pass\n1")
    return after.error is None and after.value == 1


def test_a_step_does_nothing_after_a_function_that_interrupts_it(stopping):
    session, calls = stopping
    for _ in range(30):
        result = session.run(STEP)
        assert (result.killed_by, result.error.kind) == ("interrupt", "KeyboardInterrupt")
        assert is_over(session)
    # It may end in order, unless that takes it long.
    assert {*calls} == {0} and len(calls) > 20


def test_the_same_of_coroutine_functions(stopping):
    session, calls = stopping

    async def stop():
        assert session.interrupt()
        await asyncio.sleep(0)

    for _ in range(10):
        result = session.run(ASYNC, tools={"stop": stop})
        assert (result.killed_by, result.error.kind) == ("interrupt", "KeyboardInterrupt")
        assert 1 not in calls and 2 not in calls
        assert is_over(session)


def test_a_function_that_interrupts_and_fails(stopping):
    session, calls = stopping

    def stop():
        session.interrupt()
        raise ValueError("failed")

    code = f"try:\n    stop()\nexcept Exception: pass\n{STEP}"
    result = session.run(code, tools={"stop": stop})
    assert result.killed_by == "interrupt" and not {1, 2} & {*calls}


@pytest.mark.slow
def test_an_interrupt_of_a_step_that_is_ending_is_none_of_the_next(session):
    for number in range(100):
        timer = threading.Timer(0.003 + 0.00001 * number, session.interrupt)
        timer.start()
        session.run("import time; time.sleep(0.003)")
        timer.join()
        assert is_over(session)
    assert session.interrupt() is False


@pytest.mark.slow
def test_interrupts_of_threads_that_wait_for_functions(session):
    """The main thread of a step waits for another one to read its answer."""

    def slow():
        threading.Event().wait(0.02)

    code = (
        "import threading\n"
        "threads = [threading.Thread(target=slow) for _ in range(3)]\n"
        "for thread in threads: thread.start()\n"
        "while True: slow()"
    )
    ended = []
    for _ in range(3):
        result = session.run(code, tools={"slow": slow}, timeout=0.1)
        assert result.killed_by == "wall_seconds"
        ended.append(session.run("for thread in threads: thread.join()\n1").value)
        # One that takes long to end, on a busy machine, is killed.
        session.reset()
    assert 1 in ended


@pytest.mark.slow
def test_an_interrupt_of_a_process_that_begins():
    pytest.importorskip("sandlock")
    with Sandbox() as sandbox:
        for number in range(30):
            with sandbox.session() as session:
                timer = threading.Timer(0.0005 * (number % 10), session.interrupt)
                timer.start()
                session.run("import time; time.sleep(0.003)")
                timer.join()
                assert is_over(session)
