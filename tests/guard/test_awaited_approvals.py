"""An `on_ask` that is a coroutine function: the guest waits in another thread."""

import asyncio
import os
import threading
import time

import pytest
from asked import write

from fastaudit_rs import AuditDenied, Policy


async def answered(policy, ask, work, **options):
    """Run work in a thread under a guard that a coroutine answers for."""
    perms = policy.guard(on_ask=ask, **options)

    def run():
        with perms():
            return work()

    return await asyncio.to_thread(run)


def test_a_coroutine_answers_while_the_guest_waits(places):
    ticks = []

    async def ask(denied):
        for _ in range(5):
            await asyncio.sleep(0.01)
            ticks.append(threading.current_thread())
        # It has the rights of the host.
        write(f"{places.cwd}/{os.path.basename(denied.path)}")
        return "once"

    policy = Policy(write=[places.ok])
    asyncio.run(answered(policy, ask, lambda: write(f"{places.out}/a")))
    assert ticks == [threading.main_thread()] * 5
    assert os.listdir(places.out) == os.listdir(places.cwd) == ["a"]


def test_a_coroutine_that_takes_too_long_is_no(places):
    ended = []

    async def ask(denied):
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(denied.path)

    async def main():
        with pytest.raises(AuditDenied, match="nobody answered within 0.2 seconds") as denial:
            await answered(policy, ask, lambda: write(f"{places.out}/a"), ask_seconds=0.2)
        await asyncio.sleep(0)
        return denial.value

    policy = Policy(write=[places.ok])
    begun = time.monotonic()
    denied = asyncio.run(main())
    assert 0.2 <= time.monotonic() - begun < 30
    assert isinstance(denied.__cause__, TimeoutError)
    assert ended == [f"{places.out}/a"]


def test_a_coroutine_that_raises_is_no(places):
    async def ask(denied):
        raise LookupError("nobody")

    policy = Policy(write=[places.ok])
    with pytest.raises(AuditDenied, match="on_ask raised LookupError: nobody"):
        asyncio.run(answered(policy, ask, lambda: write(f"{places.out}/a")))


def test_the_loop_does_not_wait_for_itself(places):
    async def ask(denied):
        return "once"

    async def main():
        with Policy(write=[places.ok]).guard(on_ask=ask)():
            with pytest.raises(AuditDenied, match="run the guarded code in a thread"):
                write(f"{places.out}/a")

    asyncio.run(main())
    assert os.listdir(places.out) == []


def test_a_coroutine_needs_a_loop():
    async def ask(denied):
        return "once"

    with pytest.raises(TypeError, match="no event loop runs here"):
        Policy().guard(on_ask=ask)

    async def main(seconds):
        Policy().guard(on_ask=ask, ask_seconds=seconds)

    with pytest.raises(ValueError, match="ask_seconds must be above 0"):
        asyncio.run(main(0))
    with pytest.raises(TypeError, match="ask_seconds must be a number"):
        asyncio.run(main("5"))
