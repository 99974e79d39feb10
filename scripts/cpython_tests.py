"""Run CPython's own tests bare, under a guard that allows everything, and under `workspace`.

Each module of tests is a process with a directory of its own. scripts/cpython_tests.toml has the
tests that end differently under a guard, and why. A difference that is not in it, or an entry of
it without a difference, is an error.

    cpython_tests.py                         all modules
    cpython_tests.py MODULE...               these, such as test_os
    cpython_tests.py --publish               write the figures into docs/ordinary.md
    cpython_tests.py --inside GUARD MODULE REPORT CHOICE
                                             once; the outcomes go to a file
"""

import argparse
import fnmatch
import importlib
import json
import os
import platform
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import tomllib

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benches"))

import pages  # noqa: E402

LIST = ROOT / "scripts" / "cpython_tests.toml"
PAGE = ROOT / "docs" / "ordinary.md"
#: The ways to run, by what the pages call them.
BARE, GUARDS = "bare", {"everything": "allows everything", "workspace": "preset `workspace`"}
#: Seconds that one test may take, with few other processes beside it.
PATIENCE = 60
#: Bytes of memory that a module may take.
MEMORY = 6 << 30
#: How often a module starts again after a test that took too long, or ended it.
RESTARTS = 8
#: From the weakest: where a test ends more than once, the strongest counts.
OUTCOMES = ("missing", "started", "ok", "skip", "fail", "error", "hang", "crash")
FAILED = OUTCOMES[OUTCOMES.index("skip") :]
#: How much slower a module may be before it is shown, and the seconds below which none is.
SLOW, SHORT = 1.3, 0.5
#: A reason of fewer tests than this has no row of its own.
FEW, OTHERS = 5, "Others, in `scripts/cpython_tests.toml`."


class Outcomes(unittest.TestResult):
    """Writes the outcome of each test at once, so that a crash loses none."""

    def __init__(self, report: int) -> None:
        """Write to a descriptor from before the guard."""
        super().__init__()
        self.report = report
        self.process = os.getpid()
        self.guard: Any = None
        self.told = 0

    def note(self, name: str, outcome: str, text: str = "") -> None:
        """Write a line."""
        os.write(self.report, json.dumps([name, outcome, text]).encode() + b"\n")

    def end(self, test: unittest.TestCase, outcome: str, error: Any = None) -> None:
        """Note the outcome of a test, of one of its parts, or of what a class does first."""
        if isinstance(test, unittest.case._SubTest):  # type: ignore[attr-defined]
            test = test.test_case
        lines = str(error[1]).splitlines() if error else []
        text = f"{error[0].__name__}: {lines[0]}" if lines else ""
        if os.getpid() == self.process:
            self.note(name_of(test), outcome, text)
        else:
            # A forked copy that was denied what ends it: it must not run the other tests.
            self.note(name_of(test), "denied", text)
            os._exit(1)

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: D102
        self.note(name_of(test), "started")

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: D102
        self.tell(name_of(test))

    def tell(self, name: str) -> None:
        """Note what was denied since the last time."""
        violations = self.guard.violations if self.guard else ()
        for denied in violations[self.told :]:
            self.note(name, "denied", denied.message)
        self.told = len(violations)

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: D102
        self.end(test, "ok")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: D102
        self.end(test, "skip")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: D102
        self.end(test, "fail", err)

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: D102
        self.end(test, "error", err)

    def addSubTest(self, test: unittest.TestCase, subtest: Any, err: Any) -> None:  # noqa: D102
        if err:
            self.end(test, "fail" if issubclass(err[0], test.failureException) else "error", err)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: D102
        self.end(test, "ok")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:  # noqa: D102
        self.end(test, "fail")


def told() -> dict[str, Any]:
    """The list."""
    found: dict[str, Any] = tomllib.loads(LIST.read_text())
    return found


def name_of(test: unittest.TestCase) -> str:
    """The name of a test, or of `setUpClass` and its like, without `test.`."""
    # By its class: some tests have an attribute of that name.
    name = re.sub(r"^(\w+) \((.*)\)$", r"\2.\1", type(test).id(test))
    return name.removeprefix("test.")


def guard(name: str, result: Outcomes) -> AbstractContextManager[object]:
    """A guard, made as a host makes it."""
    if name == BARE:
        return nullcontext()
    from fastaudit_rs import Policy

    if name == "workspace":
        return Policy.preset("workspace").guard()()

    def allow(event: str, *others: object) -> bool:
        result.note("", "asked", event)
        return True

    policy = Policy(
        write=None,
        protect=False,
        commands=True,
        env=True,
        import_allow=["*"],
        threads="inherit",
        native=True,
    )
    # Some variables and events have no field that allows them.
    return policy.guard(before_deny=allow)()


def chosen(suite: unittest.TestSuite, choice: dict[str, list[str]]) -> Iterator[unittest.TestCase]:
    """The tests of a suite to run: `only` these, or all but to `skip` these."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from chosen(test, choice)
        else:
            name = name_of(test)
            if name in choice.get("only", [name]) and name not in choice["skip"]:
                yield test


def run_inside(name: str, module: str, report: str, choice: str) -> None:
    """Run a module of tests under a guard."""
    from test import support

    # As at a terminal: what starts in the background ignores Ctrl-C, and hands that on.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A test that runs away must not take the machine with it.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    sys.path[0] = os.getcwd()
    # Tests that need the network, much time or much space are for other machines.
    support.use_resources = ()
    random.seed(0)
    short = module.removeprefix("test.")
    choices = json.loads(choice)
    choices["skip"] += [test for group in told()["left_out"] for test in group.get("tests", ())]
    result = Outcomes(os.open(report, os.O_WRONLY | os.O_APPEND))
    with guard(name, result) as result.guard:
        result.note(f"{short}.import", "started")
        try:
            suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(module))
        except unittest.SkipTest:
            result.note(f"{short}.import", "skip")
        except BaseException as error:
            result.note(f"{short}.import", "error", f"{type(error).__name__}: {error}")
        else:
            result.note(f"{short}.import", "ok")
            result.tell(f"{short}.import")
            unittest.TestSuite(chosen(suite, choices)).run(result)
    result.note(f"{short}.exit", "started")


class Run:
    """What became of a module of tests."""

    def __init__(self) -> None:
        """Begin without tests."""
        self.outcomes: dict[str, str] = {}
        #: The errors of those that failed.
        self.texts: dict[str, str] = {}
        #: What was denied to them; a dict for its order.
        self.denied: dict[str, dict[str, None]] = {}
        #: The events that no field allows.
        self.asked: Counter[str] = Counter()
        #: Seconds of processor time, with those of its children.
        self.seconds = 0.0

    def add(self, test: str, outcome: str, text: str) -> None:
        """Take a line of a report."""
        if outcome == "asked":
            self.asked[text] += 1
        elif outcome == "denied":
            self.denied.setdefault(test, {})[text] = None
        elif OUTCOMES.index(outcome) >= OUTCOMES.index(self.outcomes.get(test, "missing")):
            self.outcomes[test], self.texts[test] = outcome, text

    def text(self, test: str) -> str:
        """The error of a test, then what was denied to it."""
        error = self.texts[test]
        return " | ".join([error, *(one for one in self.denied.get(test, ()) if one not in error)])


def process(run: Run, guard: str, module: str, choice: dict[str, list[str]]) -> bool:
    """Run a module in a process. False if a test hung, or ended it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        base = Path(name).resolve()
        report, work = base / "report", base / "work"
        (work / "tmp").mkdir(parents=True)
        report.touch()
        inside = ["--inside", guard, module, str(report), json.dumps(choice)]
        with open(base / "log", "w") as log:
            child = subprocess.Popen(
                [sys.executable, __file__, *inside],
                cwd=work,
                env={**os.environ, "TMPDIR": str(work / "tmp")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        is_ended, status, usage = wait(child.pid, report)
        child.returncode = status
        lines = [json.loads(line) for line in report.read_text().splitlines()]
    run.seconds += usage.ru_utime + usage.ru_stime
    for line in lines:
        run.add(*line)
    if not lines:
        sys.exit(f"cpython_tests: {module} did not begin")
    last = [test for test, outcome, _ in lines if outcome not in ("asked", "denied")][-1]
    end = f"{module.removeprefix('test.')}.exit"
    if status or last != end:
        run.add(last, "crash" if is_ended else "hang", f"status {status}" if is_ended else "")
    else:
        run.add(end, "ok", "")
    return bool(last == end)


def wait(pid: int, report: Path) -> tuple[bool, int, Any]:
    """Wait for a process and end it if a test takes too long: did it end, its status, its use."""
    ended, size, since = 0, 0, time.monotonic()
    while not ended:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if size != (size := report.stat().st_size):
            since = time.monotonic()
        if time.monotonic() - since > PATIENCE:
            break
        time.sleep(0.02)
    # What it started may be there still.
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if not ended:
        _, status, usage = os.wait4(pid, 0)
    return bool(ended), os.waitstatus_to_exitcode(status), usage


def run(guard: str, module: str, only: list[str] | None = None) -> Run:
    """Run a module; after a test that hung or crashed go on with the others."""
    found = Run()
    for _ in range(RESTARTS):
        choice = {"skip": list(found.outcomes)} | ({"only": only} if only else {})
        if process(found, guard, module, choice):
            break
    return found


def reason(guarded: Run, test: str) -> str:
    """What a test tells, or what comes before it if it did not run."""
    if test in guarded.outcomes:
        return guarded.text(test)
    names = test.split(".")
    before = (
        ".".join([*names[:end], what])
        for end in range(1, len(names))
        for what in ("import", "setUpModule", "setUpClass")
    )
    told = (guarded.text(name) for name in before if guarded.outcomes.get(name) in FAILED)
    return next(told, "")


def differences(bare: Run, guarded: Run) -> dict[str, str]:
    """The tests that end differently, each with a line that tells how."""
    found = {}
    for test in {**bare.outcomes, **guarded.outcomes}:
        first, second = (each.outcomes.get(test, "missing") for each in (bare, guarded))
        if first != second:
            text = reason(guarded, test) or bare.texts.get(test, "")
            found[test] = f"{first} -> {second}  {text}".rstrip()
    return found


def again(guard: str, module: str, found: dict[str, str]) -> dict[str, str]:
    """Those of the differences that are there again when only these tests run."""
    is_whole = any(test.endswith((".import", ".exit")) for test in found)
    only = None if is_whole else list(found)
    second = differences(run(BARE, module, only), run(guard, module, only))
    return {test: text for test, text in second.items() if test in found}


class Found(NamedTuple):
    """What all runs of a module found."""

    runs: dict[str, Run]
    #: For each guard the tests that end differently.
    different: dict[str, dict[str, str]]


def look(module: str) -> Found:
    """Run a module in each way."""
    runs = {name: run(name, module) for name in (BARE, *GUARDS)}
    different = {name: differences(runs[BARE], runs[name]) for name in GUARDS}
    counts = ", ".join(f"{len(different[name])} {name}" for name in GUARDS)
    seconds = "/".join(f"{runs[name].seconds:.1f}" for name in runs)
    print(f"{module}: {len(runs[BARE].outcomes)} tests, {seconds} s, {counts}", flush=True)
    return Found(runs, different)


def modules() -> list[str]:
    """The names of all modules but those that the list leaves out."""
    from test.libregrtest.findtests import findtests

    left_out = [name for group in told()["left_out"] for name in group.get("modules", ())]
    names = [name if name.startswith("test.") else f"test.{name}" for name in findtests()]
    for entry in left_out:
        if not fnmatch.filter(names, f"test.{entry}"):
            sys.exit(f"cpython_tests: {entry}: there is no such module to leave out")
    return [
        name
        for name in names
        if not any(fnmatch.fnmatchcase(name, f"test.{entry}") for entry in left_out)
    ]


class Entry(NamedTuple):
    """One of the list: tests that end differently under a guard."""

    guard: str
    reason: str
    tests: str
    failure: str

    def __str__(self) -> str:
        """How a message names it."""
        return f"{self.guard}: {self.tests} {self.failure!r}"


def entries() -> list[Entry]:
    """All of the list."""
    return [
        Entry(name, group["reason"], tests, group.get("failure", ""))
        for group in told()["different"]
        for name in group["guards"]
        for tests in group["tests"]
    ]


def judge(listed: list[Entry], found: dict[str, Found]) -> tuple[Counter[Entry], list[str]]:
    """The tests that each entry stands for, and the differences that none does, as lines."""
    explained = Counter[Entry]()
    lines = []
    for module, each in found.items():
        for name in GUARDS:
            unlisted = {}
            for test, text in each.different[name].items():
                matching = [
                    entry
                    for entry in listed
                    if entry.guard == name
                    and fnmatch.fnmatchcase(test, entry.tests)
                    and re.search(entry.failure, text)
                ]
                explained.update(matching)
                if not matching:
                    unlisted[test] = text
            sure = again(name, module, unlisted) if unlisted else {}
            lines += [f"{name}: {test}: {text}" for test, text in sure.items()]
            for test in unlisted.keys() - sure.keys():
                del each.different[name][test]
                print(f"not again: {name}: {test}: {unlisted[test]}")
    return explained, lines


def table(found: dict[str, Found]) -> str:
    """The figures, in Markdown."""
    names = [test for each in found.values() for test in each.runs[BARE].outcomes]
    tests = sum(not test.endswith((".import", ".exit")) for test in names)
    lines = [
        "| guard | modules | with differences | tests | that end differently |",
        "| --- | --: | --: | --: | --: |",
    ]
    for name, title in GUARDS.items():
        differing = [each.different[name] for each in found.values() if each.different[name]]
        number = sum(map(len, differing))
        lines.append(f"| {title} | {len(found)} | {len(differing)} | {tests:,} | {number:,} |")
    return "\n".join(lines)


def reasons(explained: Counter[Entry]) -> str:
    """Why tests end differently, in Markdown."""
    numbers = {name: Counter[str]() for name in GUARDS}
    for entry, number in explained.items():
        numbers[entry.guard][entry.reason] += number
    total = sum(numbers.values(), Counter[str]())
    for each in numbers.values():
        each[OTHERS] = sum(number for name, number in each.items() if total[name] < FEW)
    names = sorted((name for name in total if total[name] >= FEW), key=lambda name: -total[name])
    lines = [f"| why | {' | '.join(GUARDS.values())} |", f"| --- |{' --: |' * len(GUARDS)}"]
    for name in (*names, OTHERS):
        cells = [f"{each[name]:,}" if each[name] else "" for each in numbers.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def slower(found: dict[str, Found]) -> list[str]:
    """The modules that a guard that allows everything slows most, as lines."""
    lines = []
    for module, each in found.items():
        bare, guarded = (each.runs[name].seconds for name in (BARE, "everything"))
        if bare >= SHORT and guarded > SLOW * bare:
            lines.append((guarded / bare, f"{module}: {guarded / bare:.2f} of {bare:.1f} s"))
    return [line for _, line in sorted(lines, reverse=True)]


def main() -> int:
    """Run them all, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", help="only these")
    parser.add_argument("--publish", action="store_true", help="write docs/ordinary.md")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--save", type=Path, help="write all that was found to this file, as JSON")
    options = parser.parse_args()
    version = told()["python"]
    if platform.python_version_tuple()[:2] != tuple(version.split(".")):
        sys.exit(f"cpython_tests: the list is for Python {version}")
    names = [f"test.{name.removeprefix('test.')}" for name in options.modules] or modules()
    with ThreadPoolExecutor(options.jobs) as pool:
        found = dict(zip(names, pool.map(look, names), strict=True))
    if options.save:
        saved = {
            name: {
                "different": each.different,
                "runs": {way: vars(run) for way, run in each.runs.items()},
            }
            for name, each in found.items()
        }
        options.save.write_text(json.dumps(saved, indent=1))
    listed = entries()
    explained, lines = judge(listed, found)
    if not options.modules:
        lines += [f"{entry}: no test differs" for entry in listed if not explained[entry]]
    print(*lines, "", table(found), "", reasons(explained), "", sep="\n")
    print(
        f"CPU time under a guard that {GUARDS['everything']}, beside bare:",
        *slower(found),
        sep="\n",
    )
    if options.publish and not lines and not options.modules:
        text = f"Python {platform.python_version()}:\n\n{table(found)}\n\n{reasons(explained)}\n"
        pages.publish("cpython", text, PAGE)
    return 1 if lines else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        run_inside(*sys.argv[2:])
    else:
        sys.exit(main())
