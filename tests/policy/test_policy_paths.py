"""`Policy`: what `write`, `read`, `block` and `protect` allow and stop."""

import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fastaudit_rs import AuditDenied, Policy, mk_audit


def touch(path):
    open(path, "w").close()


def read(path):
    with open(path) as file:
        return file.read()


def raising(error):
    raise error


class TestWrite:
    def test_below_the_roots_alone(self, under, places):
        assert under(touch, places.ok + "/a") is None
        denied = under(touch, places.out + "/a")
        assert denied.args == (f"open '{places.out}/a' not in ('{places.ok}',)",)
        assert denied.rule == "write"
        assert denied.hint == f"write = ['{places.ok}', '{places.out}/a']"

    def test_nowhere_by_default(self, places):
        with Policy().guard(monitor_calls=False)(), pytest.raises(AuditDenied):
            touch(places.ok + "/a")

    def test_nowhere(self, under, places):
        denied = under(touch, places.out + "/a", write=[])
        assert denied.message == f"open '{places.out}/a': nothing may be written"

    def test_anywhere(self, under, places):
        assert under(touch, places.out + "/a", write=None) is None

    def test_home(self, under, places, monkeypatch):
        monkeypatch.setenv("HOME", places.out)
        os.mkdir(places.out + "/sub")
        assert under(touch, places.out + "/sub/a", write=["~/sub"]) is None
        assert under(touch, places.out + "/a", write=["~/sub"]).rule == "write"
        assert Policy(write=["~/sub"]).write == ("~/sub",)

    def test_the_current_directory_is_followed(self, under, places):
        def change():
            touch("a")
            os.chdir(places.ok)
            touch("b")

        assert under(change, write=[".", places.ok]) is None
        assert os.path.exists(places.cwd + "/a")

    def test_is_what_mk_audit_does(self, under, places):
        """Beside names that are protected."""
        for path in (places.ok + "/a", places.out + "/a", places.ok + "ay", "/dev/null"):
            try:
                with mk_audit([places.ok], monitor_calls=False)():
                    touch(path)
                message = None
            except AuditDenied as denied:
                message = denied.message
            denied = under(touch, path, protect=False)
            assert (denied and denied.message) == message


class TestRead:
    def test_anywhere_by_default(self, under, places):
        Path(places.out, "a").touch()
        assert under(read, places.out + "/a") is None

    def test_below_the_roots_alone(self, under, places):
        Path(places.out, "a").touch()
        Path(places.cwd, "a").touch()
        assert under(read, places.cwd + "/a", read=[places.cwd]) is None
        assert under(read, "a", read=["."]) is None
        denied = under(read, places.out + "/a", read=[places.cwd])
        assert denied.args == (f"open '{places.out}/a' not readable: not in ('{places.cwd}',)",)
        assert (denied.rule, denied.effect) == ("read", "read")
        nothing = under(read, places.out + "/a", read=[])
        assert nothing.message == f"open '{places.out}/a': nothing may be read"
        assert denied.hint == f"read = ['{places.cwd}', '{places.out}/a']"

    @pytest.mark.parametrize(
        "operation",
        [
            os.listdir,
            lambda path: os.close(os.open(path, os.O_RDONLY)),
            lambda path: list(os.scandir(path)),
            lambda path: list(os.walk(path, onerror=raising)),
            lambda path: list(os.fwalk(path, onerror=raising)),
            os.listxattr,
            lambda path: list(Path(path).iterdir()),
            lambda path: shutil.copytree(path, path + "/../ok/copied"),
        ],
    )
    def test_everything_that_reads(self, under, places, operation):
        assert under(operation, places.out, read=[places.cwd, places.ok]).rule == "read"
        assert under(operation, places.out) is None

    def test_attributes(self, under, places):
        denied = under(os.getxattr, places.out, "user.none", read=[places.ok])
        assert (denied.rule, denied.hint) == ("read", f"read = ['{places.ok}', '{places.out}']")
        with pytest.raises(OSError):
            under(os.getxattr, places.out, "user.none")

    def test_of_the_current_directory_by_no_name(self, under, places):
        assert under(os.listdir, read=[places.ok]).rule == "read"
        assert under(os.listdir, read=["."]) is None

    def test_of_copies(self, under, places):
        Path(places.out, "a").touch()
        for copy in (shutil.copyfile, shutil.copy, shutil.copy2, shutil.move):
            arguments = (places.out + "/a", places.ok + "/a")
            assert under(copy, *arguments, write=None, read=[places.ok]) is not None, copy
        assert os.listdir(places.ok) == []

    def test_of_where_a_link_leads(self, under, places):
        Path(places.out, "a").touch()
        os.symlink(places.out + "/a", places.ok + "/link")
        os.symlink(places.ok, places.out + "/back")
        Path(places.ok, "b").touch()
        assert under(read, places.ok + "/link", read=[places.ok]).rule == "read"
        assert under(read, places.out + "/back/b", read=[places.ok]) is None

    def test_of_an_open_descriptor(self, under, places):
        Path(places.out, "a").write_text("x")
        descriptor = os.open(places.out + "/a", os.O_RDONLY)
        assert under(read, descriptor, read=[places.ok]) is None

    def test_of_databases(self, under, places):
        sqlite3.connect(places.out + "/db").close()

        def connect():
            sqlite3.connect(f"file:{places.out}/db?mode=ro", uri=True).close()

        assert under(connect, read=[places.ok]).rule == "read"
        assert under(connect, read=[places.out]) is None

    def test_imports_still_work(self, places):
        """In a fresh process: nothing is loaded yet."""
        code = f"""
            from fastaudit_rs import Policy
            with Policy(read=[{places.ok!r}]).guard(monitor_calls=False)():
                import csv, json, elftools.elf.elffile, xml.dom.minidom
                try:
                    open("/etc/passwd")
                except PermissionError as denied:
                    print(denied.rule)
        """
        run = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True
        )
        assert (run.stdout, run.stderr) == ("read\n", "")


class TestBlock:
    @pytest.fixture
    def secret(self, places):
        path = places.ok + "/secret"
        os.mkdir(path)
        Path(path, "a").touch()
        return path

    def test_beats_every_root(self, under, places, secret):
        for operation in (touch, read, os.remove):
            for fields in ({}, {"write": None}, {"write": [secret], "read": [secret]}):
                denied = under(operation, secret + "/a", block=[secret], **fields)
                assert denied.rule == "block"
                assert denied.args == (f"{denied.event} '{secret}/a' is blocked",)
        assert under(touch, places.ok + "/b", block=[secret]) is None
        assert under(touch, places.ok + "/secretly", block=[secret]) is None
        assert os.listdir(secret) == ["a"]

    def test_by_whatever_name(self, under, places, secret, monkeypatch):
        os.symlink(secret, places.ok + "/link")
        os.symlink(secret + "/a", places.ok + "/file")
        monkeypatch.chdir(secret)
        for path in (
            places.ok + "/link/a",
            places.ok + "/file",
            places.ok + "/x/../secret/a",
            "a",
            os.fsencode(secret) + b"/a",
            Path(secret, "a"),
        ):
            for operation in (touch, read):
                assert under(operation, path, block=[secret]).rule == "block", path

    def test_a_link_in_it(self, under, places, secret):
        """It is blocked wherever it leads."""
        for directory, rule in ((places.ok, "block"), (places.out, "write")):
            Path(directory, "a").touch()
            link = f"{secret}/{rule}"
            os.symlink(directory + "/a", link)
            assert under(read, link, block=[secret]).rule == "block"
            assert under(touch, link, block=[secret]).rule == rule

    def test_a_file(self, under, secret):
        assert under(read, secret + "/a", block=[secret + "/a"]).rule == "block"
        assert under(touch, secret + "/b", block=[secret + "/a"]) is None

    def test_what_is_not_there_yet(self, under, places):
        assert under(touch, places.ok + "/new", block=[places.ok + "/new"]).rule == "block"
        assert under(os.mkdir, places.ok + "/new", block=[places.ok + "/new"]).rule == "block"

    def test_moving_what_holds_it(self, under, places, secret):
        for move in (os.rename, os.replace, shutil.move):
            denied = under(move, places.ok, places.ok + "2", write=None, block=[secret])
            assert denied.rule == "block"
        os.mkdir(places.ok + "/other")
        denied = under(os.rename, places.ok + "/other", secret, block=[secret])
        assert denied.rule == "block"

    def test_links_to_it(self, under, places, secret):
        link = places.ok + "/link"
        assert under(os.symlink, secret, link, block=[secret]).rule == "block"
        assert under(os.symlink, "secret/a", link, block=[secret]).rule == "block"
        assert under(os.link, secret + "/a", link, block=[secret]).rule == "block"

    def test_entering_and_listing_it(self, under, secret):
        for operation in (os.listdir, os.chdir, os.scandir):
            assert under(operation, secret, block=[secret]).rule == "block"

    def test_home(self, under, secret, monkeypatch):
        monkeypatch.setenv("HOME", os.path.dirname(secret))
        assert under(read, secret + "/a", block=["~/secret"]).rule == "block"


class TestProtect:
    @pytest.fixture
    def repository(self, places):
        os.makedirs(places.ok + "/a/.git/hooks")
        return places.ok + "/a/.git"

    def test_names_inside_a_root(self, under, repository):
        denied = under(touch, repository + "/hooks/pre-commit")
        assert denied.rule == "protect"
        assert denied.args == (f"open '{repository}/hooks/pre-commit' is protected",)
        assert under(touch, repository + "/config").rule == "protect"
        assert under(touch, repository + "/HEAD") is None
        assert under(touch, repository + "/../hooks") is None

    @pytest.mark.parametrize("name", Policy.PROTECTED)
    def test_the_preset(self, under, places, name):
        os.makedirs(os.path.dirname(f"{places.ok}/{name}"), exist_ok=True)
        for path in (f"{places.ok}/{name}", f"{places.ok}/{name}/a"):
            assert under(os.mkdir, path).rule == "protect"
            assert under(os.mkdir, path, protect=False) is None

    def test_reading_them_passes(self, under, repository):
        Path(repository, "config").touch()
        assert under(read, repository + "/config") is None

    def test_ones_own(self, under, places, repository):
        own = {"protect": ["x/y", "z"]}
        os.mkdir(places.ok + "/x")
        assert under(touch, places.ok + "/x/y", **own).rule == "protect"
        assert under(touch, places.ok + "/z", **own).rule == "protect"
        assert under(touch, places.ok + "/y", **own) is None
        assert under(touch, repository + "/config", **own) is None

    def test_by_way_of_another_name(self, under, places, repository):
        os.symlink(repository, places.ok + "/link")
        os.mkdir(places.ok + "/hooks")
        os.mkdir(places.ok + "/other")
        for operation in (
            lambda: touch(places.ok + "/link/hooks/a"),
            lambda: os.rename(repository, places.ok + "/b"),
            lambda: os.rename(places.ok + "/hooks", repository + "/hooks"),
            lambda: os.rename(places.ok + "/other", places.ok + "/.git"),
            lambda: os.symlink("other", places.ok + "/.git"),
            lambda: os.symlink("a/.git/hooks", places.ok + "/direct"),
            lambda: shutil.rmtree(repository + "/hooks"),
        ):
            assert under(operation).rule == "protect"

    def test_not_by_mk_audit(self, places, repository):
        with mk_audit([places.ok], monitor_calls=False)():
            touch(repository + "/config")


def test_a_directory_that_is_there(places, under, guard):
    os.symlink(places.out, places.cwd + "/link")
    for path in (places.out, places.out + "/", Path(places.out), "link"):
        with pytest.raises(FileExistsError):
            under(os.mkdir, path)
    assert under(os.mkdir, places.out + "/new").rule == "write"
    blocking = {"write": [os.path.dirname(places.out)], "block": [places.out]}
    assert under(os.mkdir, places.out, **blocking).rule == "block"

    class Changing:
        def __fspath__(self):
            self.asked = getattr(self, "asked", 0) + 1
            return places.out + "/new" if self.asked == 1 else places.out

    assert under(os.mkdir, Changing()).rule == "write"
    assert not os.path.exists(places.out + "/new")
    with guard(), pytest.raises(PermissionError):
        os.mkdir(places.out)
