"""Runs the tests that try what a sandbox promises, and writes the table of docs/assurance.md.

A test says by `@pytest.mark.holds(ring, promise)` which ring it shows to hold which promise.
`make promises-page` has it find the package as it is installed, and a runtime of containers.
"""

import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / name) for name in ("tests/support", "benches")]

import pages  # noqa: E402
import promises  # noqa: E402

PAGE = ROOT / "docs" / "assurance.md"

#: The rings, from the inside.
RINGS = ("guard", "kernel", "host", "container")


class Found:
    """A plugin of pytest: the outcomes of marked tests, by promise and ring."""

    def __init__(self):
        """Begin without any."""
        self.cells = defaultdict(lambda: defaultdict(list))
        self._marks = {}

    def pytest_collection_modifyitems(self, items):
        """Note the marks."""
        for item in items:
            self._marks[item.nodeid] = [mark.args for mark in item.iter_markers("holds")]

    def pytest_runtest_logreport(self, report):
        """Note an outcome."""
        if report.when != "call" and report.passed:
            return
        for ring, promise in self._marks[report.nodeid]:
            self.cells[promise][ring].append(report.outcome)


def table(cells):
    """The promises, and for each ring the number of tests in which it held."""
    rows = [["", *RINGS]]
    for promise in sorted(cells, key=list(vars(promises).values()).index):
        rows.append([promise, *(cell(cells[promise].get(ring)) for ring in RINGS)])
    return pages.table(rows)


def cell(outcomes):
    """The words for the outcomes of the tests of one promise and ring."""
    if not outcomes:
        return ""
    passed, failed = outcomes.count("passed"), outcomes.count("failed")
    if failed:
        return f"**not held**: {failed} of {len(outcomes)}"
    return str(passed) if passed else "not tried here"


found = Found()
arguments = ["-m", "holds", "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
places = ["-c", str(ROOT / "pyproject.toml"), str(ROOT / "tests" / "sandbox")]
status = pytest.main([*arguments, *places], plugins=[found])
shown = table(found.cells)
print(shown)
if status == 0:
    pages.publish("promises", shown, PAGE)
sys.exit(status)
