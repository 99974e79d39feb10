"""Runs native code of many packages under different guards at once, of those that are installed.

Fails if one of them had a wrong verdict, or hung.

    stress.py acts 600      what native code does: files that it writes
    stress.py calls 600     which native code is called, as the code itself tells (calls="callee")
    stress.py events 600    the same, as the interpreter tells (calls="events")
"""

import argparse
import asyncio
import contextlib
import faulthandler
import functools
import gc
import os
import random
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy
from lxml import etree

from fastaudit_rs import AuditDenied, Policy

# Not for each build of Python.
with contextlib.suppress(ImportError):
    import greenlet
with contextlib.suppress(ImportError):
    import orjson

ARRAY = numpy.zeros(1000)


class Stress(ABC):
    """Threads, tasks and copies of the process, under a guard of their own each."""

    def __init__(self, seconds: float) -> None:
        """Run for so many seconds."""
        self.ends = time.monotonic() + seconds
        self.done: Counter[tuple[str, bool]] = Counter()
        self.wrong: list[object] = []

    @abstractmethod
    def guard(self, name: str) -> tuple[Any, Any]:
        """What a guard of this name allows, and its factory."""

    @abstractmethod
    def act(self, allowed: Any, number: int) -> None:
        """Do something that is allowed or denied, and note a verdict that is wrong."""

    def left(self) -> list[Path]:
        """What nobody may leave behind."""
        return []

    def goes_on(self) -> bool:
        """Whether there is time."""
        return time.monotonic() < self.ends and not self.wrong

    def in_thread(self, index: int) -> None:
        """A thread that enters its guard again and again."""
        number = 0
        while self.goes_on():
            allowed, guard = self.guard(f"thread{index}")
            with guard():
                for _ in range(5):
                    number += 1
                    self.act(allowed, number)

    async def task(self, index: int) -> None:
        """A task that switches within its guard."""
        number = 0
        while self.goes_on():
            allowed, guard = self.guard(f"task{index}")
            with guard():
                for _ in range(5):
                    number += 1
                    self.act(allowed, number)
                    await asyncio.sleep(0)
            await asyncio.sleep(0.001)

    def in_loop(self) -> None:
        """Tasks of different guards."""

        async def main() -> None:
            await asyncio.gather(*(self.task(index) for index in range(4)))

        asyncio.run(main())

    def forking(self) -> None:
        """A host without a guard that copies the process; the copy enters a guard of its own."""
        while self.goes_on():
            pid = os.fork()
            if pid == 0:
                status = 1
                # Without the interpreter's lock, CPython hands the lock of a dictionary to a thread
                # that waits for it: if the process is copied just then, it stays locked there.
                self.done = Counter()
                with contextlib.suppress(BaseException):
                    allowed, guard = self.guard(f"copy{os.getpid()}")
                    with guard():
                        for number in range(5):
                            self.act(allowed, number)
                    status = int(bool(self.wrong))
                os._exit(status)
            if os.waitpid(pid, 0)[1] != 0:
                self.wrong.append(("fork", pid))
            self.done["fork", True] += 1
            time.sleep(0.2)

    def collecting(self) -> None:
        """Cycles that are collected under whatever guard is in force."""
        while self.goes_on():
            cycle: list[object] = []
            cycle.append(cycle)
            gc.collect()
            time.sleep(0.01)

    def run(self) -> bool:
        """Run all, and tell what was done."""
        works = [functools.partial(self.in_thread, index) for index in range(4)]
        works += [self.in_loop, self.forking, self.collecting]
        threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(1, self.ends - time.monotonic()) + 120)
        hung = [thread.name for thread in threads if thread.is_alive()]
        print(f"{sum(self.done.values())} acts, of these {dict(self.done)}")
        print(f"wrong: {self.wrong}; hung: {hung}; left behind: {self.left()}")
        return not (self.wrong or hung or self.left())


class Acts(Stress):
    """Writers with a root each, and a place that no guard allows."""

    def __init__(self, seconds: float) -> None:
        """Run for so many seconds."""
        super().__init__(seconds)
        self.base = Path(tempfile.mkdtemp(dir="/var/tmp"))
        self.forbidden = self.base / "forbidden"
        self.forbidden.mkdir()
        self.writers = self.all_writers()

    @staticmethod
    def all_writers() -> dict[str, Callable[[str], object]]:
        """What writes a file, by packages that are not needed elsewhere too."""
        import duckdb
        import polars
        import pyarrow
        from pyarrow import csv, parquet

        table = pyarrow.table({"a": list(range(1000))})
        frame = polars.DataFrame({"a": list(range(1000))})

        def copied(path: str) -> None:
            """By threads of duckdb's own."""
            with duckdb.connect() as connection:
                connection.execute(f"copy (select * from range(1000)) to '{path}' (format parquet)")

        return {
            "polars csv": frame.write_csv,
            "polars sink": frame.lazy().sink_parquet,
            "duckdb": copied,
            "parquet": lambda path: parquet.write_table(table, path),
            "arrow csv": lambda path: csv.write_csv(table, path),
            "numpy": lambda path: numpy.save(path, ARRAY),
            "python": lambda path: Path(path).write_text("x"),
        }

    def guard(self, name: str) -> tuple[Path, Any]:
        """A guard with a root of its own."""
        root = self.base / name
        root.mkdir(exist_ok=True)
        policy = Policy.preset("notebook").replace(write=[str(root)])
        return root, policy.guard()

    def act(self, allowed: Path, number: int) -> None:
        """Write in the root, or where it is denied, by one of the writers."""
        # Threads of others do not survive a copy of the process.
        is_copy = allowed.name.startswith("copy")
        names = ["arrow csv", "numpy", "python"] if is_copy else list(self.writers)
        name = random.choice(names)
        inside = random.random() < 0.5
        path = (allowed if inside else self.forbidden) / f"{allowed.name}-{number}.npy"
        error = None
        try:
            self.writers[name](str(path))
        except Exception as raised:
            error = raised
        if path.exists() != inside or (error is None) != inside:
            self.wrong.append((name, str(path), inside, repr(error)))
        path.unlink(missing_ok=True) if inside else None
        self.done[name, inside] += 1

    def left(self) -> list[Path]:
        """Files where nobody may write."""
        return list(self.forbidden.iterdir())


class Unknown:
    """An object that native code asks Python code about."""


def told(value: object, default: Callable[[object], object]) -> bytes:
    """A call of native code that calls Python code."""
    return orjson.dumps(value, default=default)


def raises(_: object) -> object:
    """Raise through frames of native code."""
    raise ZeroDivisionError


def through_an_exception() -> None:
    """Native code passes the exception of Python code on, in an error of its own."""
    try:
        told(Unknown(), raises)
    except orjson.JSONEncodeError:
        return
    raise AssertionError("nothing was raised")


def on_stacks() -> None:
    """Leave a native call half-way for another stack, and come back to it."""

    def switches(_: object) -> object:
        parent.switch()
        return 1

    parent = greenlet.getcurrent()
    first, second = (greenlet.greenlet(told) for _ in range(2))
    first.switch(Unknown(), switches)
    second.switch(Unknown(), switches)
    first.switch()
    second.switch()


def many_freed() -> None:
    """Functions that are made and freed by the hundred."""
    bound = [ARRAY.item for _ in range(300)]
    bound[-1](3)
    del bound
    for copy in [ARRAY.copy for _ in range(300)][:3]:
        copy()


CALLS: dict[str, tuple[str, Callable[[], object]]] = {
    "a function": ("orjson", lambda: orjson.dumps([1])),
    "by map": ("orjson", lambda: list(map(orjson.loads, [b"1"] * 3))),
    "a callback": ("orjson", lambda: told(Unknown(), lambda _: 1)),
    "an exception": ("orjson", through_an_exception),
    "stacks": ("orjson", on_stacks),
    "a bound method": ("numpy", lambda: ARRAY.item(3)),
    "by sorted": ("numpy", lambda: sorted([2, 1], key=numpy.float64)),
    "freed functions": ("numpy", many_freed),
    "made at run time": ("numpy", lambda: numpy.frompyfunc(abs, 1, 1)(-1)),
    "a class made at run time": ("numpy", lambda: type("Sub", (numpy.ndarray,), {})((1,))),
    "a Cython function": ("lxml", lambda: etree.fromstring("<a/>")),
    "a Cython class": ("lxml", lambda: etree.XMLParser()),
    "a bound Cython method": ("lxml", lambda: functools.partial(etree.XPath, "a")()),
}
# The interpreter does not tell of calls that its own native code makes.
UNTOLD = {"by map", "by sorted", "a bound Cython method"}
NEEDS = {"stacks": "greenlet"}
PACKAGES = [name for name in ("orjson", "numpy", "lxml") if name in sys.modules]


class Calls(Stress):
    """Callers that may call native code of some packages."""

    def __init__(self, seconds: float, side: Literal["callee", "events"]) -> None:
        """Run for so many seconds, with calls watched from this side."""
        super().__init__(seconds)
        self.side: Literal["callee", "events"] = side
        self.calls = [
            name
            for name, (package, _) in CALLS.items()
            if package in PACKAGES
            and NEEDS.get(name, package) in sys.modules
            and not (side == "events" and name in UNTOLD)
        ]

    def guard(self, name: str) -> tuple[list[str], Any]:
        """A guard that lets some packages be called."""
        allowed = random.sample(PACKAGES, random.randrange(len(PACKAGES)))
        return allowed, Policy(native=[*allowed, "greenlet"]).guard(calls=self.side)

    def act(self, allowed: list[str], number: int) -> None:
        """Call native code."""
        name = random.choice(self.calls)
        package, call = CALLS[name]
        is_denied, error = False, None
        try:
            call()
        except AuditDenied:
            is_denied = True
        except BaseException as raised:
            error = raised
        if is_denied != (package not in allowed) or error is not None:
            self.wrong.append((name, allowed, is_denied, repr(error), number))
        self.done[name, not is_denied] += 1


def main() -> None:
    """Run for as long as is said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["acts", "calls", "events"])
    parser.add_argument("seconds", type=float)
    given = parser.parse_args()
    faulthandler.dump_traceback_later(given.seconds + 300, exit=True)
    kinds: dict[str, Callable[[float], Stress]] = {
        "acts": Acts,
        "calls": functools.partial(Calls, side="callee"),
        "events": functools.partial(Calls, side="events"),
    }
    is_right = kinds[given.what](given.seconds).run()
    sys.stdout.flush()
    os._exit(not is_right)


if __name__ == "__main__":
    main()
