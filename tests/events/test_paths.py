"""The paths that lie inside the roots, also paths that lie about themselves."""

import errno
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


class TestLinks:
    def test_a_loop_is_the_systems_own_error(self, guard, places):
        os.symlink("loop", places.ok + "/loop")
        for act in (touch, lambda path: os.symlink("b", path)):
            with guard(), pytest.raises(OSError) as raised:
                act(places.ok + "/loop/a")
            assert raised.value.errno == errno.ELOOP


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


class TestChangingDirectory:
    def test_each_guard_has_its_own_start(self, mk_audit, places):
        audit_perms = mk_audit([places.ok], monitor_calls=False)
        with audit_perms():
            os.chdir(places.ok)
        with audit_perms():
            assert denied(os.chdir, places.cwd)
