"""Sandboxes in an event loop: nothing holds up the loop, or takes the threads of its executor."""

import asyncio
import inspect
import socket
import threading

import pytest
from loops import awaited
from sandboxes import LOOSE

from fastaudit_rs import Limits, Policy, Sandbox, SandboxManager, SessionManager, sandbox

#: The steps in flight; each of them would need a thread.
MANY = 12

LIMITS = Limits(memory=None, wall_seconds=60)


class Meeting:
    """A tool where so many steps wait for each other."""

    def __init__(self, count):
        self._missing = count
        self._all = asyncio.Event()
        self.threads = 0

    async def __call__(self):
        self._missing -= 1
        if not self._missing:
            self.threads = threading.active_count()
            self._all.set()
        await asyncio.wait_for(self._all.wait(), 60)


def test_twins():
    """Coroutine functions take the arguments of those beside which they stand."""
    classes = Sandbox, SandboxManager, sandbox.Pool, sandbox.SandboxCommands, sandbox.SandboxSession
    names = [(of, name) for of in (*classes, SessionManager) for name in dir(of)]
    twins = [(of, name) for of, name in names if name[:1] == "a" and hasattr(of, name[1:])]
    assert len(twins) >= 10
    for of, name in twins:
        plain, twin = getattr(of, name[1:]), getattr(of, name)
        assert inspect.signature(plain).parameters == inspect.signature(twin).parameters, (of, name)
        # Frameworks ask for it before they call something.
        is_one = inspect.iscoroutinefunction(twin)
        assert is_one or (of, name) == (SessionManager, "asession"), (of, name)

    async def named():
        async with Sandbox(LOOSE) as sandbox, await sandbox.asession(id="mine") as session:
            with pytest.raises(TypeError, match=r"Sandbox.session\(\) .*timeout"):
                await sandbox.asession(timout=1)
            return session.id

    assert asyncio.run(named()) == "mine"


def test_steps_in_flight_hold_no_threads():
    async def main():
        async with Sandbox(LOOSE, LIMITS) as sandbox:
            sessions = [await sandbox.asession() for _ in range(MANY)]
            one, all_of_them = Meeting(1), Meeting(MANY)
            await sessions[0].arun("await meet()", tools={"meet": one})
            steps = [each.arun("await meet(); 7", tools={"meet": all_of_them}) for each in sessions]
            values = [ran.value for ran in await asyncio.gather(*steps)]
            return values, all_of_them.threads - one.threads

    values, more = awaited(main)
    assert values == [7] * MANY
    # Those that begin steps go on to others.
    assert more < MANY


def test_plain_tools_wait_for_themselves_alone():
    """Each blocks a thread of its own: here they wait for each other."""
    barrier = threading.Barrier(3)

    async def main():
        async with Sandbox(LOOSE, LIMITS) as sandbox:
            sessions = [await sandbox.asession() for _ in range(3)]
            tools = {"meet": lambda: barrier.wait(30) >= 0}
            steps = [session.arun("meet() and meet()", tools=tools) for session in sessions]
            return [ran.value for ran in await asyncio.gather(*steps)]

    assert awaited(main) == [True] * 3


def test_a_tool_that_interrupts_its_step():
    """From a thread of its own; the step does nothing after it."""

    async def main():
        async with Sandbox(LOOSE, LIMITS) as sandbox, await sandbox.asession() as session:
            ran = await session.arun("x = 1; stop(); x = 2", tools={"stop": session.interrupt})
            return ran.killed_by, session.get("x")

    assert awaited(main) == ("interrupt", 1)


@pytest.mark.slow
def test_runs_and_pools():
    async def main():
        async with Sandbox(LOOSE, LIMITS) as sandbox, await sandbox.apool(2) as pool:
            runs = [place.arun(str(n), value=True) for n in range(6) for place in (sandbox, pool)]
            found = [ran.value for ran in await asyncio.gather(*runs)]
            long = asyncio.ensure_future(pool.arun("print(1, flush=True)\nwhile True: pass"))
            await asyncio.sleep(0.2)
            long.cancel()
            with pytest.raises(asyncio.CancelledError):
                await long
            return found, (await pool.arun("8", value=True)).value

    assert awaited(main) == ([n for n in range(6) for _ in range(2)], 8)


@pytest.mark.parametrize("made", ["session", "pool", "of a manager"])
def test_starting_does_not_stop_the_loop(monkeypatch, made):
    """It waits in another thread for what the loop does meanwhile."""
    goes_on = threading.Event()

    async def main():
        async with SandboxManager(LOOSE.replace(read=[]), LIMITS) as manager:
            sandbox = manager.create("one")
            real = sandbox._setup.start

            def start(*args, **options):
                assert goes_on.wait(30)
                return real(*args, **options)

            monkeypatch.setattr(sandbox._setup, "start", start)
            starting = {
                "session": sandbox.asession,
                "pool": lambda: sandbox.apool(1),
                "of a manager": lambda: manager.asession("one"),
            }[made]
            asyncio.get_running_loop().call_later(0.05, goes_on.set)
            async with await starting() as found:
                return (await found.arun("7", **{"value": True} if made == "pool" else {})).value

    assert awaited(main) == 7


def test_a_session_in_this_process():
    async def main():
        async with Policy().session() as session:
            ran = await session.arun("await f()", tools={"f": Meeting(1)})
            return ran.returncode

    assert awaited(main) == 0


def test_half_a_message_holds_up_nobody():
    """One thread reads what all processes say: it waits for no rest of a message."""
    from fastaudit_rs.sandbox.host.process import wait_no_longer

    with Sandbox(LOOSE, LIMITS) as sandbox, sandbox.session() as session:
        process = session._process
        here, there = socket.socketpair()
        real, process.worker.control = process.worker.control, here
        try:
            wait_no_longer(here, 1)
            there.sendall(b"\0\0\0")
            process.hear()
            assert process.is_lost
        finally:
            process.worker.control = real
            here.close()
            there.close()
