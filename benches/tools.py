"""The cost of a tool's call above that of the plain one: the goal is at most 2 µs under a guard.

Each is made many times, in turns; the least of the repeats counts. A call has two texts, and does
nothing. The time of `exec` and of an import under a guard is measured in a process without tools
and in one with a tool, where code of the guest is noted.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from fastaudit_rs import Policy

GOAL = 2_000
REPEATS = 15
CALLS = 20_000

SNIPPET = "def double(a):\n    return [2 * b for b in a]\n\nc = double([1, 2])\n"

#: A process that measures a snippet's `exec` and the import of a module, in nanoseconds.
WORKER = f"""
import sys, time
from fastaudit_rs import Policy

policy = Policy()
if sys.argv[1] == "tool":
    policy.tool(lambda: None, name="tool")
code = compile({SNIPPET!r}, "snippet", "exec")

def once():
    begin = time.perf_counter_ns()
    for _ in range(300):
        exec({SNIPPET!r}, {{}})
    again = time.perf_counter_ns()
    for _ in range(3000):
        exec(code, {{}})
    end = time.perf_counter_ns()
    return (again - begin) / 300, (end - again) / 3000

def imported():
    for name in [name for name in sys.modules if name.split(".")[0] in ("email", "xml")]:
        del sys.modules[name]
    begin = time.perf_counter_ns()
    import email.mime.text, xml.dom.minidom
    return time.perf_counter_ns() - begin

with policy.guard(monitor_calls=False)():
    imported()
    rounds = [(*once(), imported()) for _ in range(7)]
print(*[min(times) for times in zip(*rounds)])
"""


def plain(one: str, other: str) -> None:
    """A function that does nothing."""


def once(
    guard: Callable[[], AbstractContextManager[object]], function: Callable[..., object]
) -> float:
    """Nanoseconds for one call."""
    with guard():
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            function("one", "other")
        return (time.perf_counter_ns() - start) / CALLS


def noted() -> dict[str, list[float]]:
    """The times of snippets and an import, without tools and with one."""
    found: dict[str, list[float]] = {}
    for _ in range(3):
        for kind in ("no tool", "tool"):
            command = [sys.executable, "-c", WORKER, kind]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            times = [float(text) for text in done.stdout.split()]
            found[kind] = [min(pair) for pair in zip(found.get(kind, times), times, strict=True)]
    return found


def main() -> None:
    """Measure, print a table, and fail where the goal is missed."""
    policy = Policy(write=[os.path.realpath(tempfile.mkdtemp())])
    guard = policy.guard(monitor_calls=False)
    tool = policy.tool(plain, name="plain")
    cases = {
        "a plain call under a guard": (guard, plain),
        "a tool call, no guard": (nullcontext, tool),
        "a tool call under a guard": (guard, tool),
    }
    least = dict.fromkeys(cases, float("inf"))
    for _ in range(REPEATS):
        for name, (under, function) in cases.items():
            least[name] = min(least[name], once(under, function))
    print(f"Python {sys.version.split()[0]}, nanoseconds")
    base = least["a plain call under a guard"]
    for name, taken in least.items():
        print(f"  {name:32} {taken:10.0f}   {taken - base:+8.0f}   {taken / base:6.1f} x")
    found = noted()
    names = ("exec of a snippet's text", "exec of its code again", "importing email and xml.dom")
    for index, name in enumerate(names):
        one, other = found["no tool"][index], found["tool"][index]
        print(f"  {name:32} {one:10.0f}   with a tool {other:10.0f}   {other / one:6.2f} x")
    if least["a tool call under a guard"] - base > GOAL:
        sys.exit(f"a tool call costs more than {GOAL} ns above the plain one")


if __name__ == "__main__":
    main()
