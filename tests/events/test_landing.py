"""Where an operation lands: judged behind links where it follows them, else by the entry."""

import os
import shutil
import sqlite3
import sys
import tarfile
from pathlib import Path

import pytest
from in_turn import Paths

from fastaudit_rs import AuditDenied, Policy


@pytest.fixture
def links(places):
    """In `ok`: links to a file, a directory and to nothing in `out`; in `out`: one into `ok`."""
    Path(places.out, "file").write_text("theirs")
    Path(places.ok, "file").write_text("ours")
    Path(places.out, "directory").mkdir()
    for name in ("file", "directory", "missing"):
        os.symlink(f"{places.out}/{name}", f"{places.ok}/to-{name}")
    os.symlink(f"{places.ok}/to-file", f"{places.ok}/to-link")
    os.symlink(f"{places.ok}/file", f"{places.out}/into")
    os.symlink(f"{places.ok}/file", f"{places.ok}/within")
    return places


def state(directory):
    """All that can be seen of the entries of a directory."""
    found = {}
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        stat = entry.stat(follow_symlinks=False)
        text = Path(entry.path).read_text() if entry.is_file(follow_symlinks=False) else None
        seen = (stat.st_mode, stat.st_uid, stat.st_mtime_ns, stat.st_nlink)
        found[entry.name] = (*seen, text, os.listxattr(entry.path, follow_symlinks=False))
    return found


FOLLOWING = {
    "open": lambda path: open(path, "w").close(),
    "open-append": lambda path: open(path, "a").close(),
    "os.open": lambda path: os.close(os.open(path, os.O_WRONLY)),
    "chmod": lambda path: os.chmod(path, 0o600),
    "chown": lambda path: os.chown(path, 1, 1),
    "truncate": lambda path: os.truncate(path, 1),
    "setxattr": lambda path: os.setxattr(path, "user.a", b"b"),
    "utime": lambda path: os.utime(path, (1, 1)),
    "write_text": lambda path: Path(path).write_text("x"),
    "copyfile": lambda path: shutil.copyfile(__file__, path),
    "copy": lambda path: shutil.copy(__file__, path),
    "sqlite3": lambda path: sqlite3.connect(path).execute("create table t (a)"),
    "link": lambda path: os.link(path, path + "-linked"),
}


@pytest.mark.original_fails()
@pytest.mark.parametrize("link", ["to-file", "to-link"])
@pytest.mark.parametrize("operation", FOLLOWING)
def test_a_link_out_of_a_root(guard, links, operation, link):
    before = state(links.out)
    with guard(), pytest.raises(PermissionError):
        FOLLOWING[operation](f"{links.ok}/{link}")
    assert state(links.out) == before


@pytest.mark.original_fails()
def test_a_link_to_nothing(guard, links):
    with guard():
        for opening in (
            lambda: open(links.ok + "/to-missing", "w"),
            lambda: os.open(links.ok + "/to-missing", os.O_CREAT | os.O_WRONLY),
        ):
            with pytest.raises(PermissionError):
                opening()
        # It makes the entry itself, or fails where there is one.
        with pytest.raises(FileExistsError):
            os.mkdir(links.ok + "/to-missing")
    assert not os.path.exists(links.out + "/missing")


@pytest.mark.parametrize(
    "operation", [name for name in FOLLOWING if name not in ("sqlite3", "link")]
)
def test_a_link_within_a_root(guard, links, operation):
    with guard():
        FOLLOWING[operation](links.ok + "/within")


@pytest.mark.original_fails()
def test_a_link_into_a_root(guard, links):
    with guard():
        Path(links.out, "into").write_text("changed")
        os.chmod(links.out + "/into", 0o600)
    assert Path(links.ok, "file").read_text() == "changed"


def test_the_entry_itself(guard, links):
    before = state(links.out)
    with guard():
        os.remove(links.ok + "/to-file")
        os.rename(links.ok + "/to-link", links.ok + "/renamed")
        shutil.move(links.ok + "/to-directory", links.ok + "/moved")
        os.unlink(links.ok + "/moved")
        with pytest.raises(PermissionError):
            os.remove(links.out + "/into")
        with pytest.raises(PermissionError):
            os.rename(links.out + "/into", links.ok + "/mine")
    assert state(links.out) == before


@pytest.mark.skipif(sys.platform != "linux", reason="sets the owner and attributes of links")
def test_links_that_are_not_followed(guard, links):
    if os.geteuid() != 0:
        pytest.skip("only root may give links away")
    before = state(links.out)
    with guard():
        os.chown(links.ok + "/to-file", 1, 1, follow_symlinks=False)
        os.lchown(links.ok + "/to-file", 0, 0)
        os.utime(links.ok + "/to-file", ns=(1, 1), follow_symlinks=False)
        os.utime(links.ok + "/to-file", (1, 1), follow_symlinks=False)
        shutil.copystat(links.ok + "/to-file", links.ok + "/to-link", follow_symlinks=False)
        for call in (
            lambda: os.chown(links.out + "/into", 1, 1, follow_symlinks=False),
            lambda: os.lchown(links.out + "/into", 1, 1),
            lambda: os.utime(links.out + "/into", (1, 1), follow_symlinks=False),
            lambda: os.chown(links.out + "/into", 1, 1, follow_symlinks=0),
            lambda: os.chown(links.ok + "/to-file", 1, 1, follow_symlinks=[1]),
        ):
            with pytest.raises(PermissionError):
                call()
    assert state(links.out) == before
    assert os.lstat(links.ok + "/to-file").st_mtime == 1


def test_an_archive_with_links(guard, links):
    """As root `tarfile` sets the owner of the links it makes."""
    with tarfile.open(links.ok + "/archive.tar", "w") as archive:
        archive.add(links.ok + "/to-file", "a/link")
        archive.add(links.ok + "/file", "a/file")
    options = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
    before = state(links.out)
    with guard(), tarfile.open(links.ok + "/archive.tar") as archive:
        archive.extract("a/file", links.ok, **options)
        # A link to what is outside is not made.
        archive.extract("a/link", links.ok, **options)
    assert not os.path.lexists(links.ok + "/a/link")
    assert Path(links.ok, "a/file").read_text() == "ours"
    assert state(links.out) == before


class TestNewLinks:
    @pytest.mark.original_fails()
    def test_to_a_link_that_leads_out(self, guard, links):
        with guard():
            for target in ("to-file", f"{links.ok}/to-file", "to-directory/x"):
                with pytest.raises(PermissionError):
                    os.symlink(target, links.ok + "/new")
        assert not os.path.lexists(links.ok + "/new")

    @pytest.mark.original_fails()
    def test_hard_links_to_a_link_that_leads_out(self, guard, links):
        with guard():
            for follows in (True, False):
                with pytest.raises(PermissionError):
                    os.link(links.ok + "/to-file", links.ok + "/new", follow_symlinks=follows)


class TestRoots:
    @pytest.mark.original_fails()
    @pytest.mark.parametrize("suffix", ["/", "/.", "//", "/sub/.."])
    def test_cannot_be_removed_or_changed(self, guard, places, suffix):
        os.mkdir(places.ok + "/sub")
        with guard():
            for operation in (
                os.rmdir,
                shutil.rmtree,
                lambda path: os.rename(path, places.ok + "/sub/x"),
            ):
                with pytest.raises(PermissionError):
                    operation(places.ok + suffix)
        assert os.path.isdir(places.ok + "/sub")


@pytest.mark.parametrize("event", ["os.link", "os.rename", "shutil.move"])
@pytest.mark.parametrize("reads", [False, True])
def test_a_path_like_is_asked_once(places, event, reads):
    """However many times its path is judged: as an entry, by where it leads, as what is read."""
    Path(places.ok, "a").touch()
    policy = Policy(write=[places.ok], read=[places.ok] if reads else None)
    guard = policy.guard(monitor_calls=False)
    with guard():
        sys.audit(event, Paths(places.ok + "/a"), Paths(places.ok + "/b"), -1, -1)
    with guard(), pytest.raises(AuditDenied, match="not in"):
        sys.audit(event, Paths(places.out + "/a"), Paths(places.ok + "/b"), -1, -1)
    with guard(), pytest.raises(AuditDenied, match="not in"):
        sys.audit(event, Paths(places.ok + "/a"), Paths(places.out + "/b"), -1, -1)
