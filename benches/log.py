"""The cost of a log of decisions above that of a guard: the goal is at most 1.5 µs for each.

A hundred thousand decisions are made under a guard, and as many under one with a log to a file, in
turns of a thousand; the least of the turns counts. The clock is that of the processor, so that
only the difference says much.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator

from observe import once

from fastaudit_rs import AuditLog, Policy

GOAL = 1500
REPEATS = 100
DECISIONS = 1000


def events(base: str) -> Iterator[tuple[str, tuple[object, ...]]]:
    """The events that are measured: a name, and the arguments."""
    yield "opening to write", ("open", base + "/a.txt", "w", 0)
    yield "opening to read", ("open", base + "/a.txt", "r", 0)
    yield "a name that is relative", ("open", "a.txt", "w", 0)
    yield "moving a file", ("os.rename", base + "/a.txt", base + "/b.txt", -1, -1)
    yield "connecting", ("socket.connect", None, ("127.0.0.1", 80))
    yield "starting a program", ("subprocess.Popen", "/bin/true", ["true", "-x"], None, None)


def main() -> None:
    """Measure, print a table, and fail where the goal is missed."""
    base = os.path.realpath(tempfile.mkdtemp())
    os.chdir(base)
    path = base + "-audit.jsonl"
    log = AuditLog(path)
    policy = Policy(write=[base], read=[base], network=True, commands=True)
    plain = policy.guard(monitor_calls=False)
    logging = policy.guard(monitor_calls=False, log=log)
    print(f"Python {sys.version.split()[0]}, nanoseconds for each decision")
    missed = []
    for name, args in events(base):
        without, logged = [], []
        for _ in range(REPEATS):
            without.append(once(plain, args, DECISIONS, time.thread_time_ns))
            os.truncate(path, 0)
            logged.append(once(logging, args, DECISIONS, time.thread_time_ns))
            with open(path, "rb") as lines:
                told = sum(1 for _ in lines)
            if told != DECISIONS:
                raise SystemExit(f"{name}: {told} lines for {DECISIONS} decisions")
        more = min(logged) - min(without)
        print(f"  {name:28} guard {min(without):7.0f}   logged {min(logged):7.0f}   {more:+5.0f}")
        if more > GOAL:
            missed.append(name)
    if missed:
        raise SystemExit(f"more than {GOAL} ns for: {', '.join(missed)}")


if __name__ == "__main__":
    main()
