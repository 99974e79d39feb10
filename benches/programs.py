"""Whole programs under a guard that watches calls: ours in both ways, and both originals.

The programs of pyperformance, with native code loaded that is to be watched, and programs that call
such code much. Each runs bare and under `mk_audit` with an `on_call` that allows all. The least CPU
time of processes that take turns, as a ratio to bare.

    programs.py [--rounds N] [--only TEXT] [--publish]
    programs.py --instructions      those of the whole process, by valgrind, in place of time
"""

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time_ns
from typing import Any

import pages
import venvs
from rich.console import Console
from rich.progress import track
from rich.table import Table

#: The programs of pyperformance, with the arguments of their command lines.
PROGRAMS = {
    "richards": (),
    "deltablue": (),
    "go": (),
    "chaos": (),
    "raytrace": (),
    "float": (),
    "nbody": (),
    "fannkuch": (),
    "nqueens": (),
    "spectral_norm": (),
    "json_dumps": (),
    "json_loads": (),
    "logging": ("simple",),
    "pickle": ("pickle",),
    "regex_compile": (),
    "regex_effbot": (),
    "coroutines": (),
    "generators": (),
    "comprehensions": (),
    "deepcopy": (),
    "sqlite_synth": (),
    "typing_runtime_protocols": (),
    "crypto_pyaes": (),
    "scimark": ("sor",),
    "unpack_sequence": (),
    "barnes_hut": (),
}
#: `floor` is an audit hook in C that does nothing.
WAYS = ("bare", "floor", "0.1.0", "0.2.10", "events", "callee")
PACKAGES = ("numpy", "orjson", "pandas", "networkx", "scikit-learn", "pyaes")
#: At most so many times bare by the callee's side: in the geometric mean, and for each program.
MEAN, EACH = 1.02, 1.10
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
#: A measurement takes so many nanoseconds at least.
LEAST = 30_000_000


def pandas_rows() -> None:
    """Go through a frame row by row."""
    import pandas

    frame = pandas.DataFrame({"a": range(300), "b": range(300)})
    for _, row in frame.iterrows():
        row["a"] + row["b"]
    for pair in frame.itertuples():
        pair.a + pair.b
    frame.apply(lambda row: row["a"] * row["b"], axis=1)


def networkx_paths() -> None:
    """Rank the nodes of a graph, and find its shortest paths."""
    import networkx

    graph = networkx.gnm_random_graph(300, 900, seed=1)
    networkx.pagerank(graph)
    networkx.average_clustering(graph)
    dict(networkx.all_pairs_shortest_path_length(graph, cutoff=3))


def sklearn_fits() -> None:
    """Fit models to small data."""
    from sklearn.datasets import make_classification
    from sklearn.linear_model import LogisticRegression
    from sklearn.tree import DecisionTreeClassifier

    points, classes = make_classification(300, random_state=1)
    LogisticRegression().fit(points, classes).predict(points)
    DecisionTreeClassifier(random_state=1).fit(points, classes).predict(points)


#: Programs that call native code of packages.
OF_PACKAGES = {"pandas": pandas_rows, "networkx": networkx_paths, "scikit-learn": sklearn_fits}


def fib(number: int = 16) -> int:
    """Call a Python function, and do little else."""
    return number if number < 2 else fib(number - 1) + fib(number - 2)


#: The programs whose instructions are counted, and how many times those of bare each may take.
#: `sqlite_synth` lets the interpreter's lock go for each row. The last two call native code that
#: much that `on_call`, a function of Python, is what they take.
COUNTED = dict.fromkeys(
    ("fib", "richards", "deltablue", "go", "raytrace", "json_dumps", "regex_effbot"), 1.02
) | {"sqlite_synth": 1.06, "pandas": 1.40, "scikit-learn": 1.10}


def all_of(directory: str, program: str) -> Callable[[], object]:
    """A program as one function."""
    from pyperformance import functions

    if program == "fib":
        return fib
    if program in OF_PACKAGES:
        return OF_PACKAGES[program]
    found = functions(directory, program, *PROGRAMS[program])
    return lambda: [function() for function in found]


def guard(way: str) -> Any:
    """The factory of guards that is measured, with native code loaded that it is to watch."""
    import numpy  # noqa: F401 - native code to watch
    import orjson  # noqa: F401
    from worker import implementation

    mk_audit = implementation("ours" if way in ("events", "callee") else way)
    options: dict[str, Any] = {"calls": way} if way in ("events", "callee") else {}
    if way == "floor":
        options = {"monitor_calls": False}
    # Some programs write what they print, make files or use sockets, which is not the question.
    allow = {"before_deny": lambda *_: True, "on_call": lambda *_: False}
    return mk_audit(["/"], **allow, **options)


def run(way: str, programs: list[str], directory: str) -> None:
    """Measure programs, as the process that is measured: prints `{program: nanoseconds}`."""
    perms, results = guard(way), {}
    for program in programs:
        function = all_of(directory, program)
        with perms():
            function()
            began = process_time_ns()
            function()
            loops = 1 + LEAST // max(process_time_ns() - began, 1)
            times = []
            for _ in range(5):
                began = process_time_ns()
                for _ in range(loops):
                    function()
                times.append((process_time_ns() - began) / loops)
        results[program] = min(times)
    print(json.dumps(results))


def run_counted(way: str, program: str, directory: str) -> None:
    """Run a program as the process whose instructions are counted: between two `getppid`."""
    perms, function = guard(way), all_of(directory, program)
    with perms():
        function()
        function()
        # Whether a collection falls into the run is chance.
        gc.collect()
        gc.disable()
        os.getppid()
        function()
        os.getppid()


def count(python: Path, way: str, program: str, directory: str) -> int:
    """The instructions that one run of a program takes."""
    from instructions import VALGRIND

    with tempfile.TemporaryDirectory() as here:
        profile = Path(here, "profile")
        command = [*VALGRIND, f"--callgrind-out-file={profile}", python, "-B", __file__]
        venvs.quietly(*command, "--count", way, directory, program)
        text = Path(f"{profile}.2").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("totals: ")]
    return int(line.split()[1])


def count_all(only: str) -> list[str]:
    """Print the ratios of instructions, and return the programs that take more than they may."""
    os.environ.update(ONE_THREAD)
    python = environments(("ours",))["ours"]
    directory = str(venvs.pyperformance(venvs.ROOT / ".cache/pyperformance"))
    wrong = []
    for program, most in COUNTED.items():
        if only not in program:
            continue
        bare, ours = (count(python, way, program, directory) for way in ("bare", "callee"))
        print(f"{program:20} {bare:14,} {ours / bare:7.3f} × bare, of {most}", flush=True)
        if ours > most * bare:
            wrong.append(f"{program}: {ours / bare:.3f} of {most} × bare")
    return wrong


def environments(names: tuple[str, ...]) -> dict[str, Path]:
    """The interpreter of each way, with the packages of the programs."""
    version = venvs.version_of(sys.executable)
    place = venvs.ROOT / f".venvs/bench-{version}"
    pythons = venvs.make(sys.executable, place)
    for name in names:
        pip = (pythons[name], "-m", "pip", "--disable-pip-version-check")
        venvs.quietly(*pip, "install", "--quiet", "rich", *PACKAGES)
    ours = pythons["ours"]
    return {**pythons, "bare": ours, "events": ours, "callee": ours}


def measure(rounds: int, only: str) -> dict[str, dict[str, float]]:
    """`{program: {way: ratio to bare}}`."""
    pythons = environments(("floor", "0.1.0", "0.2.10", "ours"))
    directory = str(venvs.pyperformance(venvs.ROOT / ".cache/pyperformance"))
    programs = [name for name in (*PROGRAMS, *OF_PACKAGES) if only in name]
    least: dict[str, dict[str, float]] = {program: {} for program in programs}
    os.environ.update(ONE_THREAD)
    turns = [
        WAYS[(number + shift) % len(WAYS)] for number in range(rounds) for shift in range(len(WAYS))
    ]
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as here:
        for way in track(turns, console=console, disable=not sys.stderr.isatty()):
            command = [pythons[way], "-B", __file__, "--run", way, directory, *programs]
            output = venvs.quietly(*command, cwd=Path(here))
            for program, time in json.loads(output.splitlines()[-1]).items():
                known = least[program].get(way, time)
                least[program][way] = min(known, time)
    return {
        program: {way: time / times["bare"] for way, time in times.items()}
        for program, times in least.items()
    }


def mean_of(ratios: dict[str, dict[str, float]], way: str) -> float:
    """The geometric mean over pyperformance's programs."""
    return statistics.geometric_mean(ratios[name][way] for name in ratios if name in PROGRAMS)


def rows(ratios: dict[str, dict[str, float]]) -> list[tuple[str, ...]]:
    """The table: a row for each program."""
    return [(name, *(f"{times[way]:.2f}" for way in WAYS[1:])) for name, times in ratios.items()]


def summary(ratios: dict[str, dict[str, float]]) -> list[tuple[str, ...]]:
    """The table in short: the mean and the highest of pyperformance's programs, and the others."""
    highest = {
        way: max((ratios[name][way], name) for name in ratios if name in PROGRAMS)
        for way in WAYS[1:]
    }
    count = sum(name in PROGRAMS for name in ratios)
    return [
        (f"{count} programs, mean", *(f"{mean_of(ratios, way):.2f}" for way in WAYS[1:])),
        ("the slowest of them", *(f"{most:.2f} ({name})" for most, name in highest.values())),
        *(row for row in rows(ratios) if row[0] in OF_PACKAGES),
    ]


def wrong(ratios: dict[str, dict[str, float]]) -> list[str]:
    """The goals that do not hold."""
    found = [
        f"{name}: {ratios[name]['callee']:.2f} of {EACH} × bare; floor {ratios[name]['floor']:.2f}"
        for name in PROGRAMS
        if name in ratios and ratios[name]["callee"] > EACH
    ]
    if mean_of(ratios, "callee") > MEAN:
        found.append(f"mean: {mean_of(ratios, 'callee'):.3f} of {MEAN} × bare")
    for name in OF_PACKAGES:
        if name in ratios and ratios[name]["callee"] > ratios[name]["0.1.0"]:
            found.append(f"{name}: {ratios[name]['callee']:.2f}, of 0.1.0's")
    return found


def main() -> int:
    """Measure, print a table, and fail where a goal does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="only programs whose name has this text")
    parser.add_argument("--publish", action="store_true", help="write docs/performance.md")
    parser.add_argument("--instructions", action="store_true", help="count them")
    options = parser.parse_args()
    if options.instructions:
        found = count_all(options.only)
        print("\n".join(found))
        return 1 if found else 0
    ratios = measure(options.rounds, options.only)
    heads = (
        "CPU time × bare",
        *(f'`calls="{way}"`' if way in ("events", "callee") else way for way in WAYS[1:]),
    )
    table = Table(title=f"CPU time under mk_audit with on_call, Python {sys.version.split()[0]}")
    for head in heads:
        table.add_column(head)
    for row in [*rows(ratios), *summary(ratios)]:
        table.add_row(*row)
    Console(width=100).print(table)
    if options.publish:
        lines = [heads, ("---", *("---:" for _ in WAYS[1:])), *summary(ratios)]
        text = "".join(f"|{'|'.join(line)}|\n" for line in lines)
        pages.publish("make bench-programs", text, pages.PERFORMANCE)
    print("\n".join(wrong(ratios)))
    return 1 if wrong(ratios) else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], sys.argv[4:], sys.argv[3])
    elif sys.argv[1:2] == ["--count"]:
        run_counted(sys.argv[2], sys.argv[4], sys.argv[3])
    else:
        sys.exit(main())
