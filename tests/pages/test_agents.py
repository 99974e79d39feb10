"""The page docs/agents.md: its program prints the same in this process and in a sandbox."""

import re
import subprocess
import sys

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
    done = subprocess.run(
        [sys.executable, PROGRAM, place], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    shown = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)[1]
    assert (done.stdout, done.stderr) == (shown, "")
