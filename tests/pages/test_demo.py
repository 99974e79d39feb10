"""`make demo` shows what this Python can, and calls nothing wrong that it cannot."""

import sys

import programs
import pytest
from repository import ROOT

DEMO = ROOT / "demo/run.py"


def test_demo():
    pytest.importorskip("rich")
    done = programs.python(DEMO)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    rows = [line.split("│")[1:4] for line in done.stdout.splitlines() if line.count("│") == 4]
    outcome, told = next(row[1:] for row in rows if row[0].strip() == "work in a thread")
    unseen = sys.version_info < (3, 12)
    assert outcome.strip() == ("ran" if unseen else "stopped")
    assert ("not seen before Python 3.12" in told) == unseen
    assert done.stdout.endswith(
        f"0 not as expected{', 1 not seen by this Python' * unseen}; "
        "files outside the workspace: unchanged\n"
    )
