"""Acts of native code in threads and tasks of different guards: no verdict is another guard's."""

import asyncio
import errno
import threading

import pytest

from fastaudit_rs import Policy

TIMES = 300


def places(tmp_path, count):
    for number in range(count):
        place = tmp_path / str(number)
        place.mkdir()
        yield place


def wrong(act, own, other, thread, number):
    """The verdicts that are not those of a guard that may write in `own` alone."""
    path = own if number % 3 else other
    error = act("open", path / "file", thread=thread)
    return [] if error == (0 if path is own else errno.EACCES) else [(thread, path, error)]


@pytest.mark.parametrize("thread", ["attached", "released"])
def test_threads(acts, tmp_path, thread):
    own = [*places(tmp_path, 4)]
    found = []

    def work(index):
        policy = Policy(write=[str(own[index])], native=True)
        for number in range(TIMES):
            with policy.guard()() as guard:
                found.extend(wrong(acts.act, own[index], own[index - 1], thread, number))
                if len(guard.violations) != (number % 3 == 0):
                    found.append(guard.violations)

    workers = [threading.Thread(target=work, args=[index]) for index in range(len(own))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == []


@pytest.mark.parametrize("thread", ["attached", "released"])
def test_tasks(acts, tmp_path, thread):
    own = [*places(tmp_path, 4)]
    found = []

    async def work(index):
        with Policy(write=[str(own[index])], native=True).guard()():
            for number in range(TIMES):
                found.extend(wrong(acts.act, own[index], own[index - 1], thread, number))
                await asyncio.sleep(0)

    async def main():
        await asyncio.gather(*map(work, range(len(own))))

    asyncio.run(main())
    assert found == []
