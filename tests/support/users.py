"""Programs of tests that run as root or as an ordinary user, judged from outside."""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest
from programs import SLOWER
from repository import ROOT

#: A user without rights of its own, on any system; and one that the system has no name for.
ORDINARY, NAMELESS = 65534, 64999

#: The users that tests run as: only root can start programs as another one.
NAMES = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)
#: The same as parameters of tests: the quick suite has the user that most people are.
USERS = [pytest.param(name, marks=pytest.mark.slow if name == "root" else ()) for name in NAMES]


def run_as(user: str, program: str, *args: str, timeout: float = 60) -> str:
    """Run a Python program as this user to its end, and return its output; a failure raises."""
    command = [sys.executable, "-c", program, *args]
    if (number := _number(user)) is not None:
        command = _as_user(number, command)
    with directory_of(user) as home:
        env = {**os.environ, "HOME": home, "TMPDIR": home, "PYTHONDONTWRITEBYTECODE": "1"}
        if user == "nameless":
            del env["HOME"]
        done = subprocess.run(
            command, cwd=home, env=env, capture_output=True, text=True, timeout=timeout * SLOWER
        )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextlib.contextmanager
def directory_of(user: str) -> Iterator[str]:
    """A directory that this user owns and can reach: those of pytest are for its own user."""
    path = tempfile.mkdtemp(prefix=f"{user}-", dir="/tmp")
    if (number := _number(user)) is not None:
        os.chown(path, number, number)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _number(user: str) -> int | None:
    """The user to become, if that is another one than this process has."""
    if os.geteuid() != 0:
        if user == "nameless":
            pytest.skip("only root can become a user without a name")
        return None
    return {"ordinary": ORDINARY, "nameless": NAMELESS}.get(user)


def _as_user(number: int, command: list[str]) -> list[str]:
    """A command that runs this one as another user, in a mount namespace of its own if need be.

    The interpreter, or the checkout, is often below a directory that its owner alone may enter,
    such as /root: there, nothing but them is in it, and all may enter it.
    """
    user = [f"--reuid={number}", f"--regid={number}", "--clear-groups"]
    command = ["setpriv", *user, *command]
    needed = sorted({os.path.realpath(path) for path in (ROOT, sys.prefix, sys.base_prefix)})
    closed = {path: above for path in needed if (above := _closed(path)) is not None}
    if not closed:
        return command
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        # In a root that is not a mount point, for example.
        pytest.skip(f"no other user can enter {', '.join(closed.values())}, and nothing is mounted")
    lines = ["kept=$(mktemp -d)"]
    for number, path in enumerate(closed):
        lines += [f"mkdir $kept/{number}", f"mount --bind {shlex.quote(path)} $kept/{number}"]
    for above in sorted(set(closed.values())):
        lines.append(f"mount -t tmpfs -o mode=755 none {shlex.quote(above)}")
    for number, path in enumerate(closed):
        place = shlex.quote(path)
        lines += [f"mkdir -p {place}", f"mount --bind $kept/{number} {place}"]
    # Nothing of this is left: the mounts end with the namespace.
    lines += ["umount -l $kept/*", "rmdir $kept/* $kept", f"exec {shlex.join(command)}"]
    return ["unshare", "--mount", "sh", "-euc", "\n".join(lines)]


def _closed(path: str) -> str | None:
    """The topmost directory on the way to a path that other users cannot enter."""
    found = None
    while path != "/":
        if os.stat(path).st_mode & 5 != 5:
            found = path
        path = os.path.dirname(path)
    return found
