"""Run the test files of fastaudit, as they come from PyPI, on this package.

The files of 0.1.0 have to pass. The files of 0.2.10 are run on fastaudit 0.2.10 too: tests that
pass there have to pass here, and tests that fail there are shown with their outcome here. Calls are
watched in both ways.

    conformance.py            both
    conformance.py --first    the file of 0.1.0, on this package
    conformance.py --inside   the files of 0.2.10 once, on the package that `fastaudit` is
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "conformance"
FILES = ("tests/test_core.py", "tests/test_cython.py", "tests/test_pandas_crash.py")


def fetch(version: str) -> Path:
    """The unpacked source distribution."""
    source = CACHE / f"fastaudit-{version}"
    if not source.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        requirement = ["--no-deps", "--no-binary", "fastaudit", f"fastaudit=={version}"]
        command = [sys.executable, "-m", "pip", "download", "--quiet", *requirement]
        subprocess.run([*command, "--dest", str(CACHE)], check=True)
        with tarfile.open(CACHE / f"fastaudit-{version}.tar.gz") as archive:
            archive.extractall(CACHE, filter="data")
    return source


def run_first() -> int:
    """The tests of 0.1.0 on this package; pytest's exit code."""
    import fastaudit_rs

    source = fetch("0.1.0")
    fastaudit_rs.install_as_fastaudit("0.1")
    os.chdir(source)
    code = pytest.main(["-v", "-p", "no:cacheprovider", "--rootdir", ".", FILES[0]])
    tested = sys.modules["test_core"].mk_audit
    assert tested is fastaudit_rs.mk_audit, f"tested {tested} and not this package"
    return int(code)


def run_inside(package: str, report: str) -> int:
    """The tests of 0.2.10 on one package; whatever they do is in the report."""
    if package == "fastaudit_rs":
        from fastaudit_rs import install_as_fastaudit

        install_as_fastaudit("0.2")
    arguments = ["-q", "-p", "no:cacheprovider", "--rootdir", ".", f"--junitxml={report}"]
    pytest.main([*arguments, *FILES])
    tested = sys.modules["test_core"].mk_audit
    assert tested.__module__.partition(".")[0] == package, f"tested {tested} and not {package}"
    return 0


def outcomes(python: str, package: str, environment: dict[str, str]) -> tuple[dict[str, str], str]:
    """The outcome of each test of 0.2.10, by its name, and the output of the run."""
    with tempfile.TemporaryDirectory() as directory:
        report = os.path.join(directory, "report.xml")
        command = [python, Path(__file__).resolve(), "--inside", package, report]
        # Tests that fail on the original fail in every run: shown, they would hide those of ours.
        ran = subprocess.run(
            command,
            cwd=fetch("0.2.10"),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if ran.returncode:
            sys.exit(f"{ran.stdout}\nconformance: no tests of 0.2.10 on {package}")
        found = {}
        for case in ET.parse(report).iter("testcase"):
            kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
            found[f"{case.get('classname')}::{case.get('name')}"] = (
                kinds.pop() if kinds else "passed"
            )
    return found, ran.stdout


SIDES = ("events", "callee")
#: Tests of 0.2.10 of the events of `sys.monitoring` themselves, which guards by callee do without.
OF_EVENTS = {"tests.test_core::test_monitor_events_toggle"}


def run_second() -> int:
    """The tests of 0.2.10 on both packages; whether one that passes there does not here."""
    sys.path.insert(0, str(ROOT / "tests/support"))
    import peers

    with tempfile.TemporaryDirectory() as directory:
        environment = peers.environment(Path(directory))
        there, _ = outcomes(peers.python(), "fastaudit", environment)
        return max(compare(there, side, environment) for side in SIDES)


def compare(there: dict[str, str], side: str, environment: dict[str, str]) -> int:
    """The same with calls watched from one side."""
    import peers

    environment = {**environment, "FASTAUDIT_RS_CALLS": side}
    here, printed = outcomes(peers.python(), "fastaudit_rs", environment)
    print(f"\n{'test of fastaudit 0.2.10':60} {'on 0.2.10':10} here, calls={side!r}")
    for name, outcome in there.items():
        print(f"{name:60} {outcome:10} {here.get(name)}")
    assert len(there) >= 14 and there.keys() == here.keys(), "other tests were collected"
    lost = [name for name in there if there[name] == "passed" != here[name]]
    if side == "callee":
        lost = [name for name in lost if name not in OF_EVENTS]
    print(f"passed there and not here: {', '.join(lost) or 'none'}")
    if lost:
        print(printed)
    return 1 if lost else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        sys.exit(run_inside(*sys.argv[2:]))
    if sys.argv[1:2] == ["--first"]:
        sys.exit(run_first())
    for side in SIDES:
        # In a process of its own, as the package stands in for fastaudit there.
        environment = {**os.environ, "FASTAUDIT_RS_CALLS": side}
        subprocess.run([sys.executable, __file__, "--first"], check=True, env=environment)
    sys.exit(run_second())
