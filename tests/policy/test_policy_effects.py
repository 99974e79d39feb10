"""`commands` of real programs; `tests/decisions` has the rules."""

import os
import pty
import shutil
import subprocess

import pytest


def output(*arguments, **options):
    return subprocess.run(*arguments, stdout=subprocess.PIPE, text=True, **options).stdout


@pytest.mark.parametrize("name", ["echo", shutil.which("echo"), "~/bin/echo"])
def test_those_that_are_named(under, places, name, monkeypatch):
    """They really run, with all the events that belong to their start."""
    if name.startswith("~"):
        monkeypatch.setenv("HOME", places.out)
        os.mkdir(places.out + "/bin")
        shutil.copy(shutil.which("echo"), places.out + "/bin")
    command = os.path.expanduser(name)
    lines = []
    assert under(lambda: lines.append(output([command, "a b"])), commands=[name]) is None
    assert under(lambda: lines.append(output([command], cwd="/")), commands=[name]) is None
    assert lines == ["a b\n", "\n"]
    for other in (["ls"], ["/bin/ls"]):
        assert under(output, other, commands=[name]).rule == "commands"


def test_by_the_other_ways(under):
    echo = shutil.which("echo")
    only = {"commands": ["echo"]}

    def spawn(start, name):
        pid = start(name, [name, "a"], os.environ)
        assert os.waitpid(pid, 0)[1] == 0

    assert under(spawn, os.posix_spawn, echo, **only) is None
    assert under(spawn, os.posix_spawnp, "echo", **only) is None
    assert under(spawn, os.posix_spawnp, "true", **only).rule == "commands"
    assert under(os.execv, "/bin/true", ["true"], **only).rule == "commands"
    assert under(os.system, "echo a", **only).rule == "commands"
    assert under(pty.spawn, ["true"], **only).rule == "commands"
