"""The files of the Unix sockets that code binds in a sandbox, judged from outside."""

import os

import promises
import pytest
from raw_code import raw
from users import USERS, directory_of

from fastaudit_rs import Policy

pytestmark = pytest.mark.once

by_each_user = pytest.mark.parametrize("user", USERS)

#: Networks where `sandlock` binds in the place of the process, and the one where it does not.
NETWORKS = ["False", "True", "Network()", "Network(hosts=['127.0.0.1'], listen=True)"]

#: Binds a socket of each type to each path, and tells the paths that both were bound to.
BIND = """
outside = sys.argv[1]
os.mkdir("below")
os.symlink(outside, "link")
here = os.getcwd()
paths = {
    "absolute": f"{outside}/absolute",
    "by dots": f"{here}/../../../../../../../..{outside}/dots",
    "through a link": f"{here}/link/through",
    "by a relative link": "link/relative",
    "by /proc": f"/proc/self/root{outside}/proc",
    "own": f"{here}/own",
    "below": f"{here}/below/own",
    "short": "short",
}
def bound(path, kind):
    with socket.socket(socket.AF_UNIX, kind) as at:
        at.bind(f"{path}-{int(kind)}")
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for name, path in paths.items():
        attempt(f"{name} {int(kind)}", lambda: bound(path, kind))
attempt("of a pair", lambda: socket.socketpair()[0].bind(f"{outside}/pair"))
os.chdir("below")
attempt("from below", lambda: bound(f"../../{'../' * 9}{outside}/from", socket.SOCK_STREAM))
"""

#: The sockets that the host finds in the directory of the sandbox, and those in its own.
AFTER = """
import stat
def sockets(top):
    for at, _, names in os.walk(top):
        for name in names:
            if stat.S_ISSOCK(os.lstat(f"{at}/{name}").st_mode):
                yield os.path.relpath(f"{at}/{name}", top)
after = [sorted(sockets(sandbox.directory)), os.listdir()]
"""

#: The sockets that may be bound.
OWN = sorted(f"{name}-{kind}" for name in ("below/own", "own", "short") for kind in (1, 2))


@pytest.mark.slow
@by_each_user
@pytest.mark.holds("kernel", promises.WRITE)
@pytest.mark.parametrize("network", NETWORKS)
def test_bound_where_may_be_written(user, network):
    with directory_of(user) as outside:
        ran = raw(user, BIND, outside, network, after=AFTER)
        assert os.listdir(outside) == []
    inside, beside = ran["after"]
    assert inside == OWN and not any("short" in name for name in beside), ran
    assert sorted(ran["told"]) == sorted(
        f"{name} {kind}" for name in ("below", "own", "short") for kind in (1, 2)
    )


@by_each_user
def test_bound_in_a_root(user):
    """A directory of the host that the policy lets be written."""
    code = """
with socket.socket(socket.AF_UNIX) as at:
    at.bind(f"{sys.argv[1]}/named")
"""
    with directory_of(user) as root:
        ran = raw(user, code, root, f"True, write=[{root!r}]")
        assert os.listdir(root) == ["named"], ran


@by_each_user
def test_bound_anywhere(user):
    """A relative path starts at the directory of the sandbox also where all may be written."""
    code = """
with socket.socket(socket.AF_UNIX) as at:
    at.bind("short")
"""
    ran = raw(user, code, "", "True, write=None", after=AFTER)
    inside, beside = ran["after"]
    assert inside == ["short"] and "short" not in beside, ran


@by_each_user
def test_the_host_keeps_its_own_ways(user):
    """It binds where it likes, and keeps its current directory, while a sandbox runs."""
    after = """
import socket
with socket.socket(socket.AF_UNIX) as at:
    at.bind("theirs")
after = [os.getcwd(), os.path.exists("theirs")]
"""
    ran = raw(user, "print(1)", before="before = os.getcwd()", network="True", after=after)
    assert ran["after"] == [ran["before"], True]


def test_bound_by_guarded_code(make_sandbox):
    """Under a plain policy the guard allows it, in the directory of the sandbox."""
    sandbox = make_sandbox(Policy())
    ran = sandbox.run("import socket; socket.socket(socket.AF_UNIX).bind('named')")
    assert ran.success, ran.stderr
    assert (sandbox.directory / "named").is_socket() and not os.path.exists("named")
