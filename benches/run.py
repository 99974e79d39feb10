"""The cost of a guard: ours, both releases of the original, and the floor, in one run.

Each implementation has its own environment and its own processes, which take turns. The least time
of all rounds counts, net of the bare operation; the spread is that of the ratios over the rounds.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import pages
import picture
import venvs
from cases import CASES, CONDITIONS, IMPLEMENTATIONS
from figures import Rounds, holds, is_as_far_ahead, markdown, program_lines, row, with_programs
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

HERE = Path(__file__).parent
IMPORTS = {
    "0.1.0": "fastaudit",
    "0.2.10": "fastaudit",
    "ours": "fastaudit_rs",
    "ours 0.2": "fastaudit_rs.v02",
}
IMPORT = """
from time import perf_counter_ns
start = perf_counter_ns()
import {module}
print(perf_counter_ns() - start)
"""


def worker(python: Path, name: str, suite: str, base: str, *rest: str) -> dict[str, float]:
    """The measurements of one process."""
    command = [python, "-B", HERE / "worker.py"]
    output = venvs.quietly(*command, name, suite, base, *rest)
    measured: dict[str, float] = json.loads(output.splitlines()[-1])
    return measured


def one_round(
    pythons: dict[str, Path], name: str, base: str, programs: str | None
) -> dict[str, float]:
    """All cases of one implementation, once."""
    python = pythons[name]
    results = worker(python, name, "events", base)
    for suite in ("calls", "calls-plain"):
        results |= worker(python, name, suite, base)
    if name in IMPORTS:
        code = IMPORT.format(module=IMPORTS[name])
        results["import"] = float(venvs.quietly(python, "-I", "-c", code))
    if programs and name in ("bare", "ours", "floor"):
        for condition in CONDITIONS if name == "ours" else ("",):
            times = worker(python, name, f"programs{condition}", base, programs)
            # For Python alone there is no difference.
            for key in CONDITIONS if name == "bare" else (condition,):
                results |= {f"{program}{key}": time for program, time in times.items()}
    return results


def measure(pythons: dict[str, Path], rounds: int, programs: str | None) -> Rounds:
    """All rounds, in turns that begin with another implementation each time."""
    times: Rounds = {name: {} for name in IMPLEMENTATIONS}
    with (
        tempfile.TemporaryDirectory() as base,
        Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress,
    ):
        base = os.path.realpath(base)
        os.makedirs(os.path.join(base, "ok/a/b/c/d/e"))
        os.mkdir(os.path.join(base, "out"))
        Path(base, "ok/a/b/c/d/e/file").touch()
        task = progress.add_task("rounds", total=rounds * len(IMPLEMENTATIONS))
        for number in range(rounds):
            shift = number % len(IMPLEMENTATIONS)
            for name in IMPLEMENTATIONS[shift:] + IMPLEMENTATIONS[:shift]:
                progress.update(task, description=f"round {number + 1}, {name}")
                for case, time in one_round(pythons, name, base, programs).items():
                    times[name].setdefault(case, []).append(time)
                progress.advance(task)
    return times


def machine(python: Path) -> dict[str, str]:
    """The machine that the figures are of."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    version = venvs.quietly(python, "-c", "import platform; print(platform.python_version())")
    return {"python": version.strip(), "processor": cpu, "cores": str(os.cpu_count())}


def print_table(rounds: Rounds, about: dict[str, str]) -> None:
    """Print all figures."""
    title = f"Python {about['python']}, {about['processor']}, {about['cores']} cores"
    table = Table(title=title, caption="net of the bare operation, but for times of bare itself")
    table.add_column("case")
    ratios = ("ours / 0.1.0", "spread", "ours 0.2 / 0.2.10", "ours / floor", "ours / bare")
    for name in (*IMPLEMENTATIONS, *ratios):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("goal", no_wrap=True)
    table.add_column("holds")
    for case in CASES:
        cells = row(rounds, case)
        ratios = (
            cells["of 0.1.0"],
            cells["spread 0.1.0"],
            cells["0.2 of 0.2.10"],
            cells["of floor"],
        )
        whole = cells["of bare"] if not case.net else ""
        table.add_row(
            case.title,
            *(cells[name] for name in IMPLEMENTATIONS),
            *ratios,
            whole,
            cells["goal"],
            cells["holds"],
        )
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    for line in program_lines(rounds):
        print(line)


def publish(rounds: Rounds, about: dict[str, str]) -> None:
    """Put the table into the page on performance, between the marks."""
    about_line = (
        f"Python {about['python']}, {about['processor']}, {about['cores']} cores; time added "
        "(cells and programs: whole time), in the fastest round:"
    )
    pages.publish("make bench", f"{about_line}\n\n{markdown(rounds)}", pages.PERFORMANCE)


def main() -> int:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter to measure with")
    parser.add_argument("--venvs", default=".venvs", help="where to make the environments")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-programs", action="store_true", help="leave whole programs out")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal does not hold")
    parser.add_argument(
        "--publish", action="store_true", help="write the picture and docs/performance.md"
    )
    options = parser.parse_args()

    version = venvs.version_of(options.python)
    place = (venvs.ROOT / options.venvs).resolve() / f"bench-{version}"
    pythons = venvs.make(options.python, place)
    programs = None
    if not options.no_programs:
        programs = str(venvs.pyperformance(venvs.ROOT / ".cache/pyperformance"))
    times = measure(pythons, options.rounds, programs)
    about = machine(pythons["ours"])
    results = HERE / "results" / f"{version}.json"
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps({"about": about, "nanoseconds": times}, indent=1) + "\n")
    rounds = with_programs(times)
    print_table(rounds, about)
    if options.publish:
        (HERE.parent / "docs/overhead.svg").write_text(picture.overhead(rounds))
        publish(rounds, about)
    behind = [case.title for case in CASES if is_as_far_ahead(rounds, case) is False]
    if behind:
        print("less far ahead of 0.2.10 than of 0.1.0:", "; ".join(behind))
    failed = [case.title for case in CASES if holds(rounds, case) is False]
    if failed:
        print("goals that do not hold:", "; ".join(failed))
    return 1 if failed and options.check else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(str(error))
