"""What `make quick` runs."""

import subprocess

from repository import ROOT


def test_the_files_of_the_quick_loop_are_there():
    make = ["make", "--dry-run", "--no-print-directory", "quick"]
    commands = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = [word for word in commands.split() if word.startswith("tests/")]
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []
