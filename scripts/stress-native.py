"""Runs native code of many packages under different guards at once.

Fails if one of them had a wrong verdict, or hung.

    stress-native.py 600
"""

import argparse
import asyncio
import contextlib
import faulthandler
import gc
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import duckdb
import numpy
import polars
import pyarrow
from pyarrow import csv, parquet

from fastaudit_rs import AuditDenied, Policy

TABLE = pyarrow.table({"a": list(range(1000))})
FRAME = polars.DataFrame({"a": list(range(1000))})
ARRAY = numpy.zeros(1000)


def copied(path):
    """By threads of duckdb's own."""
    with duckdb.connect() as connection:
        connection.execute(f"copy (select * from range(1000)) to '{path}' (format parquet)")


WRITERS = {
    "polars csv": FRAME.write_csv,
    "polars sink": FRAME.lazy().sink_parquet,
    "duckdb": copied,
    "parquet": lambda path: parquet.write_table(TABLE, path),
    "arrow csv": lambda path: csv.write_csv(TABLE, path),
    "numpy": lambda path: numpy.save(path, ARRAY),
    "python": lambda path: Path(path).write_text("x"),
}


class Stress:
    """Threads and tasks with a root each, and a place that no guard allows."""

    def __init__(self, seconds):
        """Run for so many seconds."""
        self.ends = time.monotonic() + seconds
        self.base = Path(tempfile.mkdtemp(dir="/var/tmp"))
        self.forbidden = self.base / "forbidden"
        self.forbidden.mkdir()
        self.done, self.wrong = Counter(), []

    def goes_on(self):
        """Whether there is time."""
        return time.monotonic() < self.ends and not self.wrong

    def act(self, root, number):
        """Write in the root, or where it is denied, by one of the writers."""
        name = random.choice(list(WRITERS))
        inside = random.random() < 0.5
        path = (root if inside else self.forbidden) / f"{root.name}-{number}.npy"
        error = None
        try:
            WRITERS[name](str(path))
        except Exception as raised:
            error = raised
        if path.exists() != inside or (error is None) != inside:
            self.wrong.append((name, str(path), inside, repr(error)))
        path.unlink(missing_ok=True) if inside else None
        self.done[name, inside] += 1

    def guard(self, name):
        """A guard with a root of its own."""
        root = self.base / name
        root.mkdir(exist_ok=True)
        policy = Policy.preset("notebook").replace(write=[str(root)])
        return root, policy.guard()

    def in_thread(self, index):
        """A thread that enters its guard again and again."""
        root, guard = self.guard(f"thread{index}")
        number = 0
        while self.goes_on():
            with guard():
                for _ in range(5):
                    number += 1
                    self.act(root, number)

    async def task(self, index):
        """A task that switches within its guard."""
        root, guard = self.guard(f"task{index}")
        number = 0
        while self.goes_on():
            with guard():
                for _ in range(5):
                    number += 1
                    self.act(root, number)
                    await asyncio.sleep(0)
            await asyncio.sleep(0.001)

    def in_loop(self):
        """Tasks of different guards."""

        async def main():
            await asyncio.gather(*(self.task(index) for index in range(4)))

        asyncio.run(main())

    def forking(self):
        """A host without a guard that copies the process; the copy enters a guard of its own."""
        while self.goes_on():
            pid = os.fork()
            if pid == 0:
                root, guard = self.guard(f"copy{os.getpid()}")
                status = 1
                with contextlib.suppress(BaseException), guard():
                    pyarrow.OSFile(str(root / "x"), "wb").close()
                    try:
                        pyarrow.OSFile(str(self.forbidden / f"copy{os.getpid()}"), "wb")
                    except (OSError, AuditDenied):
                        status = 0
                os._exit(status)
            if os.waitpid(pid, 0)[1] != 0:
                self.wrong.append(("fork", pid))
            self.done["fork", True] += 1
            time.sleep(0.2)

    def collecting(self):
        """Cycles that are collected under whatever guard is in force."""
        while self.goes_on():
            cycle = []
            cycle.append(cycle)
            gc.collect()
            time.sleep(0.01)

    def run(self):
        """Run all, and tell what was done."""
        works = [lambda index=index: self.in_thread(index) for index in range(4)]
        works += [self.in_loop, self.forking, self.collecting]
        threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(1, self.ends - time.monotonic()) + 120)
        hung = [thread.name for thread in threads if thread.is_alive()]
        left = list(self.forbidden.iterdir())
        print(f"{sum(self.done.values())} acts, of these {dict(self.done)}")
        print(f"wrong: {self.wrong}; hung: {hung}; written where nobody may: {left}")
        return not (self.wrong or hung or left)


def main():
    """Run for as long as is said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float)
    given = parser.parse_args()
    faulthandler.dump_traceback_later(given.seconds + 300, exit=True)
    is_right = Stress(given.seconds).run()
    sys.stdout.flush()
    os._exit(not is_right)


if __name__ == "__main__":
    main()
