"""A relative link that is moved leads elsewhere: it is judged as one that is made there."""

import os
import shutil

import pytest

from fastaudit_rs import Policy


@pytest.mark.parametrize("move", [os.rename, os.replace, shutil.move])
def test_a_link_that_would_lead_out(move, tmp_path, monkeypatch):
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(root)
    with Policy(write=["."]).guard()():
        os.symlink("../out", "a/link")
        with pytest.raises(PermissionError):
            move("a/link", "link")
        move("a/link", "a/other")
        move("a/other", "a/b/other")
    assert not os.path.lexists("link")
