"""The process of a session is killed, or ends, at any moment: the error says so, and it resets."""

import os
import resource
import threading
import time

import pytest

from fastaudit_rs import Limits, Policy, Sandbox, SandboxError


def victim(session):
    """The number of the session's process, which no code has to tell."""
    worker = session._process.worker.pid
    found = [worker]
    while found:
        last = found[0]
        with open(f"/proc/{last}/task/{last}/children") as file:
            found = [int(number) for number in file.read().split()]
        if found:
            worker = found[0]
            break
    return worker


def usable(session):
    """It resets, and goes on."""
    session.reset()
    assert session.names == []
    assert session.run("x = add(1)\nx").value == 2
    session.run("x = 5")
    session.undo()
    assert session.get("x") == 2


def add(a):
    return a + 1


#: A function that ends the process, by a signal that no policy denies.
END = """
import asyncio, os, signal, threading, time
def end(*_):
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    time.sleep(9)
"""

#: Steps that end their process themselves, or are denied it.
ENDS = {
    "os._exit": "os._exit(0)",
    "a signal to itself": "os.kill(os.getpid(), 9)",
    "a signal that is raised": "signal.raise_signal(9)",
    "SIGTERM": "os.kill(os.getpid(), 15)",
    "abort": "os.abort()",
    "a fault": "import ctypes\nctypes.string_at(0)",
    "after output": "print('x' * 10000, flush=True)\nend()",
    "in a task": "async def f(): end()\nawait asyncio.gather(f(), asyncio.sleep(9))",
    "in a thread": "threading.Thread(target=end).start()\ntime.sleep(9)",
    "in a display": "class A: _repr_html_ = end\nA()",
    "in a repr": "class A: __repr__ = end\nA()",
    "in an exception": "class E(Exception): __str__ = end\nraise E",
    "in a finalizer": "class A: __del__ = end\nA()\nNone",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
def test_a_step_that_ends_its_process(shared, name):
    with shared.session(tools={"add": add}) as session:
        session.run(f"{END}x = 1")
        begun = time.monotonic()
        ran = session.run(ENDS[name])
        assert time.monotonic() - begun < 8
        assert not ran.success
        if ran.violations:
            assert session.get("x") == 1
        else:
            with pytest.raises(SandboxError, match=r"has ended .*: reset\(\) starts another"):
                session.run("1")
            with pytest.raises(SandboxError, match="has ended"):
                session.get("x")
            session.undo()
            assert session.get("x") == 1
        usable(session)


def test_a_step_after_one_that_ended_its_process(shared):
    """A copy of the session's process goes on in its place, under the same guard."""
    with shared.session() as session:
        session.run(f"{END}x = 1")
        assert "ended its process" in session.run("end()").error.message
        session.undo()
        for code in ("os._exit(0)", "os.abort()", "os.setsid()"):
            ran = session.run(code)
            assert ran.error.kind == "fastaudit_rs.AuditDenied", (code, ran.error)
        copied = "if not (copy := os.fork()): os._exit(7)\nos.waitpid(copy, 0)[1] >> 8"
        assert session.run(copied).value == 7


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "between", "names", "get", "undo", "reset"])
def test_killed_between_steps(shared, moment):
    with shared.session(tools={"add": add}) as session:
        # Its process answers: one that is killed before it took its job is followed by another.
        assert session.names == []
        if moment != "before":
            session.run("x = 1")
        os.kill(victim(session), 9)
        if moment in ("before", "between"):
            # The step has not begun: it took no memory.
            for _ in range(2):
                with pytest.raises(SandboxError, match=r"has ended \(signal 9\): reset"):
                    session.run("1")
            if moment == "between":
                session.undo()
                assert session.names == []
        elif moment == "names":
            with pytest.raises(SandboxError, match="reset()"):
                session.names
        elif moment == "get":
            with pytest.raises(SandboxError, match="reset()"):
                session.get("x")
        elif moment == "undo":
            session.undo()
            assert session.names == []
        usable(session)


@pytest.mark.slow
@pytest.mark.parametrize("of", ["session", "worker"])
def test_killed_in_a_step(shared, of):
    with shared.session(tools={"add": add}) as session:
        session.run("x = 1")
        number = victim(session) if of == "session" else session._process.worker.pid
        timer = threading.Timer(0.2, os.kill, (number, 9))
        timer.start()
        _ended(session, "import time\ntime.sleep(9)")
        usable(session)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["function", "coroutine", "await"])
@pytest.mark.parametrize("of", ["session", "worker"])
def test_killed_in_a_call_of_a_function(shared, kind, of):
    called = []

    def kill(*_):
        called.append(1)
        os.kill(victim(session) if of == "session" else session._process.worker.pid, 9)
        time.sleep(0.1)
        return 1

    async def kill_later():
        return kill()

    tools = {"add": add, "kill": kill if kind == "function" else kill_later}
    with shared.session(tools=tools) as session:
        session.run("x = 1")
        _ended(session, "kill()" if kind == "function" else "await kill()")
        assert called == [1]
        usable(session)


@pytest.mark.parametrize("of", ["session", "worker"])
def test_killed_in_a_question(of):
    asked = []

    def ask(denied):
        asked.append(denied.rule)
        os.kill(victim(session) if of == "session" else session._process.worker.pid, 9)
        time.sleep(0.1)
        return "once"

    limits = Limits(wall_seconds=20)
    with Sandbox(Policy(read=["/"]), limits, approvable=Policy(env=True)) as sandbox:
        with sandbox.session(tools={"add": add}, on_ask=ask) as session:
            session.run("x = 1")
            _ended(session, "import os; os.environ['ASKED'] = 'x'")
            assert asked == ["env"]
            usable(session)


@pytest.mark.slow
def test_killed_before_undo(shared):
    with shared.session(tools={"add": add}) as session:
        session.run("x = 1")
        os.kill(session._process.worker.pid, 9)
        with pytest.raises(SandboxError, match=r"is lost: reset\(\) begins anew"):
            session.undo()
        usable(session)


@pytest.mark.slow
def test_killed_in_undo(shared):
    """At any moment of it: it goes back, or says that the state is lost."""
    for delay in (0, 0.0005, 0.001, 0.002, 0.005, 0.02):
        with shared.session(tools={"add": add}) as session:
            session.run("x = 1")
            session.run("x = 2")
            timer = threading.Timer(delay, os.kill, (session._process.worker.pid, 9))
            timer.start()
            try:
                session.undo()
                assert session.get("x") == 1
            except SandboxError as error:
                assert "reset()" in str(error)
            timer.join()
            usable(session)


def test_a_reset_without_descriptors_can_be_tried_again(shared):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with shared.session(tools={"add": add}) as session:
        session.run("x = 1")
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            with pytest.raises(SandboxError, match="ulimit -n"):
                session.reset()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with pytest.raises(SandboxError, match=r"has ended .*: reset\(\) starts another"):
            session.run("x")
        usable(session)


def _ended(session, code):
    """Run a step whose process is killed meanwhile: a result that fails, or the error."""
    begun = time.monotonic()
    try:
        ran = session.run(code)
    except SandboxError as error:
        assert "reset()" in str(error)
    else:
        assert not ran.success
    assert time.monotonic() - begun < 8
