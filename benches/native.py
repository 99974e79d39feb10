"""Measures what it costs to judge native code.

A call of `open` is timed in processes that take turns: in some a guard was made and left before, so
that the call goes through the function that replaces it; the least of the rounds counts. Tables and
memory are those of a process with pandas, polars and scikit-learn. Whole programs are those of
pyperformance, in processes that loaded numpy and pandas.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import venvs
from cases import PROGRAMS

ROOT = Path(__file__).resolve().parent.parent
SUPPORT = ROOT / "tests" / "support"
CACHE = ROOT / ".cache" / "pyperformance"

#: A call of `open` without a guard may take so many nanoseconds more.
MOST_OPEN = 20
#: Replacing tables may take so many milliseconds, and kilobytes of memory.
MOST_TABLES, MOST_MEMORY = 10, 2048
#: Whole programs may take so many times what they take without a guard.
MOST_PROGRAMS = 1.01
#: A guard of the preset, or none.
BARE, PRESET = "bare", "preset"

OPENS = """
import sys
sys.path.insert(0, sys.argv[1])
import native_acts
from fastaudit_rs import Policy
if sys.argv[2] != "never":
    guard = Policy(write=["."]).guard(monitor_calls=False)()
    guard.__enter__()
    if sys.argv[2] == "before":
        guard.__exit__(None, None, None)
print(min(native_acts.time_opens(10_000) for _ in range(40)))
"""

TABLES = """
import pandas, polars, sklearn.linear_model

def memory():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Private_Dirty:"))

from fastaudit_rs import Policy, _native
before = memory()
with Policy(native=True).guard()():
    pass
replaced, sealed, took = _native._native_tables()
print(took / 1e6, memory() - before, replaced)
"""

WHOLE = """
import contextlib, sys
import numpy, pandas
sys.path.insert(0, sys.argv[1])
import worker
from fastaudit_rs import Policy
guard = contextlib.nullcontext if sys.argv[2] == "bare" else Policy.preset("notebook").guard()
print(*worker.programs(lambda roots: guard, ".", sys.argv[3]).values())
"""


def run(code, *given):
    """The numbers that a process prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *given], capture_output=True, text=True, check=True
    )
    return [float(number) for number in done.stdout.split()]


def main():
    """Print the figures, and fail where one misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    sys.path.insert(0, str(SUPPORT))
    import cython_modules

    cython_modules.share_compiled()

    with tempfile.TemporaryDirectory() as directory:
        cython_modules.build("native_acts", directory)
        kinds = {"never": [], "before": [], "in force": []}
        for _ in range(rounds):
            for kind, times in kinds.items():
                times.extend(run(OPENS, directory, kind))
    least = {kind: min(times) for kind, times in kinds.items()}
    more = least["before"] - least["never"]
    print(f"open(), no guard ever: {least['never']:.0f} ns")
    print(f"open(), a guard was left: {more:+.0f} ns (at most {MOST_OPEN})")
    print(f"open(), to read, a guard in force: {least['in force'] - least['never']:+.0f} ns")
    tables = [run(TABLES) for _ in range(3)]
    took, memory = min(table[0] for table in tables), min(table[1] for table in tables)
    print(f"tables of pandas, polars, scikit-learn: {tables[0][2]:.0f} entries")
    print(f"replacing them: {took:.1f} ms (at most {MOST_TABLES})")
    print(f"private memory, entering the first guard: {memory:.0f} kB (at most {MOST_MEMORY})")
    ratio = programs(rounds)
    print(f"whole programs, preset notebook: {ratio:.3f} times bare (at most {MOST_PROGRAMS})")
    misses = more > MOST_OPEN or took > MOST_TABLES or memory > MOST_MEMORY
    sys.exit(misses or ratio > MOST_PROGRAMS)


def programs(rounds):
    """The time of all programs under the preset, by the time without; the least of each counts."""
    place = str(venvs.pyperformance(CACHE))
    times = {BARE: [], PRESET: []}
    for number in range(rounds):
        for kind in [BARE, PRESET][:: -1 if number % 2 else 1]:
            times[kind].append(run(WHOLE, str(Path(__file__).parent), kind, place))
    bare, preset = ([min(each) for each in zip(*found, strict=True)] for found in times.values())
    for name, own, under in zip(PROGRAMS, bare, preset, strict=True):
        print(f"  {name}: {under / own:.3f}")
    return sum(preset) / sum(bare)


if __name__ == "__main__":
    main()
