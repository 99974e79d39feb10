"""The tutorial in docs/ gives what it shows, in a real kernel."""

import importlib.util
import os

import nbformat
import pytest
from repository import ROOT

SCRIPT = ROOT / "scripts" / "tutorial.py"


@pytest.mark.slow
def test_it_gives_what_it_shows(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("tutorial", SCRIPT)
    tutorial = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tutorial)
    # Older kernels print warnings of theirs into cells.
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    (tmp_path / "work").mkdir()
    shown = tutorial.told(nbformat.read(tutorial.PAGE, as_version=4))
    given = tutorial.told(tutorial.run(os.path.realpath(tmp_path / "work")))
    assert given == shown
    assert len([outputs for outputs in shown if outputs]) >= 7
