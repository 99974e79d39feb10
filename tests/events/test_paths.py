"""The paths that lie inside the roots, also paths that lie about themselves."""

import contextlib
import os
import shutil
import sys
import tempfile

import pytest


def touch(path):
    open(path, "w").close()


def denied(function, *args):
    try:
        function(*args)
    except PermissionError:
        return True
    return False


class TestRoots:
    def test_containment_is_by_component(self, guard, places):
        os.mkdir(places.ok + "ay")
        with guard():
            touch(places.ok + "/a")
            assert denied(touch, places.ok + "ay/a")
            assert denied(os.chmod, places.ok, 0o755)

    @pytest.mark.original_fails()
    def test_the_top_directory_approves_everything(self, guard, places):
        with guard(["/"]):
            touch(places.out + "/a")

    @pytest.mark.original_fails()
    def test_the_top_directory_as_current_one(self, guard, places, monkeypatch):
        monkeypatch.chdir("/")
        with guard(["."]):
            touch(places.out + "/a")

    def test_the_current_directory_is_followed(self, guard, places):
        os.makedirs(places.cwd + "/sub")
        with guard([".", places.ok]):
            touch("a")
            touch("sub/a")
            assert denied(touch, "../a")
            os.chdir("sub")
            touch("b")
            assert denied(touch, "../b")
            os.chdir(places.ok)
            touch("c")
        assert sorted(os.listdir(places.cwd + "/sub")) == ["a", "b"]

    @pytest.mark.parametrize("root", ["./", b".", "./."])
    def test_only_the_dot_itself_is_dynamic(self, guard, places, root):
        os.mkdir("sub")
        with guard([root]):
            touch("a")
            os.chdir("sub")
            touch("../b")
            touch(places.cwd + "/sub/c")

    def test_roots_may_be_links_missing_or_spelled_oddly(self, guard, places):
        os.symlink(places.ok, places.cwd + "/link")
        with guard(["link", places.out + "/missing/../later", places.cwd + "//sub/./"]):
            touch(places.ok + "/a")
            touch("link/b")
            assert denied(touch, places.out + "/a")
            assert denied(os.mkdir, places.out + "/later")
            assert denied(touch, places.cwd + "/a")

    @pytest.mark.original_fails()
    def test_a_tilde_is_the_home_directory(self, guard, places, monkeypatch):
        monkeypatch.setenv("HOME", places.out)
        with guard(["~"]):
            touch(places.out + "/a")
            assert denied(touch, places.ok + "/a")

    @pytest.mark.original_fails()
    def test_a_deleted_current_directory(self, guard, places, monkeypatch):
        os.mkdir(places.ok + "/gone")
        monkeypatch.chdir(places.ok + "/gone")
        os.rmdir(places.ok + "/gone")
        with guard([places.ok, "."]):
            touch(places.ok + "/a")
            assert denied(touch, places.out + "/a")
            assert denied(touch, "a")


class TestLinks:
    def test_directories_are_resolved(self, guard, places):
        os.mkdir(places.ok + "/sub")
        os.symlink(places.out, places.ok + "/out")
        os.symlink(places.ok, places.out + "/in")
        with guard():
            assert denied(touch, places.ok + "/out/a")
            assert denied(touch, places.ok + "/sub/../out/a")
            touch(places.out + "/in/a")
            touch(places.out + "/in/sub/../b")
        assert sorted(os.listdir(places.ok)) == ["a", "b", "out", "sub"]

    @pytest.mark.original_fails()
    def test_a_relative_link_is_judged_from_its_own_directory(self, guard, places):
        os.mkdir(places.ok + "/sub")
        with guard():
            os.symlink("target", places.ok + "/a")
            os.symlink("../target", places.ok + "/sub/b")
            os.symlink(".", places.ok + "/c")
            for text in ("..", "../out", "sub/../../out", "c/../../out"):
                assert denied(os.symlink, text, places.ok + "/no")
            assert denied(os.symlink, "target", places.out + "/no")
        os.chdir(places.ok)
        with guard():
            assert denied(os.symlink, "../../out/target", "sub/no")
            assert denied(os.symlink, "../../out", "sub/no")

    def test_an_absolute_link_leads_into_a_root(self, guard, places):
        with guard():
            os.symlink(places.ok + "/target", places.ok + "/a")
            assert denied(os.symlink, places.out + "/target", places.ok + "/b")

    def test_hard_links_do_not_reach_out(self, guard, places):
        touch(places.out + "/a")
        with guard():
            assert denied(os.link, places.out + "/a", places.ok + "/a")

    def test_a_loop_is_the_systems_own_error(self, guard, places):
        os.symlink("loop", places.ok + "/loop")
        with guard(), pytest.raises(OSError, match="symbolic links"):
            touch(places.ok + "/loop/a")
        with guard(), pytest.raises(OSError, match="symbolic links"):
            os.symlink("b", places.ok + "/loop/a")


class Overridden(str):
    """A `str` whose methods all say that it is inside."""

    inside = ""

    def rfind(self, *args):
        return len(self.inside)

    def __getitem__(self, key):
        return self.inside + "/"

    def startswith(self, *args):
        return True

    def __eq__(self, other):
        return True

    def encode(self, *args):
        return self.inside.encode()

    __hash__ = str.__hash__


@pytest.mark.original_fails()
@pytest.mark.parametrize(
    "operation",
    [touch, os.mkdir, lambda path: os.close(os.open(path, os.O_CREAT | os.O_WRONLY))],
    ids=["open", "mkdir", "os.open"],
)
def test_overridden_methods_decide_nothing(guard, places, operation):
    path = Overridden(places.out + "/a")
    path.inside = places.ok
    with guard():
        assert denied(operation, path)
    assert os.listdir(places.out) == []


@pytest.mark.original_fails()
def test_overridden_roots_decide_nothing(guard, places):
    class Root(str):
        def __eq__(self, other):
            return True

        __hash__ = str.__hash__

    with guard([Root(places.ok)]):
        touch(places.ok + "/a")
        assert denied(touch, "a")


class Liar:
    """A path-like that answers differently the second time."""

    def __init__(self, *paths):
        self.paths = iter(paths)

    def __fspath__(self):
        return next(self.paths)


def test_a_path_like_that_changes_its_mind(guard, places):
    inside, outside = places.ok + "/a", places.out + "/b"
    open(inside, "w").close()
    with guard():
        for operation in (
            lambda path: open(path, "a").close(),
            lambda path: os.truncate(path, 0),
            lambda path: os.chmod(path, 0o600),
            lambda path: shutil.copyfile("/etc/passwd", path),
        ):
            with contextlib.suppress(PermissionError, RuntimeError, StopIteration):
                operation(Liar(inside, outside, outside, outside))
    assert os.listdir(places.out) == []


class TestOddNames:
    def test_embedded_nul(self, guard, places):
        with guard():
            for path in (places.ok + "/a\0b", places.out + "/a\0b", b"a\0b"):
                with pytest.raises((ValueError, PermissionError)):
                    touch(path)
        assert os.listdir(places.ok) == []

    @pytest.mark.parametrize("name", ["\udcff", "ünï", "\U0001f600"])
    def test_surrogate_escapes_and_other_scripts(self, guard, places, name):
        with guard():
            touch(f"{places.ok}/{name}")
            touch(os.fsencode(f"{places.ok}/{name}2"))
            assert denied(touch, f"{places.out}/{name}")
            assert denied(touch, os.fsencode(f"{places.out}/{name}"))
        assert sorted(os.listdir(places.ok)) == [name, name + "2"]

    def test_a_root_of_such_a_name(self, guard, places):
        os.mkdir(places.ok + "/\udcff")
        with guard([places.ok + "/\udcff"]):
            touch(places.ok + "/\udcff/a")
            assert denied(touch, places.ok + "/a")

    def test_what_no_file_name_can_hold(self, guard, places):
        with guard():
            for path in (places.ok + "/\ud800", places.out + "/\ud800"):
                with pytest.raises((UnicodeEncodeError, PermissionError)):
                    touch(path)

    @pytest.mark.parametrize("name", ["\ud800", "nul\0"])
    def test_a_name_that_no_file_can_have(self, guard, places, name):
        """Also behind a link to itself, where `realpath` did not look before 3.13."""
        os.symlink("loop", places.ok + "/loop")
        with guard(), pytest.raises(PermissionError):
            sys.audit("os.mkdir", f"{places.ok}/loop/{name}/new", 0o777, -1)

    def test_names_longer_than_the_system_allows(self, guard, places):
        with guard():
            for name in ("x" * 300, "x" * 300 + "/a", "y/" * 3000 + "a"):
                with pytest.raises(OSError):
                    touch(f"{places.ok}/{name}")
                assert denied(touch, f"{places.out}/{name}") or len(name) > 4000

    def test_doubled_and_trailing_slashes(self, guard, places):
        with guard():
            os.mkdir(places.ok + "//a///")
            os.makedirs(places.ok + "/b/c/")
            touch("//" + places.ok + "//d")
            assert denied(os.mkdir, places.out + "//a///")
            assert denied(touch, places.ok + "//..//out//a")

    def test_missing_tails(self, guard, places):
        with guard():
            with pytest.raises(FileNotFoundError):
                touch(places.ok + "/missing/a")
            assert denied(touch, places.ok + "/missing/../../out/a")
            with pytest.raises(FileNotFoundError):
                touch(places.out + "/missing/../../ok/a")


class TestDevices:
    @pytest.mark.original_fails()
    @pytest.mark.parametrize("device", [os.devnull, "/dev/stderr", "/dev/stdout"])
    def test_may_be_written(self, guard, device, capfd):
        with guard(), open(device, "w") as file:
            file.write("")

    @pytest.mark.original_fails()
    def test_by_other_spellings(self, guard, monkeypatch):
        monkeypatch.chdir("/dev")
        with guard():
            touch("null")
            touch("/dev/../dev//null")
            touch(b"/dev/null")

    def test_but_not_removed_or_changed(self, guard):
        with guard():
            assert denied(os.remove, "/dev/null-no-such")
            assert denied(os.chmod, "/dev/null", 0o666)
            assert denied(os.rename, "/dev/null", "/dev/null2")

    def test_other_devices_are_paths(self, guard, places):
        with guard():
            assert denied(touch, "/dev/full")
            assert denied(touch, "/dev/null2")
            assert denied(touch, places.out + "/dev/null")


class TestChangingDirectory:
    @pytest.mark.original_fails()
    def test_back_to_where_the_code_came_from(self, guard, places):
        with guard():
            # contextlib.chdir, which came with 3.11.
            with chdir(places.ok):
                touch("a")
            assert os.getcwd() == places.cwd
            assert denied(touch, "a")
            os.chdir(places.ok)
            os.chdir(places.cwd)

    def test_nowhere_else(self, guard, places):
        with guard():
            assert denied(os.chdir, places.out)
            os.chdir(places.ok)
            assert denied(os.chdir, places.out)
            assert denied(os.chdir, os.path.dirname(places.cwd))

    def test_each_guard_has_its_own_start(self, mk_audit, places):
        audit_perms = mk_audit([places.ok], monitor_calls=False)
        with audit_perms():
            os.chdir(places.ok)
        with audit_perms():
            assert denied(os.chdir, places.cwd)


@contextlib.contextmanager
def chdir(path):
    before = os.getcwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


class TestTemporaryFiles:
    @pytest.mark.original_fails()
    def test_named(self, guard, places):
        with guard():
            with tempfile.NamedTemporaryFile() as file:
                assert os.path.dirname(file.name) == places.ok
            with tempfile.NamedTemporaryFile(dir=places.ok) as file:
                file.write(b"x")

    @pytest.mark.original_fails()
    def test_unnamed(self, guard):
        with guard(), tempfile.TemporaryFile() as file:
            file.write(b"x")

    @pytest.mark.original_fails()
    def test_spooled(self, guard):
        with guard(), tempfile.SpooledTemporaryFile(max_size=1) as file:
            file.write(b"xx")

    def test_directory(self, guard, places):
        with guard(), tempfile.TemporaryDirectory() as directory:
            os.makedirs(directory + "/a/b")
            touch(directory + "/a/file")
        assert os.listdir(places.ok) == []


def test_temporary_files_outside_are_denied(guard, places):
    for make in (tempfile.NamedTemporaryFile, tempfile.TemporaryFile, tempfile.mkstemp):
        with guard(), pytest.raises(PermissionError):
            make(dir=places.out)
    with guard(), pytest.raises(PermissionError):
        tempfile.TemporaryDirectory(dir=places.out)
    assert os.listdir(places.out) == []
