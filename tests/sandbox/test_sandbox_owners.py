"""Files of other owners, which a host that is root could reach in the place of its sandbox."""

import contextlib
import os
import socket
import stat

import promises
import pytest
from users import directory_of

from fastaudit_rs import Network

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="another owner needs root")

#: The other owner, who need not exist.
OTHER = 12345

#: Each system call that the host answers, or that Landlock does not know, at files of another owner
#: and in a directory of theirs.
ACTS = """
base = sys.argv[1]
AT, NOFOLLOW = -100, 0x100
text = lambda path: ctypes.create_string_buffer(os.fsencode(path))
times = ctypes.create_string_buffer(struct.pack("=4q", 5, 0, 6, 0))
ours, value = text("user.ours"), text("x")
acl = struct.pack("=I", 2) + b"".join(
    struct.pack("=HHI", tag, rights, who)
    for tag, rights, who in ((1, 6, 2**32 - 1), (2, 6, 0), (4, 4, 2**32 - 1), (16, 6, 2**32 - 1),
                             (32, 0, 2**32 - 1)))
def opened(path):
    found = os.open(path, os.O_PATH)
    return f"/proc/self/fd/{found}"
def changes(path):
    file = text(path)
    yield "chmod", lambda: call(90, file, 0o666)
    yield "fchmodat", lambda: call(268, AT, file, 0o666)
    yield "fchmodat2", lambda: call(452, AT, file, 0o666, 0)
    yield "chmod of a descriptor", lambda: call(90, text(opened(path)), 0o666)
    yield "chown", lambda: call(92, file, 0, 0)
    yield "lchown", lambda: call(94, file, 0, 0)
    yield "fchownat", lambda: call(260, AT, file, 0, 0, 0)
    yield "utimensat", lambda: call(280, AT, file, times, 0)
    yield "the time", lambda: call(280, AT, file, 0, 0)
    yield "setxattr", lambda: call(188, file, ours, value, 1, 0)
    yield "lsetxattr", lambda: call(189, file, ours, value, 1, 0)
    yield "an ACL", lambda: call(188, file, text("system.posix_acl_access"), text(acl), len(acl), 0)
    yield "removexattr", lambda: call(197, file, text("user.theirs"))
    yield "lremovexattr", lambda: call(198, file, text("user.theirs"))
    yield "setxattrat", lambda: call(463, AT, file, 0, ours, text(bytes(16)), 16)
    yield "removexattrat", lambda: call(466, AT, file, 0, text("user.theirs"))
    yield "file_setattr", lambda: call(469, AT, file, text(bytes(24)), 24, 0)
    yield "truncate", lambda: call(76, file, 0)
    yield "open", lambda: os.open(path, os.O_RDWR)
    yield "openat2", lambda: call(437, AT, file, text(struct.pack("=3Q", 2, 0, 0)), 24)
    yield "getxattr", lambda: os.getxattr(path, "user.theirs")
def sent(path, kind):
    with socket.socket(socket.AF_UNIX, kind) as to:
        if kind == socket.SOCK_DGRAM:
            return to.sendto(b"leaked", path)
        to.connect(path)
        return to.send(b"leaked")
def bound(path):
    with socket.socket(socket.AF_UNIX) as at:
        at.bind(path)
def inside(path):
    yield "stat", lambda: os.stat(f"{path}/theirs")
    yield "lstat", lambda: os.lstat(f"{path}/link")
    yield "statx", lambda: call(332, AT, text(f"{path}/theirs"), 0, 0xfff, text(bytes(256)))
    yield "access", lambda: os.access(f"{path}/theirs", os.F_OK)
    yield "readlink", lambda: os.readlink(f"{path}/link")
    yield "listdir", lambda: os.listdir(path)
    yield "mkdir", lambda: os.mkdir(f"{path}/made")
    yield "mknod", lambda: os.mkfifo(f"{path}/made")
    yield "symlink", lambda: os.symlink("a", f"{path}/made")
    yield "link", lambda: os.link("own", f"{path}/made")
    yield "rename", lambda: os.rename("own", f"{path}/made")
    yield "out", lambda: os.rename(f"{path}/theirs", "taken")
    yield "unlink", lambda: os.unlink(f"{path}/theirs")
    yield "bind", lambda: bound(f"{path}/made")
    yield "write", lambda: open(f"{path}/below/made", "w")
    yield "chdir", lambda: os.chdir(path)
    for each in changes(f"{path}/theirs"):
        yield each
open("own", "w").close()
for name, act in changes(f"{base}/theirs"):
    attempt(name, act)
for name, act in inside(f"{base}/private"):
    attempt(f"{name} inside", act)
for kind in ("stream", "datagram"):
    for path in (kind, f"private/{kind}"):
        number = socket.SOCK_DGRAM if kind == "datagram" else socket.SOCK_STREAM
        attempt(path, lambda: sent(f"{base}/{path}", number))
attempt("chown of its own", lambda: call(92, text("own"), 12345, 12345))
for mode in (0o4755, 0o2755, 0o6755):
    attempt(f"{mode:o}", lambda: call(90, text("own"), mode))
    attempt(f"{mode:o} of a descriptor", lambda: call(91, os.open("own", os.O_RDWR), mode))
os.mkdir("directory")
attempt("set-group-ID of a directory", lambda: call(90, text("directory"), 0o2755))
for name, act in changes("own"):
    attempt(f"own: {name}", act)
"""

#: Acts that the code may do with files of its own.
WORK = ("chmod", "fchmodat2", "chown", "lchown", "utimensat", "setxattr", "an ACL", "open")


@contextlib.contextmanager
def theirs():
    """A directory of root's with files of another owner, closed to all but them.

    It is told with the texts that sockets among them are sent.
    """
    with directory_of("root") as base, contextlib.ExitStack() as stack:
        os.makedirs(f"{base}/private/below")
        listeners = []
        for place in (base, f"{base}/private"):
            with open(f"{place}/theirs", "w") as file:
                file.write("secret")
            os.setxattr(f"{place}/theirs", "user.theirs", b"x")
            os.symlink("secret", f"{place}/link")
            for name, kind in (("stream", socket.SOCK_STREAM), ("datagram", socket.SOCK_DGRAM)):
                listener = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
                listener.bind(f"{place}/{name}")
                if kind == socket.SOCK_STREAM:
                    listener.listen()
                listener.setblocking(False)
                listeners.append(listener)
            for name in ("theirs", "stream", "datagram"):
                os.chmod(f"{place}/{name}", 0o600)
                os.chown(f"{place}/{name}", OTHER, OTHER)
        os.chmod(f"{base}/private", 0o700)
        os.chown(f"{base}/private", OTHER, OTHER)
        yield base, listeners


def state(base):
    """All that can be seen of the files."""
    found = {}
    for at, directories, names in os.walk(base):
        for name in (*directories, *names):
            status = os.lstat(f"{at}/{name}")
            owner = (status.st_uid, status.st_gid, oct(status.st_mode))
            attributes = os.listxattr(f"{at}/{name}", follow_symlinks=False)
            is_file = stat.S_ISREG(status.st_mode)
            found[f"{at}/{name}"] = (owner, status.st_size, is_file and status.st_mtime, attributes)
    return found


def accepted(listeners):
    """The number of those that somebody reached."""
    count = 0
    for listener in listeners:
        with contextlib.suppress(BlockingIOError):
            if listener.type == socket.SOCK_STREAM:
                listener.accept()[0].close()
            else:
                listener.recv(9)
            count += 1
    return count


@pytest.mark.holds("kernel", promises.POWER)
@pytest.mark.parametrize("has_network", [False, True])
def test_other_owners(raw, has_network):
    with theirs() as (base, listeners):
        before = state(base)
        # A place that its own user cannot reach opens nothing.
        fields = {"network": Network(unix=[base]), "block": ["/srv"]} if has_network else {}
        ran = raw(ACTS, base, write=[base, f"{base}/private/below"], **fields)
        assert state(base) == before, ran
        assert accepted(listeners) == 0
    others = [name for name in ran.told if not name.startswith("own: ")]
    assert others == ["set-group-ID of a directory"], ran
    assert {f"own: {name}" for name in WORK} <= {*ran.told}, ran
    own = os.stat(ran.sandbox.directory / "own")
    assert (own.st_uid, own.st_gid, own.st_mode & 0o7000) == (0, 0, 0)
