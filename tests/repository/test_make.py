"""What `make quick` runs."""

import programs
from repository import ROOT


def test_the_files_of_the_quick_loop_are_there():
    make = ["make", "--dry-run", "--no-print-directory", "quick"]
    commands = programs.run(make, cwd=ROOT, check=True).stdout
    named = [word for word in commands.split() if word.startswith("tests/")]
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []
