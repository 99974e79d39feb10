"""The files of a session, reviewed before they count."""

import os
import random
import resource
import shutil
import socket
import stat
import subprocess
import textwrap
import time

import pytest
from users import run_as

from fastaudit_rs.sandbox.host import beneath, review
from fastaudit_rs.sandbox.host.files import Files


@pytest.fixture
def session(shared):
    for name in shared.list_files():
        os.unlink(shared.directory / name)
    shared.write_file("kept.txt", "one\ntwo\n")
    shared.write_file("gone.txt", "x\n")
    shared.write_file("same/a.txt", "same")
    with shared.session(undo_depth=0) as made:
        yield made


#: Changes of each kind.
STEP = """
import os
open("kept.txt", "w").write("one\\n2\\n")
os.unlink("gone.txt")
os.makedirs("d/e", exist_ok=True)
open("d/e/new.bin", "wb").write(b"\\0\\1")
open("tool.sh", "w").write("#!/bin/sh\\n")
os.chmod("tool.sh", 0o700)
"""


def told(changes):
    return [(change.name, change.kind, change.before, change.after) for change in changes]


ALL = [
    ("d/e/new.bin", "added", None, 2),
    ("gone.txt", "removed", 2, None),
    ("kept.txt", "changed", 8, 6),
    ("tool.sh", "added", None, 10),
]


def test_diff(session, shared):
    assert session.diff() == []
    assert session.run(STEP).success
    # A program of the sandbox may make them: a guard would say no.
    os.symlink("/etc/passwd", shared.directory / "link")
    os.mkfifo(shared.directory / "pipe")
    changes = session.diff()
    assert told(changes) == ALL
    assert changes[0].diff is None
    assert changes[1].diff == "--- a/gone.txt\n+++ b/gone.txt\n@@ -1 +0,0 @@\n-x\n"
    assert changes[2].diff.endswith("@@ -1,2 +1,2 @@\n one\n-two\n+2\n")


def test_commit(session, tmp_path):
    (tmp_path / "gone.txt").write_text("the host's")
    (tmp_path / "other.txt").write_text("the host's")
    session.run(STEP)
    assert told(session.commit(tmp_path)) == ALL
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert found == ["d", "d/e", "d/e/new.bin", "kept.txt", "other.txt", "tool.sh"]
    assert (tmp_path / "kept.txt").read_text() == "one\n2\n"
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("kept.txt", "tool.sh")]
    assert modes == [0o644, 0o755]
    assert session.diff() == []
    session.run("open('kept.txt', 'a').write('3\\n')")
    assert told(session.commit(tmp_path / "new" / "place")) == [("kept.txt", "changed", 6, 8)]
    assert (tmp_path / "new/place/kept.txt").read_text() == "one\n2\n3\n"


def test_texts_that_take_long_to_compare(tmp_path):
    """Code chooses how often lines repeat: these would take minutes, and are shown as they are."""
    order = random.Random(7)

    def text(kinds, count=60_000):
        return "".join(f"{order.randrange(kinds):x}\n" for _ in range(count))

    names = ["a.txt", "b.txt", "c\n+.txt"]
    for name in names[:2]:
        (tmp_path / name).write_text(text(150))
    kept = review.Review(str(tmp_path), lambda: names)
    for name in names:
        (tmp_path / name).write_text(text(150))
    begun = time.thread_time()
    first, _, added = kept.changes()
    assert first.diff.startswith("--- a/a.txt\n+++ b/a.txt\n@@ -1,60000 +1,60000 @@\n-")
    assert first.diff.count("\n-") + first.diff.count("\n+") == 120_001
    assert added.diff.startswith("--- a/c\\n+.txt\n+++ b/c\\n+.txt\n@@ -0,0 +1,60000 @@\n+")
    assert [change.diff for change in kept.discard()] == [None] * 3
    assert time.thread_time() - begun < 20


def test_all_texts_together_have_a_bound(tmp_path, monkeypatch):
    """Code chooses how many files there are."""
    monkeypatch.setattr(review, "TEXTS", 1000)
    kept = review.Review(str(tmp_path), Files(tmp_path).names)
    for number in range(9):
        (tmp_path / f"{number}").write_text("x\n" * 120)
    (tmp_path / "small").write_text("1")
    first, *others, last = [change.diff for change in kept.changes()]
    assert first.startswith("--- a/0\n+++ b/0\n@@ -0,0 +1,120 @@\n+x\n")
    assert [one is not None for one in others] == [True] * 3 + [False] * 5
    assert last.endswith("\n@@ -0,0 +1 @@\n+1\n\\ No newline at end of file\n")


def test_a_long_text_with_few_changes_is_compared(tmp_path):
    lines = [f"{number % 9000}\n" for number in range(10_000)]
    (tmp_path / "a.txt").write_text("".join(lines))
    kept = review.Review(str(tmp_path), lambda: ["a.txt"])
    lines[10], lines[9990] = "x\n", "y\n"
    (tmp_path / "a.txt").write_text("".join(lines))
    [change] = kept.changes()
    assert change.diff.count("\n@@ ") == 2 and len(change.diff.splitlines()) == 20


def test_links_of_the_target_are_not_followed(session, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (target / "d").symlink_to(outside)
    session.run(STEP)
    with pytest.raises(ValueError, match="link"):
        session.commit(target)
    assert list(outside.iterdir()) == []
    # Nothing is applied by half.
    assert [path.name for path in target.iterdir()] == ["d"]
    (target / "d").unlink()
    (target / "kept.txt").symlink_to(outside / "kept.txt")
    with pytest.raises(ValueError, match="link"):
        session.commit(target)
    assert not (outside / "kept.txt").exists()
    (target / "kept.txt").unlink()
    session.commit(target)
    assert (target / "kept.txt").read_text() == "one\n2\n"


def test_a_directory_in_the_place_of_a_file(session, tmp_path):
    (tmp_path / "kept.txt").mkdir()
    session.run(STEP)
    with pytest.raises(OSError, match="Is a directory"):
        session.commit(tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


def files_in(place):
    found = (path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): path.read_text() for path in found}


def test_a_file_that_became_a_directory_and_the_other_way(session, shared, tmp_path):
    session.run("import os; os.makedirs('p/q'); open('p/q/a', 'w').write('a'); open('m', 'w')")
    session.commit(tmp_path)
    (tmp_path / "p" / "own").write_text("the host's")
    code = """
        import shutil
        shutil.rmtree("p")
        open("p", "w").write("p")
        os.unlink("m")
        os.makedirs("m/n")
        open("m/n/o", "w").write("o")
        open("m/x", "w").write("x")
    """
    assert session.run("if 1:" + code).success
    # The host's own file is in the way: nothing changes.
    before = files_in(tmp_path)
    with pytest.raises(IsADirectoryError):
        session.commit(tmp_path)
    assert files_in(tmp_path) == before
    (tmp_path / "p" / "own").unlink()
    session.commit(tmp_path)
    assert files_in(tmp_path) == {"p": "p", "m/n/o": "o", "m/x": "x"}
    assert session.diff() == []


def test_more_changes_than_descriptors(session, tmp_path):
    names = [f"d{number % 7}/{number}" for number in range(300)]
    session.run(f"import os\nfor name in {names}:\n    os.makedirs(name); open(name + '/a', 'w')")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    greatest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (greatest + 40, limits[1]))
    try:
        assert len(session.commit(tmp_path)) == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(files_in(tmp_path)) == 300


def test_no_change_is_missed_for_lack_of_descriptors(session, tmp_path):
    session.run("import os\nos.makedirs('d/e', exist_ok=True)\nopen('d/e/new', 'w').close()")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    for limit in range(min(used), max(used) + 40):
        # Descriptors are given by their numbers, from the lowest free one. There may be gaps.
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            found = session.commit(tmp_path)
            break
        except OSError:
            continue
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [change.name for change in found] == ["d/e/new"]
    assert (tmp_path / "d/e/new").exists()


def test_a_file_that_the_host_cannot_read():
    """It is told of as one that is too large to keep: only `commit` has to read it."""
    code = """
        import os
        from fastaudit_rs import Sandbox
        CLOSED = "import os; open('closed', 'w').write('secret'); os.chmod('closed', 0)"
        with Sandbox() as sandbox, sandbox.session() as session:
            session.run(CLOSED)
            print([(one.name, one.kind, one.diff) for one in session.diff()])
            try:
                session.commit("to")
            except OSError as error:
                print(error, os.listdir("to"))
            session.discard()
            print(sandbox.list_files())
            sandbox.run(CLOSED)
            with sandbox.session() as other:
                print(other.diff())
    """
    said = run_as("ordinary", textwrap.dedent(code)).splitlines()
    assert said[0] == "[('closed', 'added', None)]"
    assert said[1:] == ["[Errno 13] Permission denied: 'closed' []", "[]", "[]"]


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs patch(1)")
@pytest.mark.parametrize(
    ("before", "after"),
    [("a\nb", "a\nb\n"), ("a\nb\n", "a\nc"), ("a\u2028b\n", "a\u2028c\n"), ("a\rb\n", "a\nb\n")],
)
def test_a_diff_can_be_applied(session, tmp_path, before, after):
    """As patch(1) reads it: lines end at newlines alone, and the last one may have none."""
    (tmp_path / "kept.txt").write_bytes(before.encode())
    session.run(f"open('kept.txt', 'wb').write({before.encode()!r})")
    session.commit(tmp_path)
    session.run(f"open('kept.txt', 'wb').write({after.encode()!r})")
    [change] = session.diff()
    patch = ["patch", "--binary", "-p1", "-s", "-d", str(tmp_path)]
    subprocess.run(patch, input=change.diff.encode(), check=True)
    assert (tmp_path / "kept.txt").read_bytes() == after.encode()


def test_links_of_the_sandbox_are_not_followed(session, shared, tmp_path):
    """Neither those that were made, nor those in the place of files and of directories."""
    (shared.directory / "kept.txt").unlink()
    (shared.directory / "kept.txt").symlink_to("/etc/passwd")
    shutil.rmtree(shared.directory / "same")
    (shared.directory / "same").symlink_to("/etc")
    removed = [(name, "removed") for name in ("kept.txt", "same/a.txt")]
    assert [(change.name, change.kind) for change in session.commit(tmp_path)] == removed
    assert list(tmp_path.iterdir()) == []


def test_discard(session, shared):
    session.run(STEP)
    code = """
        import os, shutil
        shutil.rmtree("same")
        os.makedirs("empty/deep")
        os.unlink("kept.txt")
        os.makedirs("kept.txt/now/a/directory")
        open("kept.txt/now/a/file", "w").close()
    """
    assert session.run("if 1:" + code).success
    (shared.directory / "same").symlink_to("/etc")
    assert session.discard()
    assert session.diff() == []
    names = shared.list_files()
    assert names == ["gone.txt", "kept.txt", "same/a.txt"]
    assert shared.read_file("kept.txt") == b"one\ntwo\n"
    assert not (shared.directory / "same").is_symlink()


def test_discard_leaves_what_is_in_nobodys_way(tmp_path, monkeypatch):
    monkeypatch.setattr(review, "KEPT", 1000)
    (tmp_path / "x").mkdir()
    (tmp_path / "x/a").write_text("small")
    (tmp_path / "x/large").write_bytes(b"x" * 1001)
    kept = review.Review(str(tmp_path), Files(tmp_path).names)
    (tmp_path / "x/a").unlink()
    (tmp_path / "x/a/d").mkdir(parents=True)
    kept.discard()
    assert files_in(tmp_path) == {"x/a": "small", "x/large": "x" * 1001}


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def a_file_above(path):
    path.parent.rmdir()
    path.parent.write_text("")


def a_link_above(path):
    path.parent.rmdir()
    path.parent.symlink_to("/etc")


@pytest.fixture
def meanwhile(monkeypatch):
    """`meanwhile(act)`: something comes to pass as soon as a file has been looked at."""

    def make(act):
        def status_of(*given):
            status = beneath.status_of(*given)
            act()
            return status

        monkeypatch.setattr(review, "status_of", status_of)

    return make


@pytest.mark.parametrize(
    "comes",
    [
        lambda path: None,
        lambda path: path.symlink_to("/etc/passwd"),
        a_socket,
        a_file_above,
        a_link_above,
    ],
)
def test_a_file_that_goes_as_it_is_read(tmp_path, meanwhile, comes):
    path = tmp_path / "d" / "new"
    path.parent.mkdir()
    path.write_text("1")

    def goes():
        path.unlink()
        comes(path)

    meanwhile(goes)
    with beneath.opened(str(tmp_path)) as root:
        assert review._read(root, "d/new", 10) is None


def test_a_file_that_grows_as_it_is_compared(tmp_path, meanwhile):
    path = tmp_path / "a"
    path.write_text("1")
    kept = review.Review(str(tmp_path), lambda: ["a"])
    meanwhile(lambda: path.write_text("longer"))
    [change] = kept.changes()
    assert told([change]) == [("a", "changed", 1, 1)] and change.diff is None


def test_more_than_can_be_kept(shared, monkeypatch, tmp_path):
    """Changes of a large file are told, and it cannot be put back."""
    monkeypatch.setattr(review, "KEPT", 1000)
    shared.write_file("large", b"x" * 1001)
    shared.write_file("small", "1")
    try:
        with shared.session(undo_depth=0) as session:
            assert session.diff() == []
            assert session.run("open('small', 'w').write('2'); import os").success
            assert [one.name for one in session.commit(tmp_path)] == ["small"]
            assert session.run("open('small', 'w').write('3'); status = os.stat('large')").success
            assert session.run(
                "open('large', 'r+').write('y'); os.utime('large', ns=(0, status.st_mtime_ns))"
            ).success
            assert [(one.name, one.kind, one.after) for one in session.diff()] == [
                ("large", "changed", 1001),
                ("small", "changed", 1),
            ]
            with pytest.raises(OSError, match="cannot be put back.*'large'"):
                session.discard()
            assert shared.read_file("small") == b"3"
            session.run("os.unlink('large')")
            assert [(one.name, one.kind) for one in session.diff()][:1] == [("large", "removed")]
    finally:
        for name in ("large", "small"):
            shared.files.exists(name) and shared.files.remove(name)
