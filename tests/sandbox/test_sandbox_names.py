"""Files in a sandbox whose names are not UTF-8, judged from outside."""

import os

import pytest


@pytest.fixture
def run(make_sandbox, tmp_path):
    """`run(code)`: its end, and the modes of the files there are; it has a directory outside.

    Links lead to the directory, which must remain empty.
    """

    def run(code):
        sandbox = make_sandbox(None)
        place = os.fsencode(sandbox.directory)
        os.symlink(tmp_path, place + b"/out\xff")
        os.symlink(b"out\xff", place + b"/again")
        ran = sandbox.run(code, args=[str(tmp_path)])
        assert os.listdir(tmp_path) == []
        found = {
            os.fsdecode(name): os.lstat(place + b"/" + name).st_mode & 0o777
            for name in os.listdir(place)
        }
        return ran.stderr, [denied.event for denied in ran.violations], found

    return run


@pytest.mark.slow
def test_used_where_may_be_written(run):
    """Also by way of links, and of links that have such names themselves."""
    code = """
import os
open(b"caf\\xe9", "w").write("x")
os.mkdir(b"d\\xff")
os.symlink(b"d\\xff", b"l\\xff")
os.symlink("plain", b"m\\xff")
os.mkdir("plain")
for place in (b"d\\xff", b"l\\xff", b"l\\xff/../d\\xff", b"m\\xff"):
    open(place + b"/a", "w").write("x")
    assert open(place + b"/a").read() == "x"
    os.remove(place + b"/a")
try:
    open(b"none\\xff/a", "w")
except FileNotFoundError:
    pass
os.chmod(b"caf\\xe9", 0o640)
os.rename(b"caf\\xe9", b"th\\xe9")
"""
    said, denied, found = run(code)
    assert (said, denied) == ("", [])
    assert sorted(found) == [
        "again",
        "d\udcff",
        "l\udcff",
        "m\udcff",
        "out\udcff",
        "plain",
        "th\udce9",
    ]
    assert found["th\udce9"] == 0o640


@pytest.mark.slow
def test_links_lead_nowhere_else(run):
    code = """
import os, sys
for place in (b"out\\xff", b"again", b"again/../" + os.fsencode(os.path.basename(sys.argv[1]))):
    for act in (lambda path: open(path, "w"), os.mkdir):
        try:
            act(place + b"/a")
        except PermissionError:
            pass
"""
    said, denied, _ = run(code)
    assert said == ""
    assert denied == ["open", "os.mkdir"] * 3
