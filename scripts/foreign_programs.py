"""Runs the solutions of benchmarks of programs with their tests, bare and under the presets.

HumanEval, MBPP, ClassEval and BigCodeBench come from GitHub, into .cache, or from `--data DIR`. A
program must end under a guard as it does bare, unless scripts/foreign_programs.toml has a reason.

    foreign_programs.py                     all
    foreign_programs.py --install           install what BigCodeBench needs first
    foreign_programs.py --publish           write the table of docs/ordinary.md anew
    foreign_programs.py --only HumanEval/1  the programs with this in their name

Without a guard they may do what you may: a few write to /tmp, and one makes a directory in /.
"""

import argparse
import contextlib
import gzip
import importlib
import json
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "benchmarks"
LIST = ROOT / "scripts" / "foreign_programs.toml"
PAGE = ROOT / "docs" / "ordinary.md"
sys.path[:0] = [str(ROOT / name) for name in ("tests/ordinary", "benches")]

import pages  # noqa: E402
import snippet_worker  # noqa: E402

BARE = snippet_worker.BARE
GUARDS = ("preset workspace", "preset notebook")
TIMEOUT = 20
SOURCES = {
    "HumanEval": "openai/human-eval/master/data/HumanEval.jsonl.gz",
    "MBPP": "google-research/google-research/master/mbpp/mbpp.jsonl",
    "ClassEval": "FudanSELab/ClassEval/master/data/ClassEval_data.json",
    "BigCodeBench": "bigcode-project/bigcodebench-annotation/main/data/BigCodeBench.jsonl.gz",
}
#: Imported once, since each program would take seconds for it.
HEAVY = ["numpy", "pandas", "matplotlib.pyplot", "scipy.stats", "sklearn.linear_model", "seaborn"]


def records(benchmark, directory):
    """The records of a benchmark."""
    source = SOURCES[benchmark]
    file = directory / source.rpartition("/")[2]
    if not file.exists():
        directory.mkdir(parents=True, exist_ok=True)
        url = f"https://raw.githubusercontent.com/{source}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                content = answer.read()
        except (urllib.error.URLError, TimeoutError) as error:
            sys.exit(f"{url}: {error}\nFetch it where you can, and give its directory as --data.")
        file.write_bytes(content)
    content = file.read_bytes()
    text = (gzip.decompress(content) if file.suffix == ".gz" else content).decode()
    return json.loads(text) if file.suffix == ".json" else map(json.loads, text.splitlines())


def program(benchmark, record):
    """A record as a program: its name and code, with tests."""
    name = str(record["task_id"])
    if benchmark == "HumanEval":
        solution = record["prompt"] + record["canonical_solution"]
        parts = [solution, record["test"], f"check({record['entry_point']})"]
    elif benchmark == "MBPP":
        name = f"MBPP/{name.rpartition('/')[2]}"
        parts = [record["code"], record["test_setup_code"], *record["test_list"]]
    elif benchmark == "ClassEval":
        name = f"ClassEval/{name.rpartition('_')[2]}"
        imports = "\n".join(record["import_statement"])
        parts = [imports, record["solution_code"], record["test"]]
    else:
        parts = [record["prompt"] + record["canonical_solution"], record["test"]]
    return name, "\n".join(parts)


class Ends(unittest.TestResult):
    """How each test ended."""

    def __init__(self):
        """Begin without tests."""
        super().__init__()
        self.ends = {}

    def addSuccess(self, test):
        """Note a test that passed."""
        self.ends.setdefault(test.id(), "passed")

    def addSkip(self, test, reason):
        """Note a test that was left out."""
        self.ends[test.id()] = "skipped"

    def addError(self, test, error):
        """Note an error."""
        self.ends[test.id()] = error[0].__name__

    addFailure = addError

    def addSubTest(self, test, subtest, error):
        """Note a part that failed."""
        if error is not None:
            self.addError(test, error)


def run_here(code, guard):
    """Run a program in this process: how it and its tests ended, and the denials."""
    denials, result = [], Ends()
    main = snippet_worker.main_module("")
    make = snippet_worker.factory(guard, denials)
    ended, said = "passed", ""
    # The same numbers each time.
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    with make() as entered:
        try:
            exec(compile(code, "<program>", "exec"), main.__dict__)
            unittest.defaultTestLoader.loadTestsFromModule(main).run(result)
        except BaseException as error:
            ended, said = type(error).__name__, traceback.format_exc(limit=-3)
    denials += [snippet_worker.told(one) for one in getattr(entered, "violations", ())]
    said += "".join(text for _, text in [*result.errors, *result.failures])
    return {"ended": ended, "ends": result.ends, "denials": denials, "said": said[-2000:]}


def run(code, guard, home):
    """Run a program in a copy of this process, in an empty directory."""
    base = os.path.realpath(tempfile.mkdtemp(dir=home))
    work, temporary, report = (os.path.join(base, name) for name in ("work", "tmp", "report"))
    os.mkdir(work)
    os.mkdir(temporary)
    child = os.fork()
    if not child:
        os.setsid()
        os.chdir(work)
        os.environ["TMPDIR"], tempfile.tempdir = temporary, None
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        try:
            found = run_here(code, guard)
            with open(report, "w") as file:
                json.dump(found, file)
        finally:
            os._exit(0)
    try:
        return waited(child) or json.loads(Path(report).read_text())
    except (OSError, ValueError):
        return {"ended": "no report", "ends": {}, "denials": [], "said": ""}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        shutil.rmtree(base, ignore_errors=True)


def waited(child):
    """Wait for a copy of this process; true of one that took too long, as a report."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return None
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return {"ended": "timeout", "ends": {}, "denials": [], "said": ""}


def differences(bare, guarded):
    """What ended in another way than bare, as text: the program, or some of its tests."""
    found = []
    if bare["ended"] != guarded["ended"]:
        found.append(f"{bare['ended']} -> {guarded['ended']}")
    for test in sorted({*bare["ends"], *guarded["ends"]}):
        ends = [each["ends"].get(test, "not run") for each in (bare, guarded)]
        if ends[0] != ends[1]:
            found.append(f"{test.rpartition('.')[2]}: {' -> '.join(ends)}")
    return "; ".join(found)


def compare(code, home):
    """Run a program bare and under each guard: if it passes bare, and how the others differ."""
    bare = run(code, BARE, home)
    different = {}
    if bare["ended"] == "timeout":
        return False, different
    for guard in GUARDS:
        guarded = run(code, guard, home)
        how = differences(bare, guarded)
        # Some programs end by chance.
        if how and differences(run(code, BARE, home), again := run(code, guard, home)):
            different[guard] = (how, again)
    passed = bare["ended"] == "passed" and {*bare["ends"].values()} <= {"passed", "skipped"}
    return passed, different


def reason(name, report, groups):
    """Why a program may differ; `None` if nothing says so."""
    said = "\n".join(report["denials"])
    for group in groups:
        if name in group.get("programs", []) or re.search(group.get("denial", "$^"), said):
            return group["reason"]
    return None


def install(needed):
    """Install what the programs import, as far as there are wheels."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--only-binary", ":all:", *needed], check=True)


def table(rows):
    """The rows as a table."""
    titles = [f'`Policy.preset("{guard.removeprefix("preset ")}")`' for guard in GUARDS]
    first, *others = titles
    head = ["benchmark", "programs", "pass bare", f"differ under {first}"]
    return pages.table([[*head, *(f"under {title}" for title in others)], *rows], "--:")


def main():
    """Run all programs, and fail where one differs without a reason."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=CACHE, help="where the files are")
    parser.add_argument("--install", action="store_true", help="install what they import first")
    parser.add_argument("--publish", action="store_true", help="write docs/ordinary.md")
    parser.add_argument("--benchmark", action="append", choices=SOURCES, help="only this")
    parser.add_argument("--only", default="", help="only programs with this in their name")
    parser.add_argument("--verbose", action="store_true", help="print each program's time")
    options = parser.parse_args()
    if options.publish and (options.only or options.benchmark):
        parser.error("--publish needs all programs")
    told = tomllib.loads(LIST.read_text())
    if options.install:
        install(told["needs"])
    benchmarks = {
        name: [program(name, record) for record in records(name, options.data)]
        for name in options.benchmark or SOURCES
    }
    rows, reasons, wrong = [], Counter(), 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        prepare(home)
        for benchmark, programs in benchmarks.items():
            programs = [one for one in programs if options.only in one[0]]
            passed, differ = 0, Counter()
            for name, code in programs:
                began = time.monotonic()
                is_passed, different = compare(code, home)
                if options.verbose:
                    print(f"{name}: {is_passed} {time.monotonic() - began:.1f} s", flush=True)
                passed += is_passed
                for guard, (how, report) in different.items():
                    why = reason(name, report, told["different"])
                    differ[guard] += 1
                    reasons[guard, why] += 1
                    wrong += why is None
                    print(
                        f"{name}: {guard}: {how[:300]}: {why}", *report["denials"][:3], sep="\n    "
                    )
                    if why is None:
                        print(report["said"], flush=True)
            counts = (len(programs), passed, *(differ[guard] for guard in GUARDS))
            rows.append([benchmark, *(f"{count:,}" for count in counts)])
            print(rows[-1], flush=True)
    print(table(rows))
    for (guard, why), count in sorted(reasons.items(), key=str):
        print(f"{guard}: {count}: {why}")
    if options.publish and not wrong:
        pages.publish("benchmarks", f"Python {platform.python_version()}.\n\n{table(rows)}", PAGE)
    sys.exit(1 if wrong else 0)


def prepare(home):
    """Make this process one that all programs start from."""
    os.environ.update(HOME=home, MPLBACKEND="Agg", OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


if __name__ == "__main__":
    main()
