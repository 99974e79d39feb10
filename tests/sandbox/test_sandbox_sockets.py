"""The files of the Unix sockets that code binds in a sandbox, judged from outside."""

import os
import socket
from pathlib import Path

import promises
import pytest
from sandboxes import MAKES_OWN_UNIX_SOCKETS, MAKES_UNIX_SOCKETS
from users import directory_of

from fastaudit_rs import Network, Policy

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

#: The sockets that may be bound.
OWN = sorted(f"{name}-{kind}" for name in ("below/own", "own", "short") for kind in (1, 2))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def sockets(top):
    """The sockets below a directory."""
    return sorted(str(path.relative_to(top)) for path in Path(top).rglob("*") if path.is_socket())


@pytest.mark.slow
@pytest.mark.holds("kernel", promises.WRITE)
@pytest.mark.parametrize(
    "network",
    [
        pytest.param(False, marks=MAKES_OWN_UNIX_SOCKETS),
        *(
            pytest.param(each, marks=MAKES_UNIX_SOCKETS)
            for each in (True, Network(), Network(hosts=["127.0.0.1"], listen=True))
        ),
    ],
)
def test_bound_where_may_be_written(raw, network):
    """`sandlock` binds in the place of the process, but under the last network."""
    # A path that is short enough for a socket.
    with directory_of("root") as outside:
        ran = raw(BIND, outside, network=network)
        assert os.listdir(outside) == []
    assert (sockets(ran.sandbox.directory), os.listdir()) == (OWN, []), ran
    assert sorted(ran.told) == sorted(
        f"{name} {kind}" for name in ("below", "own", "short") for kind in (1, 2)
    )


@MAKES_UNIX_SOCKETS
def test_bound_in_a_root(raw):
    """A directory of the host that the policy lets be written."""
    code = """
with socket.socket(socket.AF_UNIX) as at:
    at.bind(f"{sys.argv[1]}/named")
"""
    with directory_of("root") as root:
        ran = raw(code, root, network=True, write=[root])
        assert os.listdir(root) == ["named"], ran


@MAKES_UNIX_SOCKETS
def test_bound_anywhere(raw):
    """A relative path starts at the directory of the sandbox also where all may be written."""
    code = """
with socket.socket(socket.AF_UNIX) as at:
    at.bind("short")
"""
    ran = raw(code, network=True, write=None)
    assert (sockets(ran.sandbox.directory), os.listdir()) == (["short"], []), ran


def test_the_host_keeps_its_own_ways(raw, tmp_path):
    """It binds where it likes, and keeps its current directory, while a sandbox runs."""
    raw("", network=True)
    with socket.socket(socket.AF_UNIX) as at:
        at.bind("theirs")
    assert (os.getcwd(), os.listdir()) == (str(tmp_path), ["theirs"])


@MAKES_UNIX_SOCKETS
def test_bound_by_guarded_code(make_sandbox):
    """Under a plain policy the guard allows it, in the directory of the sandbox."""
    sandbox = make_sandbox(Policy())
    ran = sandbox.run("import socket; socket.socket(socket.AF_UNIX).bind('named')")
    assert ran.success, ran.stderr
    assert (sandbox.directory / "named").is_socket() and not os.path.exists("named")
