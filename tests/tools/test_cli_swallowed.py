"""`fastaudit-rs run` tells at its end of what was denied and not shown."""

from pathlib import Path

import pytest


@pytest.fixture
def told(places, command):
    """`told(code, *options)`: its exit status, output, and the lines of the command itself."""

    def run(code, *options):
        Path("job.py").write_text(code)
        done = command("run", *options, "job.py")
        return done, [
            line.removeprefix("fastaudit-rs: ")
            for line in done.stderr.splitlines()
            if line.startswith("fastaudit-rs: ")
        ]

    return run


def line_of(event, number, hint):
    return f"denied: {event}, at job.py:{number}; to allow it: {hint}"


SWALLOWED = "try:\n    open('/srv/a', 'w')\nexcept OSError:\n    "
TOLD = line_of("open /srv/a", 2, "--write /srv/a")

#: Programs, what they end with and print, and what is told of them.
PROGRAMS = {
    "swallowed": (f"{SWALLOWED}print('no')", 0, "no\n", [TOLD]),
    "beside an error": (f"{SWALLOWED}pass\nopen('/srv/b', 'w')", 77, "", [TOLD]),
    "beside an exit": (f"{SWALLOWED}raise SystemExit('failed')", 1, "", [TOLD]),
    "with a closed stream": (f"import sys; sys.stderr.close()\n{SWALLOWED}pass", 0, "", []),
    "shown": ("open('/srv/a', 'w')", 77, "", []),
    "nothing": ("print('fine')", 0, "fine\n", []),
    "after an error": (
        f"import atexit\n@atexit.register\ndef late():\n"
        f"  {SWALLOWED.replace(chr(10), chr(10) + '  ')}pass\n1 / 0",
        1, "", [line_of("open /srv/a", 5, "--write /srv/a")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told(told, name):
    code, status, printed, expected = PROGRAMS[name]
    done, lines = told(code)
    assert (done.returncode, done.stdout, lines) == (status, printed, expected)
    if name == "shown":
        assert done.stderr.count("--write /srv/a") == 1


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
    assert len(lines) == 1 and "os.mkdir /srv/b and 1 other, at" in lines[0]


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
