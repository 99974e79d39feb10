"""The paths that lie inside the roots, also paths that lie about themselves."""

import os
import sys

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
    @pytest.mark.parametrize("root", ["/", "."])
    def test_the_top_directory_approves_everything(self, guard, places, root, monkeypatch):
        monkeypatch.chdir("/")
        with guard([root]):
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

    def test_missing_tails(self, guard, places):
        with guard():
            with pytest.raises(FileNotFoundError):
                touch(places.ok + "/missing/a")
            assert denied(touch, places.ok + "/missing/../../out/a")
            with pytest.raises(FileNotFoundError):
                touch(places.out + "/missing/../../ok/a")


class TestDevices:
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
            os.chdir(places.ok)
            touch("a")
            os.chdir(places.cwd)
            assert denied(touch, "a")

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
