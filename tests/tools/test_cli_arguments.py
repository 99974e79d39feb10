"""Where the options of `fastaudit-rs run|learn|trace` end and those of the program begin."""

import os
import select
import sys
import time
from pathlib import Path

import programs
import pytest

from fastaudit_rs.programs import CommandLine, split

COMMAND = [sys.executable, "-m", "fastaudit_rs"]
SHOW = "import sys; print(sys.argv[1:])"


def python(*arguments, stdin=""):
    """Run the same program by plain Python."""
    return programs.python(*arguments, input=stdin)


def learned(done, text):
    """Tell whether it is the first line that was printed; `learn` keeps that from its policy."""
    return [*done.stdout.splitlines()[:1], *done.stderr.splitlines()[:1]].count(text) == 1


class TestWhatIsTheProgramsOwn:
    @pytest.mark.parametrize(
        "arguments",
        [
            *(["-x"], ["-h"], ["--write", "/srv"], ["-m", "other"], ["-c", "1/0"], ["-u"], [""]),
            ["--", "a", "--", "-o", "b"],
            ["a", "--html", "b"],
        ],
        ids=" ".join,
    )
    @pytest.mark.parametrize(
        ("target", "kind", "program"),
        [
            (["own.py"], "", "own.py"),
            (["-"], "", "-"),
            (["--", "-odd.py"], "", "-odd.py"),
            (["-m", "own"], "-m", "own"),
            (["-mown"], "-m", "own"),
            (["-c", "code"], "-c", "code"),
            (["-ccode"], "-c", "code"),
        ],
        ids=str,
    )
    def test_all_after_the_target(self, target, kind, program, arguments):
        for own in ([], ["--write", "."], ["--write=."], ["--sandbox", "--write", "-x"]):
            line = split([*own, *target, *arguments], {"--write"})
            assert line == CommandLine(own, [], kind, [program, *arguments])

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["run", "learn", "trace"])
    def test_of_each_command(self, command, name):
        Path("own.py").write_text(SHOW)
        for target in (["own.py"], ["-mown"], ["--", "own.py"], ["-c", SHOW], ["-"]):
            done = command(name, *target, "--write", "/srv", stdin=SHOW)
            assert learned(done, "['--write', '/srv']"), (target, done)
            assert done.returncode == 0

    @pytest.mark.slow
    def test_where_modules_are_looked_for(self, command, places):
        """No directory but those that plain Python has."""
        Path("sub").mkdir()
        Path("sub/own.py").write_text("import sys; print(sys.path)")
        Path("own.py").write_text("import sys; print(sys.path)")
        show = "import sys; print(sys.path)"
        for target in (["sub/own.py"], ["-m", "own"], ["-c", show], ["-"]):
            assert command("run", *target, stdin=show).stdout == python(*target, stdin=show).stdout


@pytest.mark.slow
class TestOptionsOfTheInterpreter:
    @pytest.mark.parametrize(
        ("given", "code"),
        [
            (["-O"], "import sys; print(sys.flags.optimize, __debug__)"),
            (["-OO"], "import sys; print(sys.flags.optimize, __debug__)"),
            (["-O", "-O"], "import sys; print(sys.flags.optimize, __debug__)"),
            (["-u"], "import sys; print(sys.stdout.write_through)"),
            (["-X", "dev"], "import sys; print(sys.flags.dev_mode)"),
            (["-Xdev"], "import sys; print(sys.flags.dev_mode)"),
            (["-X", "utf8=0", "-X", "own=1"], "import sys; print(sys._xoptions)"),
            (["-W", "error::UserWarning"], "import warnings; warnings.warn('no')"),
            (["-Werror"], "import sys; print(sys.warnoptions)"),
            (["-uOW", "ignore"], "import sys; print(sys.flags.optimize, sys.warnoptions)"),
        ],
        ids=str,
    )
    def test_they_are_the_interpreters(self, command, given, code):
        done, plain = command("run", *given, "-c", code), python(*given, "-c", code)
        assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout)
        assert done.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]

    def test_beside_own_options(self, command, places):
        code = "open(sys.argv[1], 'w'); print(sys.flags.optimize, sys.argv[1:], input())"
        code = "import sys; " + code
        arguments = ["-O", "--write", places.out, "-c", code, places.out + "/a", "-O"]
        done = command("run", *arguments, stdin="typed\n")
        assert done.stdout == f"1 {[places.out + '/a', '-O']} typed\n", done.stderr
        assert command("run", *arguments[:1], "-c", "raise SystemExit(5)").returncode == 5

    @pytest.mark.parametrize("name", ["learn", "trace"])
    def test_of_the_others(self, command, name):
        done = command(name, "-O", "-c", "import sys; print(sys.flags.optimize)")
        assert learned(done, "1")
        assert name == "trace" or "\nnetwork = false\n" in done.stdout

    def test_those_of_the_command_itself_stay(self):
        code = "import sys; print(sys.flags.optimize, sys.flags.dev_mode)"
        command = [sys.executable, "-X", "dev", "-m", "fastaudit_rs", "run", "-O", "-c", code]
        assert programs.run(command).stdout == "1 True\n"


class TestWrongOptions:
    @pytest.mark.parametrize("name", ["run", "learn", "trace", "doctor", "completion bash"])
    def test_the_usage_is_that_of_the_subcommand(self, command, name):
        name, *rest = name.split()
        done = command(name, *rest, "--wirte")
        assert done.returncode == 2
        assert done.stderr.startswith(f"usage: fastaudit-rs {name} ")
        assert f"fastaudit-rs {name}: error: " in done.stderr
        assert "--wirte" in done.stderr.splitlines()[-1]

    def test_the_near_one_is_named(self, command):
        done = command("run", "--wirte", "a", "-c", "1")
        assert done.stderr.splitlines()[-1].endswith("--wirte (did you mean --write?)")

    def test_before_the_subcommand(self, command):
        done = command("--wirte", "run", "-c", "1")
        assert done.returncode == 2
        assert done.stderr.startswith("usage: fastaudit-rs [-h]")
        assert "--wirte" in done.stderr.splitlines()[-1]

    @pytest.mark.parametrize("name", ["run", "learn", "trace"])
    def test_no_program(self, command, name):
        done = command(name)
        assert done.returncode == 2
        assert done.stderr.startswith(f"usage: fastaudit-rs {name} ")
        assert "name a script, or -m, -c or -" in done.stderr.splitlines()[-1]

    def test_a_target_without_its_value(self, command):
        for option in ("-m", "-c", "-W", "--write"):
            done = command("run", option)
            assert done.returncode == 2
            assert f"{option}: expected one argument" in done.stderr.splitlines()[-1]

    @pytest.mark.slow
    def test_help_is_plain_text(self, command):
        for name in ([], ["run"], ["learn"], ["trace"], ["doctor"], ["completion"]):
            done = command(*name, "--help")
            assert done.returncode == 0
            assert "``" not in done.stdout
        assert "--help" in command("run", "-h").stdout


def test_in_a_terminal(places):
    """The module gets its own options, the terminal and what is typed, also with `-u`."""
    import pty

    Path("own.py").write_text(
        "import sys\nprint(sys.argv[1:], sys.stdin.isatty(), sys.stdout.isatty())\n"
        "print('got', input('name? '))\nraise SystemExit(3)\n"
    )
    for own in ([], ["-u"]):
        process, terminal = pty.fork()
        if process == 0:
            os.execv(sys.executable, [*COMMAND, "run", *own, "-m", "own", "--write", "/srv", "-x"])
        shown = b""
        ends = time.monotonic() + 60
        while b"name? " not in shown and time.monotonic() < ends:
            select.select([terminal], [], [], 1)
            shown += os.read(terminal, 1000)
        os.write(terminal, b"me\n")
        while time.monotonic() < ends:
            try:
                more = os.read(terminal, 1000)
            except OSError:
                break
            shown += more
            if not more:
                break
        _, status = os.waitpid(process, 0)
        os.close(terminal)
        assert b"['--write', '/srv', '-x'] True True" in shown
        assert b"got me" in shown
        assert os.waitstatus_to_exitcode(status) == 3
