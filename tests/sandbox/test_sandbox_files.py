"""The host is never hurt by the files of its guest: judged from outside."""

import asyncio
import errno
import json
import os
import socket
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import promises
import pytest
from programs import SLOWER, printed
from sandboxes import LOOSE, unguarded

from fastaudit_rs import Policy

#: The beginning of the programs that measure their memory: `make` makes a sandbox where only the
#: kernel is to say no, and `tell` reports to the test.
BEGIN = """
import json, resource, time
from fastaudit_rs import Limits, Policy, Sandbox

LOOSE = Policy(native=True, commands=True, network=True, threads="inherit", env=True)

def make(policy=LOOSE, **limits):
    return Sandbox(policy, Limits(**{"wall_seconds": 20 * SLOWER, **limits}))

def tell(value):
    print(json.dumps(value), flush=True)

def error_of(function, *args, **named):
    try:
        function(*args, **named)
    except BaseException as error:
        return type(error).__name__
"""


def told(program):
    """All that a program tells."""
    program = f"SLOWER = {SLOWER}\n{BEGIN}{textwrap.dedent(program)}"
    return [json.loads(line) for line in printed(program).splitlines()]


def error_of(function, *args):
    """The class of the exception that a call raises; `None` if it raises none."""
    try:
        function(*args)
    except (OSError, ValueError, TypeError) as error:
        return type(error)
    return None


#: Code that makes a directory a link to one outside, and back, in one step each.
SWAP = """
import ctypes, os, sys, time
os.symlink(sys.argv[1], "link")
os.makedirs("place", exist_ok=True)
exchange, here, both = ctypes.CDLL(None).renameat2, -100, 2
end = time.monotonic() + 1.5
while time.monotonic() < end:
    assert exchange(here, b"place", here, b"link", both) == 0
"""


@pytest.mark.holds("host", promises.INSIDE)
@pytest.mark.slow
def test_a_directory_that_becomes_a_link(sandbox, tmp_path):
    """`write_file` while a run swaps a directory for a link to one outside."""
    (tmp_path / "secret").write_text("secret")
    errors, read, written = set(), set(), 0
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(unguarded, sandbox, SWAP, tmp_path)
        while not run.done():
            for name in ("place/inner/file", "place/file"):
                error = error_of(sandbox.write_file, name, "x")
                written += error is None
                errors.add(error)
            try:
                read.add(sandbox.read_file("place/secret"))
            except OSError as error:
                errors.add(type(error))
            except ValueError:
                pass
    assert run.result().stderr == ""
    assert (os.listdir(tmp_path), read, written > 0) == (["secret"], set(), True)
    assert errors <= {None, ValueError, FileNotFoundError, NotADirectoryError}


@pytest.mark.holds("host", promises.UNHURT)
def test_what_is_no_regular_file(make_sandbox, monkeypatch):
    """A FIFO does not make the host wait, a socket or a directory is an error."""
    sandbox = make_sandbox(Policy())
    assert sandbox.run("import os; os.mkfifo('fifo'); os.mkdir('directory')").success
    monkeypatch.chdir(sandbox.directory)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    begun = time.monotonic()
    for name, kind in (("fifo", OSError), ("directory", IsADirectoryError), ("socket", OSError)):
        assert error_of(sandbox.read_file, name) == kind
        assert error_of(sandbox.write_file, name, "x") == kind
    assert error_of(sandbox.write_file, "fifo/x", "x") is NotADirectoryError
    assert sorted(sandbox.list_files()) == ["fifo", "socket"]
    assert time.monotonic() - begun < 5


@pytest.mark.slow
@pytest.mark.holds("host", promises.UNHURT)
def test_a_file_that_is_too_large():
    program = """
        with make(Policy(), disk=None) as sandbox:
            tell(sandbox.run("open('large', 'wb').truncate(10**12)").success)
            sandbox.write_file("small", b"x" * 1000)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            try:
                sandbox.read_file("large")
            except OSError as error:
                tell([error.errno, error.filename, str(error)])
            tell(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000)
            tell(error_of(sandbox.read_file, "small", max_bytes=999))
            tell(len(sandbox.read_file("small", max_bytes="1K")))
            tell(len(sandbox.read_file("small", max_bytes=None)))
            tell([error_of(sandbox.read_file, "small", max_bytes=most) for most in (0, 1.5, "x")])
    """
    made, said, *rest = told(program)
    assert made and said[:2] == [27, "large"]
    assert "it has more than 104857600 bytes: pass a greater max_bytes" in said[2]
    assert rest == [True, "OSError", 1000, 1000, ["ValueError", "TypeError", "ValueError"]]


@pytest.mark.holds("host", promises.INSIDE)
def test_names(make_sandbox, tmp_path):
    sandbox = make_sandbox()
    os.symlink(tmp_path, sandbox.directory / "link")
    os.symlink("nowhere", sandbox.directory / "dangling")
    for name in ("../a", "/etc/passwd", "", ".", "a/../../b", "link/a", "dangling"):
        assert error_of(sandbox.read_file, name) is ValueError
        assert error_of(sandbox.write_file, name, "x") is ValueError
    assert os.listdir(tmp_path) == []
    for name in ("a/b", Path("c"), str(sandbox.directory / "d"), "a/../e", "\udcff"):
        sandbox.write_file(name, "x")
        assert sandbox.read_file(name) == b"x"
    assert sandbox.list_files() == ["a/b", "c", "d", "dangling", "e", "link", "\udcff"]
    wrong = [error_of(sandbox.write_file, name, "x") for name in ("x" * 300, "a\0", 1)]
    assert wrong == [OSError, OSError, TypeError]


#: Code that makes odd files, below the current directory.
ODD = """
import os, socket
for mode in (0, 0o444, 0o111, 0o222):
    os.makedirs(f"modes-{mode:o}/inner/inner")
    open(f"modes-{mode:o}/inner/inner/file", "w").close()
    os.chmod(f"modes-{mode:o}/inner/inner/file", 0)
    for place in ("/inner/inner", "/inner", ""):
        os.chmod(f"modes-{mode:o}{place}", mode)
os.mkfifo("fifo")
os.symlink("/", "link")
os.symlink("link", b"dangling\\xff")
os.link("fifo", "hard")
open(b"\\xff\\n", "w").close()
socket.socketpair()[0].bind(f"{os.getcwd()}/socket")
for name, depth in (("a", 3000), ("b" * 255, 40)):
    here = os.open(".", os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name)
        os.chdir(name)
    open("deep", "w").write("x")
    os.fchdir(here)
"""


@pytest.mark.holds("host", promises.UNHURT)
@pytest.mark.slow
def test_odd_files(make_sandbox):
    """A run, a list and closing mind neither modes nor names, links or depth."""
    sandbox = make_sandbox()
    made = unguarded(sandbox, ODD)
    assert made.stderr == ""
    again = sandbox.run("1")
    assert (again.success, again.changed) == (True, [])
    names = sandbox.list_files()
    # Files that are too deep have no path that they could be opened by.
    assert len(names) == 4 + 6 and max(map(len, names)) < 4096
    assert sorted(made.changed) == sorted(names)
    begun = time.monotonic()
    sandbox.close()
    assert not sandbox.directory.parent.exists()
    assert time.monotonic() - begun < 10 * SLOWER


@pytest.mark.slow
@pytest.mark.holds("host", promises.DISK)
@pytest.mark.parametrize(
    ("disk", "code"),
    [
        # A file without a name.
        ("20M", "f = open('f', 'wb'); os.remove('f')\nwhile True: f.write(bytes(10**6))"),
        # By a process that it starts.
        (
            "20M",
            "if os.fork(): time.sleep(60)\n"
            "for n in range(100):\n"
            "    f = open(str(n), 'wb', 0); os.remove(str(n)); files.append(f)\n"
            "    for _ in range(10): f.write(bytes(10**6))",
        ),
        # Below a path that is too long.
        (
            "20M",
            'below = "import os\\n"'
            "\"for _ in range(30): os.mkdir('x' * 200); os.chdir('x' * 200)\\n\""
            "\"for n in range(10**6): open(str(n), 'wb').write(bytes(10**6))\"\n"
            "subprocess.run([sys.executable, '-I', '-c', below])",
        ),
        # In a directory that cannot be looked into.
        (
            "20M",
            "os.mkdir('a')\n"
            "files = [open(f'a/{n}', 'wb', 0) for n in range(50)]; os.chmod('a', 0)\n"
            "while True:\n"
            "    for f in files: f.write(bytes(10**5))",
        ),
        ("1M", "for n in range(10**6): open(str(n), 'w').close()"),
        ("1M", "for n in range(10**6): os.mkdir(str(n))"),
        # One file, whatever it takes.
        ("20M", "open('f', 'wb').truncate(30 << 20)"),
        ("20M", "f = open('f', 'wb')\nwhile True: f.write(bytes(10**6))"),
    ],
)
def test_disk(make_sandbox, disk, code):
    sandbox = make_sandbox(disk=disk)
    ran = sandbox.run(f"import os, subprocess, sys, time; files = []\n{code}")
    assert (ran.killed_by, ran.success, ran.stderr) == ("disk", False, "")
    assert sandbox.run("1").returncode is not None


@pytest.mark.slow
@pytest.mark.holds("host", promises.UNHURT)
@pytest.mark.parametrize(
    "report",
    ["b'[' * (8 << 20)", "b'[' + b'[],' * (5 << 20) + b'[]]'", "b'\\n' * (15 << 20)"],
)
def test_reports_that_cost_much(report):
    """A report on itself that the code makes up, by the descriptor."""
    code = f"""
import os
report = {report}
for head, tail in ((b'{{"value": ', b'}}'), (b'{{"denied": ', b'}}'), (b'', b'')):
    rest = head + report + tail + b"\\n"
    while rest:
        for number in range(3, 20):
            try:
                if os.readlink(f"/proc/self/fd/{{number}}").startswith("pipe:"):
                    rest = rest[os.write(number, rest[:1 << 20]):]
                    break
            except OSError:
                pass
"""
    program = f"""
        with make() as sandbox:
            sandbox.run("1")
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            begun = time.monotonic()
            ran = sandbox.run({code!r})
            tell([ran.returncode, ran.violations, ran.value])
            tell(time.monotonic() - begun)
            tell(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    ran, seconds, kilobytes = told(program)
    assert ran == [0, [], None]
    assert seconds < 5 * SLOWER
    assert kilobytes < 150_000


@pytest.mark.holds("host", promises.INSIDE)
@pytest.mark.holds("host", promises.UNHURT)
def test_a_program_that_code_put_there(make_sandbox, tmp_path):
    """`run(path)` reads regular files alone where code may write, and follows no link there."""
    shared, secret = tmp_path / "shared", tmp_path / "secret.py"
    (shared / "sub").mkdir(parents=True)
    secret.write_text("print('of the host')")
    secret.chmod(0o600)
    outside = tmp_path / "outside"
    sandbox = make_sandbox(LOOSE.replace(write=[shared]))
    outside.symlink_to(sandbox.directory)
    for place in (sandbox.directory, shared):
        os.symlink(secret, place / "link.py")
        os.symlink(tmp_path, place / "directory")
        os.mkfifo(place / "fifo.py")
        os.truncate(os.open(place / "large.py", os.O_RDWR | os.O_CREAT), 65 << 20)
        (place / "fine.py").write_text("print(__file__)")
    (shared / "sub" / "fine.py").write_text("print('sub')")
    begun = time.monotonic()

    def error(path):
        with pytest.raises((OSError, ValueError)) as raised:
            sandbox.run(path)
        with pytest.raises(type(raised.value)):
            asyncio.run(sandbox.arun(path))
        return raised.value

    for place in (sandbox.directory, shared, outside):
        assert sandbox.run(place / "fine.py").stdout == f"{place / 'fine.py'}\n"
        assert "a link leads there" in str(error(place / "link.py"))
        assert "a link leads there" in str(error(place / "directory" / "secret.py"))
        assert error(place / "fifo.py").errno == errno.EINVAL
        assert error(place / "large.py").strerror == "code must have at most 64 MB"
    assert sandbox.run(shared / "sub" / "fine.py").stdout == "sub\n"
    with sandbox.pool(1) as pool, pytest.raises(ValueError, match="a link leads there"):
        pool.run(sandbox.directory / "link.py")
    # Links of the host's own are followed.
    (tmp_path / "own.py").symlink_to(secret)
    assert sandbox.run(tmp_path / "own.py").stdout == "of the host\n"
    assert time.monotonic() - begun < 20 * SLOWER
