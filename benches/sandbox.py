"""The time of a run in a sandbox, beside others that run the same snippet.

Each is measured in turns, in this process; the least of the repeats counts. The peers run in this
process or in one of theirs: what they do not hold is not their row's concern.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pages
import pydantic_monty
import sandlock
from cases import show
from smolagents.local_python_executor import LocalPythonExecutor

from fastaudit_rs import Limits, Policy, Sandbox

ROUNDS = 7
#: The number of runs of a row in a round, and of snippets for the rows that count them.
RUNS, SNIPPETS = 5, 120
THREADS = 2

SNIPPET = "sum([i * i for i in range(100)])"
ANSWER = 328350
WITH_NUMPY = "import numpy\nint(sum(numpy.arange(100) ** 2))"

POLICY = Policy(native=["numpy"], env=True, network=False)
COMMAND = [sys.executable, "-I", "-c"]

Row = Callable[[], object]


def printed(code: str) -> str:
    """A program that prints the value of the last line."""
    *lines, last = code.split("\n")
    return "\n".join([*lines, f"print({last})"])


def check(answer: object) -> None:
    """The answer must be the value that the snippet computes."""
    if int(str(answer)) != ANSWER:
        raise ValueError(f"it answered {answer!r}")


def interpreter() -> None:
    """The start of a bare interpreter."""
    subprocess.run([*COMMAND, "pass"], check=True)


def by_subprocess(code: str) -> None:
    """A process of Python's own."""
    done = subprocess.run([*COMMAND, printed(code)], capture_output=True, text=True, check=True)
    check(done.stdout)


def by_sandlock(code: str) -> None:
    """`sandlock` alone, which holds files and the network."""
    confined = sandlock.Sandbox(fs_readable=["/"], fs_writable=["/tmp"], net_allow=[])
    done = confined.run([*COMMAND, printed(code)])
    check(done.stdout.decode())


def by_bubblewrap(code: str) -> None:
    """`bwrap` alone: namespaces, and files to read."""
    confined = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all"]
    command = [*confined, *COMMAND, printed(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    check(done.stdout)


#: A warm interpreter that runs each line in a fork, and holds nothing: the floor.
FORKS = """
import os, sys
for line in sys.stdin:
    child = os.fork()
    if not child:
        os.write(1, b"%d\\n" % eval(line))
        os._exit(0)
    os.waitpid(child, 0)
"""


def forks(stack: ExitStack, before: str) -> Callable[[str], None]:
    """What runs an expression in a fork of a process that has run this code before."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([*COMMAND, before + FORKS], stdin=pipe, stdout=pipe, text=True)
    stack.enter_context(process)
    stack.callback(process.kill)

    def run(expression: str) -> None:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{expression}\n")
        process.stdin.flush()
        check(process.stdout.readline())

    return run


def by_a_new_sandbox(code: str) -> None:
    """A sandbox that is made, used once and closed."""
    with Sandbox(POLICY) as sandbox:
        check(sandbox.run(code, value=True).value)


def by_smolagents(code: str) -> None:
    """An interpreter of Python in Python, in this process."""
    executor = LocalPythonExecutor(["numpy"])
    executor.send_tools({"sum": sum})
    check(executor(code).output)


def rows(stack: ExitStack) -> dict[str, tuple[str, Row]]:
    """The rows: for each a snippet and what runs it."""
    sandbox = stack.enter_context(Sandbox(POLICY, Limits(memory="2G")))
    pool = stack.enter_context(sandbox.pool(THREADS, preload=["numpy"]))
    monty = stack.enter_context(pydantic_monty.Monty(min_processes=THREADS))
    plain_forks, forks_with_numpy = forks(stack, ""), forks(stack, "import numpy")

    def by_monty() -> None:
        with monty.checkout() as session:
            check(session.feed_run(SNIPPET))

    found = {
        "a bare interpreter's start": ("", interpreter),
        "a fork of a warm interpreter": ("plain", lambda: plain_forks(SNIPPET)),
        "`subprocess.run`": ("plain", lambda: by_subprocess(SNIPPET)),
        "`sandlock` alone": ("plain", lambda: by_sandlock(SNIPPET)),
        "`bwrap` alone": ("plain", lambda: by_bubblewrap(SNIPPET)),
        "`Sandbox`: made, run, closed": ("plain", lambda: by_a_new_sandbox(SNIPPET)),
        "`Sandbox.run`, after the first": (
            "plain",
            lambda: check(sandbox.run(SNIPPET, value=True).value),
        ),
        "`sandbox.pool`": ("plain", lambda: check(pool.run(SNIPPET, value=True).value)),
        "`pydantic-monty`, its own language": ("plain", by_monty),
        "`smolagents`, in this process": ("plain", lambda: by_smolagents(SNIPPET)),
        "`subprocess.run`, numpy": ("numpy", lambda: by_subprocess(WITH_NUMPY)),
        "`sandlock` alone, numpy": ("numpy", lambda: by_sandlock(WITH_NUMPY)),
        "a fork of a warm interpreter, numpy": (
            "numpy",
            lambda: forks_with_numpy(WITH_NUMPY.split("\n")[-1]),
        ),
        "`sandbox.pool`, numpy preloaded": (
            "numpy",
            lambda: check(pool.run(WITH_NUMPY, value=True).value),
        ),
        "`smolagents`, numpy, in this process": ("numpy", lambda: by_smolagents(WITH_NUMPY)),
    }
    if shutil.which("bwrap") is None:
        del found["`bwrap` alone"]
    return found


#: The rows whose snippets a second are counted.
COUNTED = (
    "`subprocess.run`",
    "`sandlock` alone",
    "`sandbox.pool`",
    "`pydantic-monty`, its own language",
    "`subprocess.run`, numpy",
    "`sandbox.pool`, numpy preloaded",
)


@contextmanager
def took(into: list[float], runs: int) -> Iterator[None]:
    """Note the seconds that one of so many runs takes."""
    begun = time.perf_counter()
    yield
    into.append((time.perf_counter() - begun) / runs)


def measure(chosen: dict[str, tuple[str, Row]]) -> tuple[dict[str, float], dict[str, float]]:
    """The seconds that each takes, and the snippets in a second, by two threads."""
    alone: dict[str, list[float]] = {name: [] for name in chosen}
    beside: dict[str, list[float]] = {name: [] for name in COUNTED}
    with ThreadPoolExecutor(THREADS) as threads:
        for _ in range(ROUNDS):
            for name, (_, run) in chosen.items():
                for _ in range(RUNS):
                    with took(alone[name], 1):
                        run()
            for name in COUNTED:
                run = chosen[name][1]
                with took(beside[name], SNIPPETS):
                    list(threads.map(lambda _, run=run: run(), range(SNIPPETS)))
    least = {name: min(found) for name, found in alone.items()}
    return least, {name: 1 / min(found) for name, found in beside.items()}


def table(least: dict[str, float], rate: dict[str, float]) -> str:
    """The figures as Markdown."""
    lines = ["| | time | snippets per second |", "|---|--:|--:|"]
    for name, seconds in least.items():
        counted = f"{rate[name]:.0f}" if name in rate else ""
        lines.append(f"| {name} | {show(seconds * 1e9)} | {counted} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and fail where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--publish", action="store_true", help="write the table into docs/performance.md"
    )
    options = parser.parse_args()
    with ExitStack() as stack:
        chosen = rows(stack)
        for _, run in chosen.values():
            run()
        least, rate = measure(chosen)
    shown = table(least, rate)
    print(shown)
    if options.publish:
        pages.publish("make bench-sandbox", shown, pages.PERFORMANCE)
    bare = least["a bare interpreter's start"]
    goals = {
        "5 ms with numpy preloaded": least["`sandbox.pool`, numpy preloaded"] <= 0.005,
        "300 snippets a second": rate["`sandbox.pool`"] >= 300,
        "a fresh child in two bare starts": least["`Sandbox.run`, after the first"] <= 2 * bare,
    }
    missed = [goal for goal, holds in goals.items() if not holds]
    if missed:
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
