"""What a host's agent asks a session for: the rules for a tool's description, and changed files."""

import os

import pytest

from fastaudit_rs import Limits, Network, Policy, Sandbox


def told(policy, place, directory):
    if place == "here":
        with policy.session(directory=directory, timeout=5) as session:
            return session.rules_for_model().splitlines()
    pytest.importorskip("sandlock")
    limits = Limits(wall_seconds=5, memory="1G")
    with Sandbox(policy, limits) as sandbox, sandbox.session() as session:
        return session.rules_for_model().splitlines()


def test_rules_are_told(place, directory):
    elsewhere = [f"/srv/{number}" for number in range(12)]
    policy = Policy(
        write=[".", "/srv/o\x1b[2J"],
        read=elsewhere,
        network=Network(hosts=["a.org:443", "b.org"]),
        commands=["git"],
        imports=["math"],
    )
    lines = told(policy, place, directory)
    assert "- Write files in: the working directory, /srv/o\\x1b[2J" in lines
    read = ", ".join(elsewhere)
    for line in ("- Network: a.org:443, b.org", "- Start programs: git", "- Import modules: math"):
        assert line in lines
    [read] = [line for line in lines if line.startswith("- Read files in: installed packages, ")]
    assert "more" in read and "/srv/0" in read and "/srv/11" not in read
    if place == "here":
        assert f"- Working directory: {directory}" in lines
        assert "- Limits: 5 seconds a call" in lines
    else:
        assert "- Limits: 5 seconds a call, 1 GB of memory" in lines


def test_rules_that_allow_all_or_nothing(place, directory):
    lines = told(Policy(write=None, network=True, commands=True), place, directory)
    assert {"- Write files in: any directory", "- Network: any host"} <= set(lines)
    assert "- Start programs: any" in lines
    lines = told(Policy(network=False), place, directory)
    assert {"- Network: none", "- Start programs: none"} <= set(lines)
    own = "the working directory" if place == "sandbox" else "none"
    assert f"- Write files in: {own}" in lines


def test_changed_files_are_read(session):
    ran = session.run("import os\nos.mkdir('d')\nopen('d/a', 'wb').write(b'\\0a')")
    assert ran.changed == ["d/a"] and session._read_file("d/a", 2) == b"\0a"
    with pytest.raises(OSError, match="more than|larger|bytes"):
        session._read_file("d/a", 1)


def test_nothing_else_is_read(session, place, directory):
    """Links, files outside, and what is no file: the code made the directory."""
    work = directory if place == "here" else session._config.directory
    outside = work.parent / "outside"
    outside.write_text("secret")
    os.symlink(outside, work / "link")
    os.symlink(work.parent, work / "up")
    os.mkfifo(work / "pipe")
    for name in ("link", "up/outside", "pipe", "../outside", str(outside), "", ".", "none"):
        with pytest.raises((OSError, ValueError)):
            session._read_file(name, 100)
    session.close()
    with pytest.raises((OSError, RuntimeError)):
        session._read_file("a", 100)


def test_a_session_without_a_directory_of_its_own_has_no_files():
    with Policy().session() as session, pytest.raises(FileNotFoundError, match="directory="):
        session._read_file("a", 100)
