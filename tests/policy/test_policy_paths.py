"""`write`, `read`, `block` and `protect` of real operations; `tests/decisions` has the rules."""

import os
import shutil
from pathlib import Path

import programs
import pytest

from fastaudit_rs import Policy


def touch(path):
    open(path, "w").close()


def read(path):
    with open(path) as file:
        return file.read()


def raising(error):
    raise error


class TestWrite:
    def test_home(self, under, places, monkeypatch):
        monkeypatch.setenv("HOME", places.out)
        os.mkdir(places.out + "/sub")
        assert under(touch, places.out + "/sub/a", write=["~/sub"]) is None
        assert under(touch, places.out + "/a", write=["~/sub"]).rule == "write"
        assert Policy(write=["~/sub"]).write == ("~/sub",)


class TestRead:
    def test_below_the_roots_alone(self, under, places):
        Path(places.out, "a").touch()
        Path(places.cwd, "a").touch()
        assert under(read, places.cwd + "/a", read=[places.cwd]) is None
        assert under(read, "a", read=["."]) is None
        denied = under(read, places.out + "/a", read=[places.cwd])
        message = f"Denied: open the file '{places.out}/a' for reading: not in '.'"
        assert denied.args == (message,)
        assert (denied.rule, denied.effect) == ("read", "read")
        nothing = under(read, places.out + "/a", read=[])
        message = f"Denied: open the file '{places.out}/a' for reading: nothing may be read"
        assert nothing.message == message
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
        assert programs.printed(code) == "read\n"


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
                does = {"open": "open", "os.remove": "remove"}[denied.event]
                assert denied.args == (f"Denied: {does} the file '{secret}/a': it is blocked",)
        assert under(touch, places.ok + "/b", block=[secret]) is None
        assert under(touch, places.ok + "/secretly", block=[secret]) is None
        assert os.listdir(secret) == ["a"]

    def test_home(self, under, secret, monkeypatch):
        monkeypatch.setenv("HOME", os.path.dirname(secret))
        assert under(read, secret + "/a", block=["~/secret"]).rule == "block"


class TestProtect:
    @pytest.mark.parametrize("name", Policy.PROTECTED)
    def test_the_preset(self, under, places, name):
        os.makedirs(os.path.dirname(f"{places.ok}/{name}"), exist_ok=True)
        for path in (f"{places.ok}/{name}", f"{places.ok}/{name}/a"):
            assert under(os.mkdir, path).rule == "protect"
            assert under(os.mkdir, path, protect=False) is None


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


@pytest.mark.parametrize(
    ("code", "path"),
    [
        ("import mimetypes; mimetypes.guess_type('a.webp')", "/etc/mime.types"),
        ("import zoneinfo; zoneinfo.ZoneInfo.no_cache('Europe/Berlin')", "/usr/share/zoneinfo"),
        ("import platform; platform.freedesktop_os_release()", "/etc/os-release"),
    ],
)
def test_tables_of_the_system_may_be_read(code, path):
    if not os.path.exists(path):
        pytest.skip(f"there is no {path} here")
    with Policy(read=["/nowhere"]).guard()():
        exec(code, {})
    with Policy(block=[path]).guard()(), pytest.raises(PermissionError):
        open(path if os.path.isfile(path) else f"{path}/Europe/Berlin")
