"""The cost of a confined call: the goal is at most 0.25 ms.

It is measured beside a bare thread and a bare interpreter that do the same, in turns; the least of
the repeats counts.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable

from fastaudit_rs import Policy

GOAL = 250
REPEATS = 9
CALLS = 200


def work() -> int:
    """The function that is called: next to nothing."""
    return sum(range(10))


def in_a_thread() -> None:
    """A bare thread."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def in_a_process() -> None:
    """A bare interpreter."""
    subprocess.run([sys.executable, "-I", "-S", "-c", "sum(range(10))"], check=True)


def once(call: Callable[[], object], calls: int) -> float:
    """Microseconds for one."""
    start = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return (time.perf_counter_ns() - start) / calls / 1000


def main() -> None:
    """Measure, print a table, and fail where the goal is missed."""
    policy = Policy(write=["/tmp"], network=False)
    secret = policy.replace(read=["/tmp"])
    measured: dict[str, tuple[Callable[[], object], int]] = {
        "a bare thread": (in_a_thread, CALLS),
        "policy.call": (lambda: policy.call(work), CALLS),
        "policy.call, reading restricted": (lambda: secret.call(work), CALLS),
        "a bare interpreter": (in_a_process, 5),
    }
    times: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(REPEATS):
        for name, (call, calls) in measured.items():
            times[name].append(once(call, calls))
    least = {name: min(found) for name, found in times.items()}
    print(f"Python {sys.version.split()[0]}, microseconds, and how many bare threads that is")
    for name, found in least.items():
        print(f"  {name:32} {found:8.0f} {found / least['a bare thread']:8.1f}")
    missed = [name for name in least if name.startswith("policy") and least[name] > GOAL]
    if missed:
        raise SystemExit(f"more than {GOAL} µs for: {', '.join(missed)}")


if __name__ == "__main__":
    main()
