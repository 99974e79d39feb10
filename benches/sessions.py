"""The time of steps of a session and of calls of tools, beside others that do the same.

Each is measured in turns, in this process; the least of the repeats counts. A peer holds less, or
runs another language: its row says which.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import numpy
import pages
import pydantic_monty
from smolagents.local_python_executor import LocalPythonExecutor

from fastaudit_rs import Limits, Policy, Sandbox

ROUNDS = 7
#: The number of calls of a tool in a step.
CALLS = 500

POLICY = Policy.preset("sandbox")
STEP = "x = sum([i * i for i in range(100)])\nx"
ANSWER = 328350
LOOP = f"for _ in range({CALLS}):\n    last = double(21)\nlast"
SERVER = "import sys\nfor line in sys.stdin: print(eval(line), flush=True)"
#: 1 MB.
ARRAY = numpy.arange(1 << 17, dtype="f8")

#: A row: the number of its runs in a round, the number of things in a run, and the run.
Row = tuple[int, int, Callable[[], object]]


def double(number: int) -> int:
    """Return twice the number: a host's function."""
    return 2 * number


def check(found: object, wanted: object) -> None:
    """The answer must be the right one."""
    if found != wanted:
        raise ValueError(f"{found!r}, not {wanted!r}")


def first_here() -> None:
    """A session in this process, for one step."""
    with POLICY.session() as session:
        check(session.run(STEP).value, ANSWER)


def first_in_a_sandbox() -> None:
    """A sandbox and a session, for one step."""
    with Sandbox(POLICY) as sandbox, sandbox.session() as session:
        check(session.run(STEP).value, ANSWER)


def first_of_smolagents() -> None:
    """An interpreter of Python in Python, for one step."""
    check(smolagents()(STEP).output, ANSWER)


def first_process() -> None:
    """An interpreter that evaluates a line."""
    code = f"print({ANSWER})"
    done = subprocess.run([sys.executable, "-Ic", code], capture_output=True, check=True)
    check(int(done.stdout), ANSWER)


def smolagents() -> LocalPythonExecutor:
    """Its executor, with the host's function."""
    executor = LocalPythonExecutor([], additional_functions={"double": double})
    executor.send_tools({"sum": sum})
    return executor


def rows(stack: ExitStack) -> dict[str, Row]:
    """The rows, by name."""
    limits = Limits(memory="2G", wall_seconds=None)
    tools = {"double": double}
    here = stack.enter_context(POLICY.session(functions=tools))
    sandbox = stack.enter_context(Sandbox(POLICY, limits))
    inside = stack.enter_context(sandbox.session(functions=tools, calls=10**9))
    monty = stack.enter_context(pydantic_monty.Monty(min_processes=2))
    checkout = stack.enter_context(monty.checkout())
    smol = smolagents()
    names = {"double": double}
    compiled = compile(LOOP.removesuffix("last"), "<loop>", "exec")
    process = subprocess.Popen(
        [sys.executable, "-Ic", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    stack.enter_context(process)
    stack.callback(process.kill)

    def ask_process() -> None:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("sum([i * i for i in range(100)])\n")
        process.stdin.flush()
        check(int(process.stdout.readline()), ANSWER)

    def array(session: object) -> None:
        run = getattr(session, "run")  # noqa: B009
        check(bool((run("a + 1", inputs={"a": ARRAY}).value == ARRAY + 1).all()), True)

    def monty_step() -> None:
        check(checkout.feed_run(STEP), ANSWER)

    def monty_tool() -> None:
        # A session has a number of calls.
        with monty.checkout() as fresh:
            check(fresh.feed_run(LOOP, external_lookup=tools), 42)

    for session in (here, inside):
        session.run("import numpy")
    return {
        "a step: `policy.session()`": (50, 1, lambda: check(here.run(STEP).value, ANSWER)),
        "a step: `sandbox.session()`": (20, 1, lambda: check(inside.run(STEP).value, ANSWER)),
        "a step: `smolagents`, in this process": (20, 1, lambda: check(smol(STEP).output, ANSWER)),
        "a step: `pydantic-monty`, its own language": (50, 1, monty_step),
        "a step: a line to a plain process": (50, 1, ask_process),
        "a tool's call: plain Python": (1, CALLS, lambda: exec(compiled, names)),
        "a tool's call: `policy.session()`": (1, CALLS, lambda: check(here.run(LOOP).value, 42)),
        "a tool's call: `sandbox.session()`": (1, CALLS, lambda: check(inside.run(LOOP).value, 42)),
        "a tool's call: `smolagents`": (1, CALLS, lambda: check(smol(LOOP).output, 42)),
        "a tool's call: `pydantic-monty`": (1, CALLS, monty_tool),
        "the first step: `policy.session()`": (5, 1, first_here),
        "the first step: `Sandbox` and `session()`": (1, 1, first_in_a_sandbox),
        "the first step: `smolagents`": (5, 1, first_of_smolagents),
        "the first step: a plain process": (2, 1, first_process),
        "1 MB array in and out: `policy.session()`": (10, 1, lambda: array(here)),
        "1 MB array in and out: `sandbox.session()`": (5, 1, lambda: array(inside)),
    }


def measure(chosen: dict[str, Row]) -> dict[str, float]:
    """The seconds that each thing of a row takes."""
    least = dict.fromkeys(chosen, float("inf"))
    for _ in range(ROUNDS):
        for name, (runs, things, run) in chosen.items():
            for _ in range(runs):
                begun = time.perf_counter()
                run()
                least[name] = min(least[name], (time.perf_counter() - begun) / things)
    return least


def table(least: dict[str, float]) -> str:
    """The figures as Markdown; ratios are to the first row of the same kind."""
    lines = ["| | microseconds | ratio |", "|---|--:|--:|"]
    first: dict[str, float] = {}
    for name, seconds in least.items():
        base = first.setdefault(name.split(":")[0], seconds)
        lines.append(f"| {name} | {seconds * 1e6:.2f} | {seconds / base:.2f} |")
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
        for _, _, run in chosen.values():
            run()
        least = measure(chosen)
    shown = table(least)
    print(shown)
    if options.publish:
        pages.publish("make bench-sessions", shown, pages.PERFORMANCE)
    plain = least["a tool's call: plain Python"]
    if least["a tool's call: `policy.session()`"] - plain > 2e-6:
        sys.exit("missed: a tool's call costs at most 2 µs more than a plain one")


if __name__ == "__main__":
    main()
