"""Many tasks and threads that enter, leave and violate guards of their own, all at once.

`FASTAUDIT_RS_STRESS` is how many seconds it goes on.
"""

import asyncio
import contextlib
import contextvars
import functools
import gc
import os
import random
import sys
import threading
import time

import at_once
import pytest

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("FASTAUDIT_RS_STRESS", 10))
THREADS = 6
TASKS = 50
PLACES = 12


@pytest.fixture
def directories(tmp_path):
    made = [os.path.realpath(tmp_path / str(number)) for number in range(PLACES)]
    for directory in made:
        os.mkdir(directory)
    return made


class Actor:
    """Does at random what its guards allow, and what they do not, and notes what is wrong."""

    def __init__(self, seed, directories, factories):
        self.random = random.Random(seed)
        self.directories = directories
        self.factories = factories
        self.wrong = []
        self.verdicts = 0

    def check(self, inside):
        """One verdict: `inside` are the places of the guard in force; `None` without one."""
        chosen = self.random.randrange(PLACES)
        target = self.directories[chosen]
        operation = self.random.choice(
            [
                lambda: open(f"{target}/{threading.get_ident()}", "w").close(),
                lambda: os.utime(target + "/.", (1, 1)),
                lambda: os.open(target + "/a", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600),
            ]
        )
        self.verdicts += 1
        try:
            made = operation()
        except PermissionError as denied:
            own = None if inside is None else repr(self.directories[inside])
            if inside is None or chosen == inside or f"not in ({own},)" not in denied.args[0]:
                self.wrong.append((inside, chosen, str(denied)))
        else:
            if isinstance(made, int):
                os.close(made)
            if inside is not None and chosen != inside:
                self.wrong.append((inside, chosen, "allowed"))

    async def live(self, until):
        while time.monotonic() < until:
            for _ in range(self.random.randrange(3)):
                self.check(None)
            await asyncio.sleep(0)
            own = self.random.randrange(PLACES)
            with self.factories[own]():
                for _ in range(self.random.randrange(6)):
                    await self.act(own)
            self.check(None)

    async def act(self, own):
        """Something under a guard."""
        kind = self.random.randrange(7)
        if kind == 0:
            await asyncio.sleep(0)
        elif kind == 1:
            with self.factories[own]():
                await asyncio.sleep(0)
                self.check(own)
        elif kind == 2:
            await asyncio.create_task(self.child(own))
        elif kind == 3:
            contextvars.Context().run(self.check, own)
        elif kind == 4:
            async with self.factories[own]():
                self.check(own)
        elif kind == 5:
            for _ in self.generator(own):
                self.check(own)
        self.check(own)

    async def child(self, own):
        await asyncio.sleep(0)
        self.check(own)

    def generator(self, own):
        with self.factories[own]():
            yield
            self.check(own)
            yield


def run_thread(actors, until):
    async def main():
        await asyncio.gather(*(actor.live(until) for actor in actors))

    asyncio.run(main())


@pytest.mark.nightly
def test_no_verdict_is_taken_from_another_guard(mk_audit, directories):
    factories = [
        mk_audit([directory], monitor_calls=number % 2 == 0)
        for number, directory in enumerate(directories)
    ]
    actors = [
        [Actor(f"{thread} {task}", directories, factories) for task in range(TASKS)]
        for thread in range(THREADS)
    ]
    until = time.monotonic() + SECONDS
    at_once.run(*(functools.partial(run_thread, group, until) for group in actors))
    wrong = [found for group in actors for actor in group for found in actor.wrong]
    assert wrong == []
    verdicts = sum(actor.verdicts for group in actors for actor in group)
    print(f"{verdicts} verdicts in {SECONDS} s")
    assert verdicts > 1000 * SECONDS
    # And afterwards no guard is in force.
    open(directories[0] + "/after", "w").close()


def resident():
    """Memory of this process, in bytes."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.alone
@pytest.mark.parametrize(
    ("kind", "count"), [("events", 1_000_000), ("guards", 100_000), ("denials", 50_000)]
)
def test_memory_is_flat(mk_audit, places, kind, count):
    audit_perms = mk_audit([places.ok], monitor_calls=False)
    inside, outside = places.ok + "/a", places.out + "/a"

    def work(times):
        if kind == "events":
            with audit_perms():
                for _ in range(times // 4):
                    sys.audit("compile", None, None)
                    sys.audit("open", outside, "r", 0)
                    sys.audit("open", inside, "w", 0)
                    sys.audit("os.mkdir", inside, 0o777, -1)
        elif kind == "guards":
            for _ in range(times):
                with audit_perms():
                    pass
        else:
            for _ in range(times // 1000):
                with audit_perms():
                    for _ in range(1000):
                        with contextlib.suppress(PermissionError):
                            sys.audit("os.mkdir", outside, 0o777, -1)

    work(count // 10)
    before = resident()
    work(count)
    assert resident() - before < 2_000_000
