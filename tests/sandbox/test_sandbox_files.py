"""The host is never hurt by the files of its guest: judged from outside, as each user."""

import json
import textwrap

import promises
import pytest
from users import USERS, run_as

pytestmark = pytest.mark.once

#: The beginning of each program: `make` makes a sandbox where only the kernel is to say no, and
#: `tell` reports to the test.
BEGIN = """
import json, os, resource, sys, threading, time
from pathlib import Path
from fastaudit_rs import Limits, Policy, Sandbox

LOOSE = Policy(native=True, commands=True, network=True, threads="inherit", env=True)

def make(policy=LOOSE, **limits):
    return Sandbox(policy, Limits(**{"wall_seconds": 20, **limits}))

def tell(value):
    print(json.dumps(value), flush=True)

def error_of(function, *args, **named):
    try:
        function(*args, **named)
    except BaseException as error:
        return type(error).__name__
    return None
"""

by_each_user = pytest.mark.parametrize("user", USERS)


def told(user, program, timeout=60):
    """All that a program tells, as this user."""
    found = run_as(user, BEGIN + textwrap.dedent(program), timeout=timeout)
    return [json.loads(line) for line in found.splitlines()]


#: Runs code where no guard denies what is in too deep a directory.
RAW = "import subprocess, sys; subprocess.run([sys.executable, '-I', '-c', {!r}], check=True)"

#: Code that makes a directory a link to one outside, and back, in one step each.
SWAP = """
import ctypes, os, time
os.symlink(os.path.realpath("../../outside"), "link")
os.makedirs("place", exist_ok=True)
exchange, here, both = ctypes.CDLL(None).renameat2, -100, 2
end = time.monotonic() + 1.5
while time.monotonic() < end:
    assert exchange(here, b"place", here, b"link", both) == 0
"""


@pytest.mark.holds("host", promises.INSIDE)
@by_each_user
@pytest.mark.slow
def test_a_directory_that_becomes_a_link(user):
    """`write_file` while a run swaps a directory for a link to one outside."""
    program = f"""
        outside = Path("outside")
        outside.mkdir()
        (outside / "secret").write_text("secret")
        with make() as sandbox:
            ran = []
            run = threading.Thread(target=lambda: ran.append(sandbox.run({RAW.format(SWAP)!r})))
            run.start()
            errors, read, written = set(), set(), 0
            while run.is_alive():
                for name in ("place/inner/file", "place/file"):
                    error = error_of(sandbox.write_file, name, "x")
                    written += error is None
                    errors.add(error)
                try:
                    read.add(sandbox.read_file("place/secret").decode())
                except BaseException as error:
                    errors.add(type(error).__name__)
            run.join()
            tell([ran[0].stderr, sorted(os.listdir(outside)), sorted(read), written > 0])
            tell(sorted(errors - {{None}}))
    """
    found, errors = told(user, program)
    assert found == ["", ["secret"], [], True]
    assert set(errors) <= {"ValueError", "FileNotFoundError", "NotADirectoryError"}


@pytest.mark.holds("host", promises.UNHURT)
@by_each_user
def test_what_is_no_regular_file(user):
    """A FIFO does not make the host wait, a socket or a directory is an error."""
    program = """
        with make(Policy()) as sandbox:
            code = "import os; os.mkfifo('fifo'); os.mkdir('directory')"
            tell(sandbox.run(code).returncode)
            import socket
            os.chdir(sandbox.directory)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind("socket")
            begun = time.monotonic()
            for name in ("fifo", "directory", "socket"):
                tell([name, error_of(sandbox.read_file, name),
                      error_of(sandbox.write_file, name, "x")])
            tell(error_of(sandbox.write_file, "fifo/x", "x"))
            tell(sorted(sandbox.list_files()))
            tell(time.monotonic() - begun < 5)
    """
    assert told(user, program, timeout=30) == [
        0,
        ["fifo", "OSError", "OSError"],
        ["directory", "IsADirectoryError", "IsADirectoryError"],
        ["socket", "OSError", "OSError"],
        "NotADirectoryError",
        ["fifo", "socket"],
        True,
    ]


@pytest.mark.slow
@pytest.mark.holds("host", promises.UNHURT)
@by_each_user
def test_a_file_that_is_too_large(user):
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
    made, said, *rest = told(user, program)
    assert made and said[:2] == [27, "large"]
    assert "it has more than 104857600 bytes: pass a greater max_bytes" in said[2]
    assert rest == [True, "OSError", 1000, 1000, ["ValueError", "TypeError", "ValueError"]]


@pytest.mark.holds("host", promises.INSIDE)
@by_each_user
def test_names(user):
    program = """
        outside = Path("outside").absolute()
        outside.mkdir()
        with make() as sandbox:
            os.symlink(outside, sandbox.directory / "link")
            os.symlink("nowhere", sandbox.directory / "dangling")
            for name in ("../a", "/etc/passwd", "", ".", "a/../../b", "link/a", "dangling"):
                tell([error_of(sandbox.read_file, name), error_of(sandbox.write_file, name, "x")])
            tell(os.listdir(outside))
            for name in ("a/b", Path("c"), str(sandbox.directory / "d"), "a/../e", "\\udcff"):
                sandbox.write_file(name, "x")
                assert sandbox.read_file(name) == b"x"
            tell(sandbox.list_files())
            tell([error_of(sandbox.write_file, name, "x") for name in ("x" * 300, "a\\0", 1)])
    """
    *leading_out, outside, listed, wrong = told(user, program)
    assert leading_out == [["ValueError", "ValueError"]] * 7
    assert outside == []
    assert listed == ["a/b", "c", "d", "dangling", "e", "link", "\udcff"]
    assert wrong == ["OSError", "OSError", "TypeError"]


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
socket.socket(socket.AF_UNIX).bind(f"{os.getcwd()}/socket")
for name, depth in (("a", 3000), ("b" * 255, 40)):
    here = os.open(".", os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name)
        os.chdir(name)
    open("deep", "w").write("x")
    os.fchdir(here)
"""


@pytest.mark.holds("host", promises.UNHURT)
@by_each_user
@pytest.mark.slow
def test_odd_files(user):
    """A run, a list and closing mind neither modes nor names, links or depth."""
    program = f"""
        sandbox = make()
        base = sandbox.directory.parent
        made = sandbox.run({RAW.format(ODD)!r})
        tell([made.returncode, made.stderr])
        again = sandbox.run("1")
        tell([again.success, again.changed])
        names = sandbox.list_files()
        tell([len(names), max(map(len, names)) < 4096])
        tell(sorted(set(made.changed) ^ set(names)))
        begun = time.monotonic()
        sandbox.close()
        tell([base.exists(), time.monotonic() - begun < 10])
    """
    made, again, (count, are_short), differing, (exists, is_quick) = told(user, program)
    assert made == [0, ""]
    assert again == [True, []]
    # Files that are too deep have no path that they could be opened by.
    assert (count, are_short) == (4 + 6, True)
    assert differing == []
    assert not exists and is_quick


@by_each_user
def test_after_it_is_closed(user):
    program = """
        sandbox = make()
        sandbox.close()
        for attempt in (
            lambda: sandbox.write_file("a", "x"), lambda: sandbox.read_file("a"),
            sandbox.list_files, lambda: sandbox.run("1"), lambda: sandbox.pool(1),
        ):
            tell(error_of(attempt))
        tell(sandbox.directory.parent.exists())
    """
    assert told(user, program) == [*["RuntimeError"] * 5, False]


@pytest.mark.slow
@pytest.mark.holds("host", promises.DISK)
@by_each_user
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
def test_disk(user, disk, code):
    program = f"""
        with make(disk={disk!r}) as sandbox:
            ran = sandbox.run("import os, subprocess, sys, time; files = []\\n" + {code!r})
            tell([ran.killed_by, ran.success, ran.stderr])
            tell(sandbox.run("1").returncode is not None)
    """
    assert told(user, program) == [["disk", False, ""], True]


@pytest.mark.slow
@pytest.mark.holds("host", promises.UNHURT)
@by_each_user
@pytest.mark.parametrize(
    "report",
    ["b'[' * (8 << 20)", "b'[' + b'[],' * (5 << 20) + b'[]]'", "b'\\n' * (15 << 20)"],
)
def test_reports_that_cost_much(user, report):
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
    ran, seconds, kilobytes = told(user, program)
    assert ran == [0, [], None]
    assert seconds < 5
    assert kilobytes < 150_000
