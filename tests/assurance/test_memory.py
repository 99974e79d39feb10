"""Inside a guard nothing piles up: what a check or a denial makes is given back at once."""

import gc
import os
import pathlib
import sqlite3
import sys

import pytest


class Unreadable:
    def __fspath__(self):
        raise ValueError


OPERATIONS = {
    "allowed": lambda places: os.close(os.open(places.ok + "/a", os.O_WRONLY | os.O_CREAT)),
    "event": lambda places: os.system("x"),
    "path": lambda places: os.mkdir(places.out + "/é"),
    "descriptor": lambda places: os.open(places.out + "/a", os.O_WRONLY, dir_fd=None),
    "unreadable": lambda places: sqlite3.connect(Unreadable()),
    "path-like": lambda places: sqlite3.connect(pathlib.Path(places.out, "a")),
    "attribute": lambda places: sys.audit("object.__setattr__", pytest.fail, "__code__", 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OPERATIONS)
@pytest.mark.parametrize("before_deny", [None, lambda *args: False], ids=["plain", "asked"])
def test_nothing_piles_up(guard, places, kind, before_deny):
    def repeat(times):
        for _ in range(times):
            try:  # noqa: SIM105 - the context manager would be counted too
                OPERATIONS[kind](places)
            except (PermissionError, ValueError):
                pass
        gc.collect()
        return sys.getallocatedblocks()

    with guard(before_deny=before_deny):
        # The guard keeps the first thousand denials.
        before = repeat(1200)
        assert repeat(2000) - before < 500
