"""A descriptor that was opened for reading changes nothing outside the roots."""

import fcntl
import os
import shutil
import struct

import programs
import pytest

from fastaudit_rs import AuditDenied, Policy, mk_audit, v02

SETFLAGS, GETFLAGS, FSSETXATTR = 0x40086602, 0x80086601, 0x401C5820
SETVERSION, ENABLE_VERITY = 0x40087602, 0x40806685

# Each with a descriptor of a file, or of a directory.
CHANGES = {
    "fchmod": lambda fd: os.fchmod(fd, 0o777),
    "chmod": lambda fd: os.chmod(fd, 0o777),
    "fchown": lambda fd: os.fchown(fd, os.getuid(), os.getgid()),
    "chown": lambda fd: os.chown(fd, os.getuid(), os.getgid()),
    "shutil.chown": lambda fd: shutil.chown(fd, os.getuid(), os.getgid()),
    "setxattr": lambda fd: os.setxattr(fd, "user.a", b"b"),
    "removexattr": lambda fd: os.removexattr(fd, "user.a"),
    "utime": lambda fd: os.utime(fd, (1, 2)),
    "flags": lambda fd: fcntl.ioctl(fd, SETFLAGS, struct.pack("l", 0x80)),
    "xattr flags": lambda fd: fcntl.ioctl(fd, FSSETXATTR, bytes(28)),
    "version": lambda fd: fcntl.ioctl(fd, SETVERSION, struct.pack("l", 7)),
    "verity": lambda fd: fcntl.ioctl(fd, ENABLE_VERITY, bytes(128)),
}
# The rules of fastaudit 0.2 let times be set.
OF_02 = [name for name in CHANGES if name != "utime"]
GUARDS = {
    "mk_audit": lambda ok: mk_audit([ok], monitor_calls=False)(),
    "policy": lambda ok: Policy(write=[ok], network=False).guard(monitor_calls=False)(),
    "v02": lambda ok: v02.mk_audit([ok], monitor_calls=False)(),
}


def cases():
    return [(name, rules) for rules in GUARDS for name in (OF_02 if rules == "v02" else CHANGES)]


@pytest.fixture
def opened(places):
    """`opened(path, flags)`: a descriptor that is closed in the end."""
    descriptors = []

    def open_it(path, flags=os.O_RDONLY):
        descriptors.append(os.open(path, flags))
        return descriptors[-1]

    yield open_it
    for descriptor in descriptors:
        os.close(descriptor)


@pytest.fixture
def theirs(places):
    path = places.out + "/theirs"
    with open(path, "w") as file:
        file.write("theirs")
    os.setxattr(path, "user.a", b"a")
    return path


def state(path):
    found = os.stat(path)
    seen = found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns
    return seen, {name: os.getxattr(path, name) for name in os.listxattr(path)}


@pytest.mark.parametrize(("change", "rules"), cases())
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_outside_the_roots(places, opened, theirs, change, rules, kind):
    path = theirs if kind == "file" else places.out
    os.setxattr(path, "user.a", b"a")
    before = state(path)
    with GUARDS[rules](places.ok), pytest.raises(AuditDenied):
        CHANGES[change](opened(path))
    assert state(path) == before


@pytest.mark.parametrize("rules", GUARDS)
def test_opened_for_writing_it_is_handed_over(places, opened, theirs, rules):
    writing, both = opened(theirs, os.O_WRONLY), opened(theirs, os.O_RDWR)
    with GUARDS[rules](places.ok):
        os.fchmod(writing, 0o640)
        os.utime(both, (1, 2))
        os.truncate(both, 1)
    assert os.stat(theirs).st_size == 1


@pytest.mark.parametrize("rules", GUARDS)
def test_what_is_no_file(places, opened, rules):
    with GUARDS[rules](places.ok):
        for end in os.pipe():
            os.fchmod(end, 0o600)
            os.close(end)


def test_opened_for_its_path_alone(places, opened, theirs):
    before = state(theirs)
    path = opened(theirs, os.O_PATH)
    with GUARDS["mk_audit"](places.ok):
        with pytest.raises(AuditDenied):
            os.fchmod(path, 0)
        with pytest.raises(AuditDenied):
            os.chmod(f"/proc/self/fd/{path}", 0o777)
    assert state(theirs) == before


def test_a_copy_of_the_descriptor(places, opened, theirs):
    descriptor = opened(theirs)
    with GUARDS["mk_audit"](places.ok):
        copy = os.dup(descriptor)
        try:
            with pytest.raises(AuditDenied):
                os.fchmod(copy, 0)
        finally:
            os.close(copy)


def test_a_link_out_of_a_root(places, opened, theirs):
    os.symlink(theirs, places.ok + "/link")
    with GUARDS["mk_audit"](places.ok), open(places.ok + "/link") as file:
        with pytest.raises(AuditDenied):
            os.fchmod(file.fileno(), 0)


def test_a_file_that_lost_one_of_its_names(places, opened, theirs):
    os.link(theirs, places.out + "/other")
    descriptor = opened(theirs)
    os.remove(theirs)
    with GUARDS["mk_audit"](places.ok), pytest.raises(AuditDenied):
        os.fchmod(descriptor, 0)
    os.remove(places.out + "/other")
    with GUARDS["mk_audit"](places.ok):
        os.fchmod(descriptor, 0)


def test_a_number_that_is_told_later(places, opened, theirs):
    class Index:
        def __index__(self):
            return next(numbers)

    numbers = iter([opened(theirs, os.O_RDWR), opened(theirs)])
    with GUARDS["mk_audit"](places.ok), pytest.raises(AuditDenied):
        os.chmod(Index(), 0)


def test_a_closed_one_fails_as_ever(places, opened, theirs):
    descriptor = os.dup(opened(theirs))
    os.close(descriptor)
    with GUARDS["mk_audit"](places.ok), pytest.raises(OSError, match="Bad file descriptor"):
        os.fchmod(descriptor, 0)


def test_a_protected_file_in_a_root(places):
    os.mkdir(places.ok + "/.git")
    config = places.ok + "/.git/config"
    open(config, "w").close()
    with GUARDS["policy"](places.ok), open(config) as file:
        with pytest.raises(AuditDenied) as denied:
            os.fchmod(file.fileno(), 0)
    assert denied.value.rule == "protect"


def test_an_installed_policy(places, theirs):
    code = f"""
import os
from fastaudit_rs import Policy
Policy(write=[{places.ok!r}]).install()
try:
    with open({theirs!r}) as file:
        os.fchmod(file.fileno(), 0)
except PermissionError as error:
    print(type(error).__name__)
"""
    assert programs.printed(code) == "AuditDenied\n"
    assert os.stat(theirs).st_mode & 0o777


class TestControl:
    """`fcntl.ioctl`, by what the request may do."""

    def test_pipes_and_terminals(self, places):
        import pty
        import termios

        main, other = pty.openpty()
        ends = os.pipe()
        with GUARDS["policy"](places.ok):
            size = struct.pack("HHHH", 24, 80, 0, 0)
            fcntl.ioctl(other, termios.TIOCSWINSZ, size)
            assert fcntl.ioctl(other, termios.TIOCGWINSZ, bytes(8)) == size
            assert fcntl.ioctl(ends[0], termios.FIONREAD, bytes(4)) == bytes(4)
            # The shell behind a terminal would read it.
            with pytest.raises(AuditDenied):
                fcntl.ioctl(other, termios.TIOCSTI, b"x")
        for descriptor in (main, other, *ends):
            os.close(descriptor)
