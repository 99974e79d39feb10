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


@pytest.mark.parametrize("env", [{}, {"LC_ALL": "C"}])
def test_an_environment_without_a_path(under, env):
    """Python and the C library search /bin and /usr/bin then."""
    lines = []
    assert under(lambda: lines.append(output(["echo", "a"], env=env)), commands=["echo"]) is None
    assert lines == ["a\n"]
    assert under(lambda: output(["ls"], env=env), commands=["echo"]).rule == "commands"


def test_a_process_without_a_path(under, monkeypatch):
    monkeypatch.delenv("PATH")
    assert under(output, ["echo", "a"], commands=["echo"]) is None
    assert under(output, ["ls"], commands=["echo"]).rule == "commands"


def test_one_of_that_name_in_the_current_directory(under, monkeypatch, places):
    """execve(2) and posix_spawn(3) take it, where subprocess has that of PATH."""
    monkeypatch.chdir(places.ok)
    shutil.copy(shutil.which("true"), "echo")
    for start in (lambda: os.execv("echo", ["echo"]), lambda: os.posix_spawn("echo", ["echo"], {})):
        assert under(start, commands=["echo"]).suggestion["commands"][1:] == [f"{places.ok}/echo"]
    assert under(output, ["echo", "a"], commands=["echo"]) is None


@pytest.mark.parametrize("name", ["get_exec_path", "defpath"])
def test_another_search_than_that_of_the_path(under, monkeypatch, places, name):
    """The program that starts is judged, not the one that would be found."""
    shutil.copy(shutil.which("true"), f"{places.ok}/echo")
    monkeypatch.setattr(os, name, places.ok if name == "defpath" else lambda env: [places.ok])
    denied = under(lambda: output(["echo"], env={}), commands=["echo"])
    assert denied.suggestion["commands"][1:] == [f"{places.ok}/echo"]
