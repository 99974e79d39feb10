"""A long text in the place of a path: its judgement costs in proportion to its length."""

import contextlib
import errno
import os
import sqlite3
import time

import pytest
from programs import SLOWER

from fastaudit_rs import Policy

TEXTS = ["a/", "/", "../", "here/../", "<div class='a'><a href='x/y'>z</a></div>"]


def cost(act, text):
    """Returns the seconds of this thread: the machine may be busy."""
    start = time.thread_time()
    with contextlib.suppress(OSError):
        act(text)
    return time.thread_time() - start


@pytest.mark.parametrize("text", TEXTS)
def test_the_cost_is_linear(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("here")
    # Both are longer than the longest path, from where on each name is looked up by itself.
    few, many = (text * (length // len(text)) for length in (8_000, 80_000))
    with Policy(write=["."], read=["."]).guard()():
        for act in (open, lambda text: open(text, "w")):
            least = min(cost(act, few) for _ in range(3))
            assert min(cost(act, many) for _ in range(2)) < max(30 * least, 0.05 * SLOWER)


def test_the_systems_own_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Policy(write=["."]).guard()(), pytest.raises(OSError) as raised:
        open("<p>a/b</p>" * 1000, "w")
    assert raised.value.errno == errno.ENAMETOOLONG


def test_a_long_way_around(tmp_path, monkeypatch):
    """SQLite takes `.` and `..` out itself, and opens what is left."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    monkeypatch.chdir(inside)
    os.symlink(outside, "link")
    with Policy(write=["."]).guard()():
        sqlite3.connect("./" * 5000 + "a.db").close()
        with pytest.raises(PermissionError):
            sqlite3.connect("link/" + "./" * 5000 + "a.db")
    assert not os.listdir(outside)


def test_a_walk_through_deep_directories_ends(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(400):
        os.mkdir("a")
        os.chdir("a")
    os.chdir(tmp_path)
    with Policy(write=["."]).guard()(), pytest.raises(PermissionError):
        open("a/" * 400 + "../a/" * 50_000 + "b", "w")
