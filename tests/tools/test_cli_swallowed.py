"""`fastaudit-rs run` tells at its end of what was denied and not shown."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def told(places):
    """`told(code, *options)`: its exit status, output, and the lines of the command itself."""

    def run(code, *options):
        Path("job.py").write_text(code)
        done = subprocess.run(
            [sys.executable, "-m", "fastaudit_rs", "run", *options, "job.py"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done, [
            line.removeprefix("fastaudit-rs: ")
            for line in done.stderr.splitlines()
            if line.startswith("fastaudit-rs: ")
        ]

    return run


def line_of(event, number, hint):
    return f"denied: {event}, at job.py:{number}; to allow it: {hint}"


def test_what_the_program_swallowed(told):
    done, lines = told("try:\n    open('/srv/a', 'w')\nexcept OSError:\n    print('no')\n")
    assert (done.returncode, done.stdout) == (0, "no\n")
    assert lines == [line_of("open /srv/a", 2, "--write /srv/a")]
    assert len(done.stderr.splitlines()) == 1


def test_it_does_what_it_says(told, places):
    code = f"try:\n    open({places.out!r} + '/a', 'w')\nexcept OSError:\n    print('no')\n"
    _, [line] = told(code)
    done, lines = told(code, *line.split("; to allow it: ")[1].split())
    assert (done.stdout, lines) == ("", [])


def test_no_usable_temporary_directory(told):
    """The error of `tempfile` names neither a denial nor a guard."""
    done, _ = told("import tempfile\ntempfile.mkstemp()\n")
    assert done.returncode != 0
    assert "--write" in done.stderr


def test_five_and_a_number(told):
    code = "import os\n" + "\n".join(
        f"try: os.mkdir('/srv/{name}')\nexcept OSError: pass" for name in "abcdefgh"
    )
    done, lines = told(code)
    assert done.returncode == 0
    assert [line.split(",")[0] for line in lines[:5]] == [
        f"denied: os.mkdir /srv/{name}" for name in "abcde"
    ]
    assert lines[5:] == ["and 3 more"]


def test_what_is_shown_is_not_told_again(told):
    done, lines = told("open('/srv/a', 'w')")
    assert (done.returncode, lines) == (77, [])
    assert done.stderr.count("--write /srv/a") == 1


def test_beside_an_error(told):
    code = (
        "import os\ntry:\n    os.mkdir('/srv/a')\nexcept OSError:\n    pass\nopen('/srv/b', 'w')\n"
    )
    done, lines = told(code)
    assert done.returncode == 77
    assert lines == [line_of("os.mkdir /srv/a", 3, "--write /srv/a")]


def test_an_exit(told):
    code = (
        "import sys\ntry:\n    open('/srv/a', 'w')\nexcept OSError as e:\n    sys.exit('failed')\n"
    )
    done, lines = told(code)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "failed"
    assert lines == [line_of("open /srv/a", 3, "--write /srv/a")]


def test_to_the_end(told):
    """Also of threads, and of what is called when the interpreter ends; once each."""
    code = """
import atexit, os, threading
def late(name):
    try:
        os.mkdir(name)
    except OSError:
        pass
atexit.register(late, '/srv/b')
if os.fork() == 0:
    late('/srv/c')
    raise SystemExit
os.wait()
threading.Timer(0.05, late, ['/srv/a']).start()
"""
    done, lines = told(code)
    assert done.returncode == 0
    assert len(lines) == 1 and "os.mkdir" in lines[0] and "2 times" in lines[0]


def test_a_closed_stream(told):
    code = (
        "import sys\nsys.stderr.close()\ntry:\n    open('/srv/a', 'w')\nexcept OSError:\n    pass\n"
    )
    done, lines = told(code)
    assert (done.returncode, lines) == (0, [])


def test_nothing_was_denied(told):
    done, lines = told("print('fine')")
    assert (done.stdout, done.stderr, lines) == ("fine\n", "", [])


def test_it_keeps_nothing_of_the_program_alive(told):
    code = """
class Late:
    def __del__(self): print('gone')
def overreach():
    late = Late()
    open('/srv/a', 'w')
try:
    overreach()
except OSError:
    pass
print('after')
"""
    done, lines = told(code)
    assert done.stdout.split() == ["gone", "after"]
    assert len(lines) == 1


def test_files_that_python_itself_does_without(told, places):
    """Its bytecode, and the source that tracebacks show."""
    Path("helper.py").write_text("x = 1\n")
    done, lines = told("import sys\nsys.dont_write_bytecode = False\nimport helper\n1/0\n")
    assert (done.returncode, lines) == (1, [])
    done, lines = told("1/0\n", "--read", places.out)
    assert (done.returncode, lines) == (1, [])


def test_after_an_error(told):
    code = """
import atexit, os
@atexit.register
def late():
    try:
        os.mkdir('/srv/a')
    except OSError:
        pass
1 / 0
"""
    done, lines = told(code)
    assert done.returncode == 1
    assert lines == [line_of("os.mkdir /srv/a", 6, "--write /srv/a")]
