"""Names that start from a `dir_fd`, and operations on open descriptors."""

import inspect
import os
from functools import partial

import at_once
import pytest


@pytest.fixture
def open_dir():
    """`open_dir(path)`: a descriptor of a directory."""
    opened = []

    def open_it(path):
        opened.append(os.open(path, os.O_RDONLY))
        return opened[-1]

    yield open_it
    for descriptor in opened:
        os.close(descriptor)


def write_at(name, dir_fd):
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=dir_fd))


# The effect of each on the entry `name`, relative to `dir_fd`, and whether the entry must be there
# before.
OPERATIONS = {
    "mkdir": (None, lambda fd: os.mkdir("name", dir_fd=fd)),
    "open": (None, lambda fd: write_at("name", fd)),
    "remove": ("file", lambda fd: os.remove("name", dir_fd=fd)),
    "rmdir": ("dir", lambda fd: os.rmdir("name", dir_fd=fd)),
    "chmod": ("file", lambda fd: os.chmod("name", 0o600, dir_fd=fd)),
    "chown": ("file", lambda fd: os.chown("name", -1, -1, dir_fd=fd)),
    "rename": ("file", lambda fd: os.rename("name", "other", src_dir_fd=fd, dst_dir_fd=fd)),
    "link": ("file", lambda fd: os.link("name", "other", src_dir_fd=fd, dst_dir_fd=fd)),
    "symlink": (None, lambda fd: os.symlink("text", "name", dir_fd=fd)),
}


def prepare(directory, kind):
    if kind == "file":
        open(f"{directory}/name", "w").close()
    elif kind == "dir":
        os.mkdir(f"{directory}/name")


@pytest.mark.original_fails()
@pytest.mark.parametrize("operation", OPERATIONS)
def test_outside_the_roots_from_inside(guard, places, open_dir, monkeypatch, operation):
    kind, operate = OPERATIONS[operation]
    prepare(places.out, kind)
    before = os.listdir(places.out)
    monkeypatch.chdir(places.ok)
    descriptor = open_dir(places.out)
    with guard(), pytest.raises(PermissionError):
        operate(descriptor)
    assert os.listdir(places.out) == before


def test_absolute_names_do_not_start_from_it(guard, places, open_dir):
    inside, outside = open_dir(places.ok), open_dir(places.out)
    with guard():
        os.mkdir(places.ok + "/a", dir_fd=outside)
        write_at(places.ok + "/b", outside)
        with pytest.raises(PermissionError):
            os.mkdir(places.out + "/a", dir_fd=inside)
        with pytest.raises(PermissionError):
            write_at(places.out + "/b", inside)


@pytest.mark.original_fails()
def test_a_removed_directory_approves_nothing(guard, places, open_dir):
    os.mkdir(places.ok + "/gone")
    descriptor = open_dir(places.ok + "/gone")
    os.rmdir(places.ok + "/gone")
    os.chdir(places.ok)
    with guard(), pytest.raises(PermissionError):
        os.mkdir("a", dir_fd=descriptor)


class TestDirFdOfOsOpen:
    """`os.open` reports no `dir_fd` in its event; it is noted as the call is made."""

    @pytest.mark.original_fails()
    def test_under_another_name(self, guard, places, open_dir, monkeypatch):
        from posix import open as posix_open

        monkeypatch.chdir(places.ok)
        descriptor = open_dir(places.out)
        with guard(), pytest.raises(PermissionError):
            posix_open("name", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor)

    @pytest.mark.original_fails()
    def test_of_an_object_that_gives_its_number_later(self, guard, places, open_dir, monkeypatch):
        class Index:
            def __index__(self):
                return next(numbers)

        monkeypatch.chdir(places.ok)
        numbers = iter([open_dir(places.ok), open_dir(places.out)])
        with guard(), pytest.raises(PermissionError):
            write_at("name", Index())

    @pytest.mark.original_fails()
    def test_of_one_call_is_not_that_of_a_call_inside_it(self, guard, places, open_dir):
        class Path:
            def __fspath__(self):
                # Relative to the current directory, not to the outer call's directory.
                with pytest.raises(PermissionError):
                    os.open("inner", os.O_WRONLY | os.O_CREAT)
                return "outer"

        descriptor = open_dir(places.ok)
        with guard():
            write_at(Path(), descriptor)
        assert os.listdir(places.ok) == ["outer"]
        assert os.listdir(places.cwd) == []

    def test_none(self, guard, places, monkeypatch):
        monkeypatch.chdir(places.ok)
        with guard():
            write_at("name", None)
        monkeypatch.chdir(places.out)
        with guard(), pytest.raises(PermissionError):
            write_at("name", None)

    def test_in_threads_at_once(self, mk_audit, places, open_dir):
        """One thread's `dir_fd` is not another's."""
        inside, outside = open_dir(places.ok), open_dir(places.out)
        audit_perms = mk_audit([places.ok], monitor_calls=False)
        wrong = []

        def work(descriptor, allowed):
            with audit_perms():
                for number in range(300):
                    try:
                        write_at(f"{number}", descriptor)
                    except PermissionError:
                        if allowed:
                            wrong.append(number)
                    else:
                        if not allowed:
                            wrong.append(number)

        at_once.run(*[partial(work, inside, True), partial(work, outside, False)] * 2)
        assert wrong == []

    def test_it_looks_and_works_as_before(self, guard, places):
        signature = inspect.signature(os.open)
        with guard():
            assert os.open in os.supports_dir_fd
            assert os.open.__name__ == "open"
            assert os.open.__module__ == "posix"
            assert list(signature.parameters) == ["path", "flags", "mode", "dir_fd"]
            assert os.open.__doc__
            with pytest.raises(TypeError, match="argument"):
                os.open()
            with pytest.raises(FileNotFoundError):
                os.open(path=places.ok + "/missing", flags=os.O_RDONLY, mode=0o600)
