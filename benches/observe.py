"""The cost of observing above that of a guard, for each event: the goal is at most 150 ns.

Each event is raised many times, under a guard and under one that observes, in turns; the least of
the repeats counts. The clock is that of the machine, so that only the difference says much.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from fastaudit_rs import Policy

GOAL = 150
REPEATS = 15
EVENTS = 20_000


def events(base: str) -> Iterator[tuple[str, tuple[object, ...]]]:
    """The events that are measured: a name, and the arguments."""
    yield "an event without a rule", ("compile", "x", "y")
    yield "an effect without a rule", ("glob.glob", "*.txt", False)
    yield "opening to read", ("open", base + "/a.txt", "r", 0)
    yield "opening to write", ("open", base + "/a.txt", "w", 0)
    yield "listing a directory", ("os.listdir", base)
    yield "making a directory", ("os.mkdir", base + "/made", 0o777, -1)
    yield "connecting", ("socket.connect", None, ("127.0.0.1", 80))


def once(
    guard: Callable[[], AbstractContextManager[object]],
    args: tuple[object, ...],
    times: int = EVENTS,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> float:
    """Nanoseconds for one event."""
    audit = sys.audit
    with guard():
        start = clock()
        for _ in range(times):
            audit(*args)  # type: ignore[arg-type]
        return (clock() - start) / times


def main() -> None:
    """Measure, print a table, and fail where the goal is missed."""
    base = os.path.realpath(tempfile.mkdtemp())
    policy = Policy(write=[base])
    plain = policy.guard(monitor_calls=False)
    observing = policy.observe(monitor_calls=False)
    print(f"Python {sys.version.split()[0]}, nanoseconds for each event")
    missed = []
    for name, args in events(base):
        guarded, observed = [], []
        for _ in range(REPEATS):
            guarded.append(once(plain, args))
            observed.append(once(observing, args))
        more = min(observed) - min(guarded)
        print(
            f"  {name:28} guard {min(guarded):7.0f}   observed {min(observed):7.0f}   {more:+5.0f}"
        )
        if more > GOAL:
            missed.append(name)
    if missed:
        raise SystemExit(f"more than {GOAL} ns for: {', '.join(missed)}")


if __name__ == "__main__":
    main()
