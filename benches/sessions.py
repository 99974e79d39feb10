"""The time of steps of a session and of calls of tools, beside others that do the same.

Each is measured in turns, in this process; the least of the repeats counts. A peer holds less, or
runs another language: docs/performance.md says which.
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
from cases import show
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
BYTES = bytes(ARRAY.data)

#: What is measured, and where.
STEPS, CALL, FIRST, ARRAYS = "a step", "a tool's call", "the first step", "1 MB array in and out"
NO_UNDO, FURTHER = "a step without `undo`", "a further session, and a step"
#: As a model takes longer than this to write the next step.
LATER, PAUSE = "a step 20 ms after the last", 0.02
BYTES_IN, BYTES_OUT = "1 MB of bytes in", "1 MB of bytes out"
HERE, SANDBOX, SMOLAGENTS = "`policy.session()`", "`sandbox.session()`", "`smolagents`"
MONTY, PLAIN = "`pydantic-monty`", "plain Python"
Key = tuple[str, str]

#: A row: the number of its runs in a round, the number of things in a run, and the run.
Row = tuple[int, int, Callable[[], object]]


def double(number: int) -> int:
    """Return twice the number: a tool of the host."""
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


def further(box: Sandbox) -> None:
    """Another session of a sandbox, for one step."""
    with box.session() as session:
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
    """Its executor, with the host's tool."""
    executor = LocalPythonExecutor([], additional_functions={"double": double})
    executor.send_tools({"sum": sum})
    return executor


def rows(stack: ExitStack) -> dict[Key, Row]:
    """The rows, by kind and place."""
    limits = Limits(memory="2G", wall_seconds=None)
    tools = {"double": double}
    here = stack.enter_context(POLICY.session(tools=tools))
    sandbox = stack.enter_context(Sandbox(POLICY, limits))
    inside = stack.enter_context(sandbox.session(tools=tools, tool_calls=10**9))
    plain = stack.enter_context(sandbox.session(undo_depth=0))
    for session in (here, plain):
        session.run("pass", variables={"data": BYTES})
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
        check(bool((run("a + 1", variables={"a": ARRAY}).value == ARRAY + 1).all()), True)

    def monty_step() -> None:
        check(checkout.feed_run(STEP), ANSWER)

    def monty_tool() -> None:
        # A session has a number of calls.
        with monty.checkout() as fresh:
            check(fresh.feed_run(LOOP, external_lookup=tools), 42)

    for session in (here, inside):
        session.run("import numpy")
    return {
        (STEPS, HERE): (50, 1, lambda: check(here.run(STEP).value, ANSWER)),
        (STEPS, SANDBOX): (20, 1, lambda: check(inside.run(STEP).value, ANSWER)),
        (NO_UNDO, SANDBOX): (20, 1, lambda: check(plain.run(STEP).value, ANSWER)),
        (LATER, HERE): (20, 1, lambda: check(here.run(STEP).value, ANSWER)),
        (LATER, SANDBOX): (20, 1, lambda: check(inside.run(STEP).value, ANSWER)),
        (STEPS, SMOLAGENTS): (20, 1, lambda: check(smol(STEP).output, ANSWER)),
        (STEPS, MONTY): (50, 1, monty_step),
        (STEPS, PLAIN): (50, 1, ask_process),
        (CALL, PLAIN): (5, CALLS, lambda: exec(compiled, names)),
        (CALL, HERE): (5, CALLS, lambda: check(here.run(LOOP).value, 42)),
        (CALL, SANDBOX): (5, CALLS, lambda: check(inside.run(LOOP).value, 42)),
        (CALL, SMOLAGENTS): (5, CALLS, lambda: check(smol(LOOP).output, 42)),
        (CALL, MONTY): (5, CALLS, monty_tool),
        (FIRST, HERE): (5, 1, first_here),
        (FIRST, SANDBOX): (1, 1, first_in_a_sandbox),
        (FIRST, SMOLAGENTS): (5, 1, first_of_smolagents),
        (FIRST, PLAIN): (2, 1, first_process),
        (FURTHER, HERE): (5, 1, first_here),
        (FURTHER, SANDBOX): (5, 1, lambda: further(sandbox)),
        (BYTES_IN, HERE): (10, 1, lambda: here.run("pass", variables={"data": BYTES})),
        (BYTES_IN, SANDBOX): (10, 1, lambda: plain.run("pass", variables={"data": BYTES})),
        (BYTES_OUT, HERE): (10, 1, lambda: check(len(here.get("data")), len(BYTES))),
        (BYTES_OUT, SANDBOX): (10, 1, lambda: check(len(plain.get("data")), len(BYTES))),
        (ARRAYS, HERE): (10, 1, lambda: array(here)),
        (ARRAYS, SANDBOX): (5, 1, lambda: array(inside)),
    }


def measure(chosen: dict[Key, Row]) -> dict[Key, float]:
    """The seconds that each thing of a row takes."""
    least = dict.fromkeys(chosen, float("inf"))
    for _ in range(ROUNDS):
        for name, (runs, things, run) in chosen.items():
            for _ in range(runs):
                time.sleep(PAUSE if name[0] == LATER else 0)
                begun = time.perf_counter()
                run()
                least[name] = min(least[name], (time.perf_counter() - begun) / things)
    return least


def table(least: dict[Key, float]) -> str:
    """The figures as Markdown: a row for each kind, a column for each place."""
    columns = (HERE, SANDBOX, SMOLAGENTS, MONTY, PLAIN)
    lines = ["| " + " | ".join(["", *columns]) + " |", "|---" + "|--:" * len(columns) + "|"]
    for kind in dict.fromkeys(kind for kind, _ in least):
        times = [least.get((kind, column)) for column in columns]
        cells = ["–" if time is None else show(time * 1e9) for time in times]
        lines.append("| " + " | ".join([kind, *cells]) + " |")
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
    plain = least[(CALL, PLAIN)]
    if least[(CALL, HERE)] - plain > 2e-6:
        sys.exit("missed: a tool's call costs at most 2 µs more than a plain one")


if __name__ == "__main__":
    main()
