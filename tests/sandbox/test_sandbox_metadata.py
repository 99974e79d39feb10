"""Metadata in a sandbox: changed by programs, which the guard does not see, and by Python code."""

import os
import stat
import textwrap

import promises
import pytest
from sandboxes import LOOSE

from fastaudit_rs import Sandbox


@pytest.fixture
def outside(tmp_path):
    """A file of the host's."""
    path = tmp_path / "theirs"
    path.write_text("x")
    path.chmod(0o640)
    os.utime(path, (1, 2))
    os.setxattr(path, "user.theirs", b"x")
    return path


def state(path):
    status = path.stat()
    owner = (status.st_uid, status.st_gid)
    return stat.S_IMODE(status.st_mode), owner, status.st_mtime_ns, os.listxattr(path)


SPLIT = "os.path.split(name)"

#: Programs of Python, without a guard, that change the file `name`.
CHANGES = {
    "chmod": "os.chmod(name, 0o600)",
    "fchmod": "os.fchmod(os.open(name, os.O_RDONLY), 0o600)",
    "chown": "os.chown(name, os.getuid(), os.getgid() + 1)",
    "lchown": "os.lchown(name, os.getuid(), os.getgid() + 1)",
    "fchown": "os.fchown(os.open(name, os.O_RDONLY), os.getuid(), os.getgid() + 1)",
    "times": "os.utime(name, (5, 6))",
    "the current time": "os.utime(name)",
    "times by a descriptor": "os.utime(os.open(name, os.O_RDONLY), (5, 6))",
    "an attribute": "os.setxattr(name, 'user.a', b'x')",
    "an attribute by a descriptor": "os.setxattr(os.open(name, os.O_RDONLY), 'user.a', b'x')",
    "no attribute": "os.removexattr(name, 'user.theirs')",
    "from a directory": f"at, base = {SPLIT}; os.chmod(base, 0, dir_fd=os.open(at, 0))",
    "from the current one": f"place, base = {SPLIT}; os.chdir(place); os.chmod(base, 0o600)",
    "by way of /proc": "os.chmod(f'/proc/self/fd/{os.open(name, os.O_RDONLY)}', 0o600)",
}


def run(sandbox, change, name):
    """The report of a program on a change of a file."""
    program = f"import os, sys; name = sys.argv[1]; {change}"
    code = f"""
        import subprocess, sys
        done = subprocess.run(
            [sys.executable, "-c", {program!r}, {str(name)!r}], capture_output=True, text=True
        )
        done.stderr.strip().split("\\n")[-1]
    """
    return sandbox.run(textwrap.dedent(code), value=True).value


@pytest.mark.holds("kernel", promises.WRITE)
@pytest.mark.parametrize("change", CHANGES)
def test_outside(sandbox, outside, change):
    before = state(outside)
    assert run(sandbox, CHANGES[change], outside).startswith("PermissionError: [Errno 13]")
    assert state(outside) == before


@pytest.mark.parametrize("change", CHANGES)
def test_inside(sandbox, change):
    sandbox.write_file("own", "x")
    own = sandbox.directory / "own"
    os.utime(own, (1, 2))
    os.setxattr(own, "user.theirs", b"x")
    before = state(own)
    ran = run(sandbox, CHANGES[change], own)
    # Another owner takes a privilege, which nothing in a sandbox has, as root too.
    is_denied = "chown" in change
    assert ran.startswith("PermissionError: [Errno 1]") if is_denied else ran == ""
    assert (state(own) == before) == is_denied


def test_links(sandbox, outside):
    """Their targets are judged; a link itself is where it is."""
    sandbox.write_file("a", "x")
    link = sandbox.directory / "link"
    link.symlink_to(outside)
    before = state(outside)
    assert run(sandbox, "os.chmod(name, 0o600)", link).startswith("PermissionError")
    assert state(outside) == before
    assert run(sandbox, "os.utime(name, (5, 6), follow_symlinks=False)", link) == ""
    assert (link.lstat().st_mtime, state(outside)) == (6, before)


@pytest.mark.holds("guard", promises.WRITE)
def test_python_code(sandbox):
    code = """
        import os, shutil, tempfile
        open("a", "w").write("x")
        os.chmod("a", 0o750)
        os.utime("a", ns=(1, 2))
        os.setxattr("a", "user.a", b"x")
        shutil.copy2("a", "b")
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o700)
        status = os.stat("b")
        [status.st_mode & 0o777, status.st_mtime_ns, os.getxattr("b", "user.a").decode()]
    """
    ran = sandbox.run(textwrap.dedent(code), value=True)
    assert ran.value == [0o750, 2, "x"], ran


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("os.chmod(name + '-none', 0o600)", "FileNotFoundError"),
        ("os.chmod(name + '/a', 0o600)", "NotADirectoryError"),
        ("os.chmod('', 0o600)", "FileNotFoundError"),
        ("os.fchmod(99, 0o600)", "OSError: [Errno 9]"),
        ("os.removexattr(name, 'user.none')", "OSError: [Errno 61]"),
        ("os.setxattr(name, 'user.' + 'a' * 300, b'x')", "OSError: [Errno 34]"),
        ("os.chmod('a' * 5000, 0o600)", "OSError: [Errno 36]"),
        ("os.setxattr(name, 'trusted.a', b'x')", "PermissionError: [Errno 1]"),
        # A capability to set the user, as the host may give it to a file.
        (
            "os.setxattr(name, 'security.capability', b'\\1\\0\\0\\2\\x80' + bytes(15))",
            "PermissionError: [Errno 1]",
        ),
    ],
)
def test_errors(sandbox, change, error):
    sandbox.write_file("own", "x")
    assert run(sandbox, change, sandbox.directory / "own").startswith(error)


def test_anywhere(tmp_path):
    """Where a policy lets write anywhere nothing is asked."""
    with Sandbox(LOOSE.replace(write=None)) as sandbox:
        told = run(sandbox, "os.chmod(name, 0o600)", str(tmp_path / "none"))
        assert told.startswith("FileNotFoundError")
