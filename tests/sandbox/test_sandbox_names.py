"""Files in a sandbox whose names are not UTF-8, judged from outside, as each user."""

import json

import pytest
from users import USERS, directory_of, run_as

#: A host: it makes links to outside, runs guarded code, and tells its end and the names and modes
#: of the files that there are.
HOST = r"""
import json, os, sys
from fastaudit_rs import Sandbox
outside, code = sys.argv[1:]
with Sandbox() as sandbox:
    place = os.fsencode(sandbox.directory)
    os.symlink(outside, place + b"/out\xff")
    os.symlink(b"out\xff", place + b"/again")
    ran = sandbox.run(code, args=[outside])
    found = {os.fsdecode(name): os.lstat(place + b"/" + name).st_mode & 0o777
             for name in os.listdir(place)}
    print(json.dumps([ran.stderr, [denied.event for denied in ran.violations], found]))
"""


def run(user, code):
    """Run guarded code with a directory outside as its argument, which must remain empty."""
    with directory_of(user) as outside:
        told = json.loads(run_as(user, HOST, outside, code))
        assert run_as(user, "import os, sys; print(os.listdir(sys.argv[1]))", outside) == "[]\n"
    return told


@pytest.mark.slow
@pytest.mark.parametrize("user", USERS)
def test_used_where_may_be_written(user):
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
    said, denied, found = run(user, code)
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
@pytest.mark.parametrize("user", USERS)
def test_links_lead_nowhere_else(user):
    code = """
import os, sys
for place in (b"out\\xff", b"again", b"again/../" + os.fsencode(os.path.basename(sys.argv[1]))):
    for act in (lambda path: open(path, "w"), os.mkdir):
        try:
            act(place + b"/a")
        except PermissionError:
            pass
"""
    said, denied, _ = run(user, code)
    assert said == ""
    assert denied == ["open", "os.mkdir"] * 3
