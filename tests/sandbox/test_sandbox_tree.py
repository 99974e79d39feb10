"""`Sandbox.files`: files and directories that a host lists, copies and removes."""

import contextlib
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor

import promises
import pytest
import waiting
from programs import SLOWER
from sandboxes import unguarded

from fastaudit_rs import Policy, Sandbox
from fastaudit_rs.sandbox.host import guest_files


@pytest.fixture
def box(make_sandbox):
    return make_sandbox(Policy())


@pytest.fixture
def files(box):
    return box.files


def names(files, *name, **options):
    return [(one.name, one.kind) for one in files.list(*name, **options)]


def test_files_and_directories(files):
    assert (files.exists("a"), files.make_dir("a/b"), files.make_dir("a/b")) == (False, True, False)
    files.write("a/one.txt", "1")
    with files.open("a/b/large", "wb") as file:
        file.write(b"x" * 10)
    with files.open("a/b/large", "ab") as file:
        file.write(b"y")
    with files.open("a/b/large") as file:
        assert (file.read(1), file.read()) == (b"x", b"x" * 9 + b"y")
    assert names(files) == [("a", "directory")]
    assert names(files, "a") == [("a/b", "directory"), ("a/one.txt", "file")]
    info = files.info("a/one.txt")
    assert (info.name, info.kind, info.size, info.modified > 1e9) == ("a/one.txt", "file", 1, True)
    files.rename("a/one.txt", "c/d")
    assert (files.read("c/d"), files.exists("a/one.txt"), files.exists("c/d/e")) == (b"1", 0, 0)
    for name in ("a", "c/d", "c"):
        files.remove(name)
    assert names(files) == []


def test_the_directory_itself_and_names_that_are_too_long(files):
    assert (files.info(".").name, files.info(".").kind) == (".", "directory")
    assert (files.exists("."), files.make_dir(".")) == (True, False)
    assert not files.exists("x" * 256) and not files.exists("x/" * 3000)


def test_errors_name_what_is_wrong(files, box):
    files.write("file", "1")
    for use, error in (
        (lambda: files.remove("none"), FileNotFoundError),
        (lambda: files.list("file"), NotADirectoryError),
        (lambda: files.make_dir("file"), FileExistsError),
        (lambda: files.open("none"), FileNotFoundError),
        (lambda: files.open("file", "r"), ValueError),
        (lambda: files.open(3), TypeError),
        (lambda: files.list(max_entries=0), ValueError),
        (lambda: files.remove("."), ValueError),
        (lambda: files.remove(""), ValueError),
        (lambda: files.remove("../x"), ValueError),
        (lambda: files.open("/etc/passwd"), ValueError),
        (lambda: files.upload(box.directory / "none"), FileNotFoundError),
        (lambda: files.upload("/dev/null"), OSError),
    ):
        with pytest.raises(error):
            use()
    box.close()
    with pytest.raises(RuntimeError, match="the sandbox is closed"):
        files.exists("file")


def test_whole_directories(files, tmp_path):
    source = tmp_path / "source"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "sub" / "run.sh").write_text("exit 3")
    (source / "sub" / "run.sh").chmod(0o700)
    (source / "a.txt").write_text("1")
    (source / "link").symlink_to("/etc/passwd")
    os.mkfifo(source / "fifo")
    assert files.upload(source) == ["source/a.txt", "source/sub/run.sh"]
    assert files.upload(source / "a.txt", "b.txt") == ["b.txt"]
    assert files.upload(source, ".") == ["a.txt", "sub/run.sh"]
    assert [name for name, _ in names(files)] == ["a.txt", "b.txt", "source", "sub"]
    assert names(files, "source/sub") == [
        ("source/sub/empty", "directory"),
        ("source/sub/run.sh", "file"),
    ]
    out = tmp_path / "out"
    (out / "sub").mkdir(parents=True)
    (out / "sub" / "kept").write_text("2")
    assert files.download("source", out) == ["a.txt", "sub/run.sh"]
    assert (out / "sub" / "run.sh").read_text() == "exit 3"
    assert stat.S_IMODE((out / "sub" / "run.sh").stat().st_mode) == 0o755
    assert sorted(os.listdir(out / "sub")) == ["empty", "kept", "run.sh"]
    assert files.download("a.txt", tmp_path / "one") == [""]
    assert (tmp_path / "one").read_text() == "1"
    assert len(files.download(".", tmp_path / "all")) == 5


def test_a_session_has_them_too(shared):
    with shared.session() as session:
        session.run("open('of_step', 'w').write('1')")
        assert session.files.read("of_step") == b"1"
        session.files.remove("of_step")
        assert session.run("import os; os.path.exists('of_step')").value is False
    with pytest.raises(RuntimeError, match="the session is closed"):
        session.files.exists("of_step")


#: Code that makes what a host must not be led by.
HOSTILE = """
import os, sys
os.symlink(sys.argv[1], "out")
os.symlink(sys.argv[1] + "/secret", "link")
os.mkdir("tree")
os.symlink(sys.argv[1], "tree/out")
os.mkfifo("tree/fifo")
open(b"tree/\\xff\\n", "w").write("1")
os.chmod("tree", 0)
"""


@pytest.mark.holds("host", promises.INSIDE)
def test_links_lead_nowhere(sandbox, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    assert unguarded(sandbox, HOSTILE, outside).success
    files = sandbox.files
    for name in ("out/secret", "out", "link"):
        for use in (
            files.read,
            files.open,
            files.list,
            lambda one: files.download(one, tmp_path),
        ):
            with pytest.raises((ValueError, OSError)):
                use(name)
    for use in (
        lambda: files.remove("out/secret"),
        lambda: files.make_dir("out/new"),
        lambda: files.open("out/new", "wb"),
        lambda: files.open("link", "wb"),
        lambda: files.rename("out/secret", "mine"),
        lambda: files.rename("tree", "out/tree"),
        lambda: files.upload(tmp_path / "outside" / "secret", "link"),
        lambda: files.upload(tmp_path / "outside", "out"),
    ):
        with pytest.raises(ValueError, match="link"):
            use()
    os.chmod(sandbox.directory / "tree", 0o700)
    kinds = {"tree/\udcff\n": "file", "tree/fifo": "other", "tree/out": "link"}
    assert dict(names(files, "tree")) == kinds
    with pytest.raises(OSError):
        files.open("tree/fifo")
    assert files.download(".", tmp_path / "copy") == ["tree/\udcff\n"]
    assert sorted(os.listdir(tmp_path / "copy")) == ["tree"]
    os.chmod(sandbox.directory / "tree", 0)
    for name in ("link", "out", "tree"):
        files.remove(name)
    assert names(files) == []
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_text() == "secret"


@pytest.mark.holds("host", promises.INSIDE)
def test_a_link_of_the_host_is_not_written_through(files, tmp_path):
    files.write("tree/a/b", "new")
    (tmp_path / "mine").mkdir()
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "a").symlink_to(tmp_path / "mine")
    with pytest.raises(ValueError, match="link"):
        files.download("tree", tmp_path / "to")
    assert os.listdir(tmp_path / "mine") == []


@pytest.mark.holds("host", promises.UNHURT)
def test_trees_without_end(sandbox, tmp_path, monkeypatch):
    code = """
import os
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
"""
    assert unguarded(sandbox, code).success
    files = sandbox.files
    with pytest.raises(OSError, match="more than 100 deep"):
        files.download(".", tmp_path / "deep")
    files.remove("d")
    assert not files.exists("d")
    for number in range(20):
        files.write(f"many/{number}", "x")
    assert len(files.list("many", max_entries=20)) == 20
    with pytest.raises(OSError, match="more than 19 entries"):
        files.list("many", max_entries=19)
    monkeypatch.setattr(guest_files, "COPIED", 19)
    with pytest.raises(OSError, match="more than"):
        files.download("many", tmp_path / "many")
    monkeypatch.setattr(guest_files, "COPIED", 20)
    with pytest.raises(OSError, match="more than 19 bytes: pass a greater max_bytes"):
        files.download("many", tmp_path / "many", max_bytes=19)
    assert len(files.download("many", tmp_path / "many", max_bytes=20)) == 20
    with files.open("sparse", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="more than"):
        files.download("sparse", tmp_path / "sparse")


#: Code that makes a directory a link to one outside, and back, in one step each.
SWAP = """
import ctypes, os, sys, time
os.symlink(sys.argv[1], "link")
exchange, here, both = ctypes.CDLL(None).renameat2, -100, 2
end = time.monotonic() + 1.5
while time.monotonic() < end:
    os.makedirs("place/sub", exist_ok=True) if not os.path.islink("place") else None
    exchange(here, b"place", here, b"link", both)
"""


@pytest.mark.slow
@pytest.mark.holds("host", promises.INSIDE)
def test_a_directory_that_becomes_a_link(sandbox, tmp_path):
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    (outside / "sub" / "secret").write_text("secret")
    files, got = sandbox.files, set()
    copy = tmp_path / "copy"
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(unguarded, sandbox, SWAP, outside)
        while not run.done():
            for use in (
                lambda: files.remove("place/sub"),
                lambda: files.remove("place"),
                lambda: files.open("place/sub/new", "wb").close(),
                lambda: files.make_dir("place/new"),
                lambda: got.update(one.name for one in files.list("place/sub")),
                lambda: files.download("place", copy),
            ):
                with contextlib.suppress(OSError, ValueError):
                    use()
    assert os.listdir(outside) == ["sub"] and os.listdir(outside / "sub") == ["secret"]
    assert "place/sub/secret" not in got
    shutil.rmtree(copy, ignore_errors=True)


#: Code that adds directories all the time, in two processes, until the host says that it is enough.
GROW = """
import os, sys, time
which, end, number = os.fork(), time.monotonic() + float(sys.argv[1]), 0
while not os.path.exists("enough") and time.monotonic() < end:
    number += 1
    try:
        os.makedirs(f"grow/{bool(which)}{number}")
        open(f"grow/{bool(which)}{number}/f", "w").close()
    except OSError:
        pass
"""


@pytest.mark.slow
@pytest.mark.holds("host", promises.UNHURT)
def test_a_directory_that_code_adds_to(sandbox):
    """It is gone before the code ends, however much it adds."""
    files = sandbox.files
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(unguarded, sandbox, GROW, 15 * SLOWER)
        assert waiting.until(lambda: files.exists("grow/True1000"))
        files.remove("grow")
        has_ended = run.done()
        files.write("enough", "")
    assert not has_ended


def test_a_directory_is_not_copied_into_itself(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "link").symlink_to(tmp_path)
    with Sandbox(parent=tmp_path) as sandbox:
        files = sandbox.files
        files.write("d/b", "2")
        for act in (
            lambda: files.upload(tmp_path),
            lambda: files.upload(tmp_path / "link", "."),
            lambda: files.upload(sandbox.directory / "d", "d/e"),
            lambda: files.download("d", sandbox.directory / "d" / "e"),
            lambda: files.download(".", sandbox.directory),
        ):
            with pytest.raises(ValueError, match="would be copied into itself, to .*: copy parts"):
                act()
        assert sandbox.list_files() == ["d/b"]
        assert files.upload(sandbox.directory / "d", "e") == ["e/b"]


def test_a_file_is_not_copied_onto_itself(tmp_path):
    with Sandbox(parent=tmp_path) as sandbox:
        files = sandbox.files
        files.write("d/b", "2")
        for act in (
            lambda: files.upload(sandbox.directory / "d" / "b", "d/b"),
            lambda: files.download("d/b", sandbox.directory / "d" / "b"),
        ):
            with pytest.raises(ValueError, match="would be copied into itself"):
                act()
        assert files.read("d/b") == b"2"


def test_a_download_that_is_too_large_leaves_the_file_that_was_there(files, tmp_path):
    (tmp_path / "to").write_text("old")
    files.write("large", "12345")
    with pytest.raises(OSError, match="more than 4 bytes"):
        files.download("large", tmp_path / "to", max_bytes=4)
    assert (tmp_path / "to").read_text() == "old"


def test_a_run_that_copies_itself_leaves_no_directory():
    with Sandbox() as sandbox:
        for _ in range(2):
            assert sandbox.run("import os, tempfile\nif os.fork() == 0: pass").success
        assert not sandbox.files.list()
