"""A relative link that is moved leads elsewhere: it is judged as one that is made there."""

import os
import shutil
import sys

import pytest

from fastaudit_rs import Policy


@pytest.fixture
def root(tmp_path, monkeypatch):
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(root)
    return root


def link(source, target):
    os.link(source, target, follow_symlinks=False)


#: From 3.14 on `os.link()` follows a link unless told not to.
MOVES = [
    os.rename,
    os.replace,
    shutil.move,
    link,
    *([os.link] if sys.version_info < (3, 14) else []),
]


@pytest.mark.parametrize("move", MOVES)
def test_a_link_that_would_lead_out(move, root):
    with Policy(write=["."]).guard()():
        os.symlink("../out", "a/link")
        with pytest.raises(PermissionError) as caught:
            move("a/link", "link")
        move("a/link", "a/other")
        move("a/other", "a/b/other")
    assert not os.path.lexists("link")
    assert caught.value.hint == f"write = ['.', '{root.parent}/out']"
    with Policy(write=[".", "../out"]).guard()():
        move("a/b/other", "a/last")
        move("a/last", "link")
    assert os.path.samefile("link", "../out")


def test_from_directories_that_are_open(root):
    a = os.open("a", os.O_RDONLY)
    with Policy(write=["."]).guard()():
        os.symlink("../out", "a/link")
        for move in (os.rename, os.link):
            with pytest.raises(PermissionError):
                move("link", "link", src_dir_fd=a)
    os.close(a)
    assert not os.path.lexists("link")
