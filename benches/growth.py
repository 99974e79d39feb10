"""One process of the scaling benchmark: what an implementation takes as something grows.

Run as `python growth.py IMPLEMENTATION DIRECTORY`; prints `{curve: {size: nanoseconds}}` as JSON.
"""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from time import perf_counter_ns
from typing import Any

from worker import implementation, least

Curve = dict[int, float]


def opened(path: str) -> Callable[[int], None]:
    """Opens a file for writing so many times."""

    def run(count: int) -> None:
        for _ in range(count):
            os.close(os.open(path, os.O_WRONLY))

    return run


def event(count: int) -> None:
    """An event of no interest."""
    audit = sys.audit
    for _ in range(count):
        audit("os.listdir", "x")


def roots(mk_audit: Any, base: str) -> Curve:
    """An `open` for writing in the last of so many roots."""
    found = {}
    for count in (1, 10, 100, 1000):
        places = [os.path.join(base, "roots", str(number)) for number in range(count)]
        for place in places:
            os.makedirs(place, exist_ok=True)
        file = os.path.join(places[-1], "file")
        open(file, "w").close()
        with mk_audit(places, monitor_calls=False)():
            found[count] = least(opened(file), 500)
    return found


def depth(mk_audit: Any, base: str) -> Curve:
    """An `open` for writing so many directories below a root."""
    found = {}
    for count in (1, 2, 5, 10, 20, 50):
        place = os.path.join(base, *["d"] * count)
        os.makedirs(place, exist_ok=True)
        file = os.path.join(place, "file")
        open(file, "w").close()
        with mk_audit([base], monitor_calls=False)():
            found[count] = least(opened(file), 500)
    return found


def stack(mk_audit: Any, base: str) -> Curve:
    """A denied `os.system`, caught, below so many frames."""
    sys.setrecursionlimit(20_000)
    guard = mk_audit([base], monitor_calls=False)()

    def denied(count: int) -> None:
        run, argument = (os.close, -1) if isinstance(guard, nullcontext) else (os.system, "x")
        for _ in range(count):
            try:  # noqa: SIM105 - a context manager would be measured too
                run(argument)
            except OSError:
                pass

    def below(frames: int) -> float:
        return below(frames - 1) if frames else least(denied, 500)

    with guard:
        return {count: below(count) for count in (10, 100, 1000, 5000)}


def nested(mk_audit: Any, base: str) -> Curve:
    """An ignored event inside so many guards."""
    perms = mk_audit([base], monitor_calls=False)
    found = {}
    for count in (1, 10, 100, 1000):
        guards = [perms() for _ in range(count)]
        for guard in guards:
            guard.__enter__()
        found[count] = least(event, 5_000)
        for guard in reversed(guards):
            guard.__exit__(None, None, None)
    return found


def tasks(mk_audit: Any, base: str) -> Curve:
    """For each of so many tasks: made, run and ended, each under a guard that watches calls."""
    perms = mk_audit([base])

    async def guarded() -> None:
        with perms():
            await asyncio.sleep(0)

    async def gather(count: int) -> None:
        await asyncio.gather(*[guarded() for _ in range(count)])

    found = {}
    for count in (1, 10, 100, 1000, 10_000):
        times = []
        for _ in range(3):
            start = perf_counter_ns()
            asyncio.run(gather(count))
            times.append(perf_counter_ns() - start)
        found[count] = min(times) / count
    return found


def threads(mk_audit: Any, base: str) -> Curve:
    """An ignored event while so many threads raise such events, each under a guard."""
    perms = mk_audit([base], monitor_calls=False)
    number = 5_000

    def run() -> None:
        with perms():
            event(number)

    found = {}
    for count in (1, 2, 4, 8):
        times = []
        for _ in range(5):
            workers = [threading.Thread(target=run) for _ in range(count)]
            start = perf_counter_ns()
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            times.append(perf_counter_ns() - start)
        found[count] = min(times) / count / number
    return found


CURVES = {
    "roots": roots,
    "path depth": depth,
    "stack depth": stack,
    "nested guards": nested,
    "tasks": tasks,
    "threads": threads,
}


def main() -> None:
    """Measure all curves and print them."""
    import markupsafe._speedups  # noqa: F401 - so that there is native code to watch

    name, base = sys.argv[1:]
    mk_audit = implementation(name)
    results = {}
    for number, (curve, measure) in enumerate(CURVES.items()):
        place = os.path.join(base, name, str(number))
        os.makedirs(place)
        results[curve] = measure(mk_audit, place)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
