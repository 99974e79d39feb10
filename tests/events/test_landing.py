"""Where an operation lands: judged behind links where it follows them, else by the entry."""

import os
import shutil
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
