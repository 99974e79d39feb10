"""Instructions of ours that each hot path takes, counted by valgrind and held to a baseline.

Only what runs in this package's own library is counted, not the interpreter, so that the number
says what a change of ours did. Counts repeat to well under one per cent, whatever else the machine
does. More than 3 % above the committed baseline is an error; a baseline is of one Python version
and one compiler, and is written anew by `--update` when a change is meant.
"""

import argparse
import contextlib
import functools
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BASELINE = Path(__file__).with_name("instructions.json")
TOLERANCE = 1.03
ITERATIONS = 2000
# Valgrind does not know openat2(2), so that for paths it is the walk over the components, which
# older kernels need, that is counted.
VALGRIND = ["valgrind", "--tool=callgrind", "--dump-instr=no", "--quiet"]
# A process asks for its parent as its case begins and as it ends, and valgrind writes what it
# counted until then: a case is the second part, without the start of the interpreter.
VALGRIND += ["--dump-before=getppid"]

Case = Callable[[int], None]


def event(count: int) -> None:
    """An event of no interest."""
    audit = sys.audit
    for _ in range(count):
        audit("os.listdir", "x")


def denied(*event: object) -> Case:
    """An event that is denied."""

    def run(count: int) -> None:
        for _ in range(count):
            try:  # noqa: SIM105 - a context manager would be measured too
                sys.audit(*event)
            except PermissionError:
                pass

    return run


def cases(base: str) -> dict[str, tuple[str, Case]]:
    """The guard of each case, and the operation that it repeats."""
    deep = os.path.join(base, "ok/a/b/c/d/e")
    os.makedirs(deep, exist_ok=True)
    file, outside = os.path.join(deep, "file"), os.path.join(base, "file")
    Path(file).touch()

    def open_by_mode(count: int) -> None:
        for _ in range(count):
            sys.audit("open", file, "r", 0)

    def open_by_flags(count: int) -> None:
        for _ in range(count):
            sys.audit("open", file, None, os.O_RDONLY)

    def write(count: int) -> None:
        for _ in range(count):
            sys.audit("open", file, "w", 0)

    def call(function: Callable[[], object]) -> Case:
        def run(count: int) -> None:
            for _ in range(count):
                function()

        return run

    def python() -> None:
        pass

    class Class:
        def method(self) -> None:
            pass

    return {
        "event, no guard": ("nothing", event),
        "ignored event": ("guard", event),
        "open for reading, by mode": ("guard", open_by_mode),
        "open for reading, by flags": ("guard", open_by_flags),
        "open for writing, five levels down": ("guard", write),
        "denied os.remove": ("guard", denied("os.remove", outside, -1)),
        "denied os.system": ("guard", denied("os.system", "x")),
        "denied os.system, after others": ("guard after denials", denied("os.system", "x")),
        "enter and leave": ("entering", event),
        "enter and leave, monitored": ("entering monitored", event),
        "call of a Python function": ("monitored", call(python)),
        "call of a bound method": ("monitored", call(Class().method)),
        "call of a builtin": ("monitored", call([].copy)),
        "call of a class": ("monitored", call(Class)),
        "ignored event, 0.2 rules": ("guard 0.2", event),
        "open for reading, 0.2 rules": ("guard 0.2", open_by_mode),
        "denied os.remove, 0.2 rules": ("guard 0.2", denied("os.remove", outside, -1)),
        "make, enter and leave": ("making", event),
        "make, enter and leave, 0.2 rules": ("making 0.2", event),
        "call that is declared safe, 0.2 rules": ("monitored 0.2", declared_safe),
        "call that the host lets pass": ("monitored, asking", let_pass),
    }


def declared_safe(count: int) -> None:
    """Calls of a native function of a module that is declared safe."""
    import numpy

    tolist = numpy.arange(3).tolist
    for _ in range(count):
        tolist()


def let_pass(count: int) -> None:
    """Calls of a native function that the host is asked about each time."""
    import orjson

    loads = orjson.loads
    for _ in range(count):
        loads("1")


def on_call(*_: object) -> bool:
    """A callback that lets all calls pass."""
    return False


def before_deny(
    event: str, args: object, frame: object, msg: str, data: object, calls: object
) -> None:
    """A callback as hosts have one."""


def run(name: str, count: int, base: str) -> None:
    """Run one case, as the process that is measured."""
    mode, case = cases(base)[name]
    rules = "fastaudit_rs.v02" if mode.endswith("0.2") else "fastaudit_rs"
    mk_audit = importlib.import_module(rules).mk_audit
    monitored = "monitored" in mode
    if monitored:
        # Native code from outside the standard library: without any there is nothing to watch.
        import orjson  # noqa: F401
    ask = {"on_call": on_call} if "asking" in mode else {}
    audit_perms = mk_audit([os.path.join(base, "ok")], monitor_calls=monitored, **ask)
    with audit_perms():
        # Work that is done only once is done now.
        case(5)
    if mode.startswith("entering"):
        os.getppid()
        for _ in range(count):
            with audit_perms():
                pass
        os.getppid()
    elif mode.startswith("making"):
        roots, deny = [os.path.join(base, "ok"), "."], functools.partial(before_deny)
        os.getppid()
        for _ in range(count):
            with mk_audit(roots, deny, data={}, monitor_calls=False)():
                pass
        os.getppid()
    else:
        with contextlib.nullcontext() if mode == "nothing" else audit_perms():
            if "after denials" in mode:
                denied("os.remove", os.path.join(base, "file"), -1)(1000)
            os.getppid()
            case(count)
            os.getppid()


def own_instructions(profile: str) -> int:
    """The instructions that a profile shows in this package's library.

    The format is that of https://valgrind.org/docs/manual/cl-format.html.
    """
    names: dict[str, str] = {}
    ours, total, inclusive = False, 0, False
    for line in profile.splitlines():
        if line.startswith("ob="):
            number, _, name = line[3:].partition(" ")
            if name:
                names[number] = name
            ours = "fastaudit_rs/_native" in names[number]
        elif line.startswith("cob="):
            number, _, name = line[4:].partition(" ")
            if name:
                names[number] = name
        elif line.startswith("calls="):
            # The next line has what the callee took.
            inclusive = True
        elif re.match(r"[+\-*\d]", line):
            if ours and not inclusive:
                total += int(line.split()[1])
            inclusive = False
    return total


def count(python: str, name: str) -> int:
    """The instructions of ours in a process that runs a case `ITERATIONS` times."""
    with tempfile.TemporaryDirectory() as base:
        os.mkdir(os.path.join(base, "ok"))
        profile = os.path.join(base, "profile")
        command = [*VALGRIND, f"--callgrind-out-file={profile}", python, __file__]
        command += ["--run", name, str(ITERATIONS), os.path.realpath(base)]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr}")
        return own_instructions(Path(f"{profile}.2").read_text())


def measure(python: str, names: list[str]) -> dict[str, float]:
    """The instructions of ours that one iteration of each case takes."""

    def one(name: str) -> float:
        return round(count(python, name) / ITERATIONS, 1)

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as workers:
        return dict(zip(names, workers.map(one, names), strict=True))


def compare(measured: dict[str, float], baseline: dict[str, float]) -> list[str]:
    """The problems with the counts, a line each."""
    wrong = []
    for name, found in measured.items():
        known = baseline.get(name)
        if known is None:
            wrong.append(f"{name}: no baseline; write one with --update")
        elif found > known * TOLERANCE:
            wrong.append(f"{name}: {found} instructions, {found / known - 1:.1%} above {known}")
    return wrong


def main() -> int:
    """Measure, print a table and compare with the baseline."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the baseline")
    parser.add_argument("--only", default="", help="only cases whose name has this text")
    options = parser.parse_args()
    compiler = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True)
    key = f"Python {sys.version_info[0]}.{sys.version_info[1]}, {compiler.stdout.split(' (')[0]}"
    baselines = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    baseline = baselines.get(key, {})
    with tempfile.TemporaryDirectory() as base:
        names = [name for name in cases(base) if options.only in name]
    measured = measure(sys.executable, names)
    print(f"Instructions of ours for each; {key}")
    for name, found in measured.items():
        known = baseline.get(name)
        print(f"  {name:38} {found:8.1f}" + (f" {found / known - 1:+8.1%}" if known else ""))
    if options.update:
        baselines[key] = {**baseline, **measured}
        BASELINE.write_text(json.dumps(baselines, indent=2) + "\n")
        return 0
    wrong = compare(measured, baseline)
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        sys.exit(main())
