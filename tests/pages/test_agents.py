"""The page docs/agents.md: its program prints the same in this process and in a sandbox."""

import re

import programs
import pytest
from repository import ROOT

PROGRAM = ROOT / "docs" / "agents.py"
PAGE = (ROOT / "docs/agents.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["here", "sandbox"])
def test_it_prints_what_the_page_shows(place, tmp_path):
    for package in ("numpy", "pandas", "matplotlib"):
        pytest.importorskip(package)
    if place == "sandbox":
        pytest.importorskip("sandlock")
    done = programs.python(PROGRAM, place, cwd=tmp_path)
    shown = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)[1]
    assert (done.stdout, done.stderr) == (shown, "")
