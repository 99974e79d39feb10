"""`fastaudit-rs run --sandbox`: the same program in a process that the kernel confines."""

import os
import sys
from pathlib import Path

import programs
import pytest

COMMAND = [sys.executable, "-m", "fastaudit_rs", "run"]


@pytest.fixture
def command(places):
    def run(*arguments, stdin="", sandbox=True):
        options = ["--sandbox"] if sandbox else []
        return programs.run([*COMMAND, *options, *arguments], input=stdin)

    return run


class TestThere:
    @pytest.fixture(autouse=True)
    def sandboxes(self, make_sandbox):
        pytest.importorskip("sandlock")

    @pytest.mark.slow
    def test_programs_are_the_same_there(self, command, places):
        show = (
            "import os, sys\nprint(sys.argv, __name__, os.getcwd(), input(), file=sys.stdout)\n"
            "print('error', file=sys.stderr)\nraise SystemExit(5)\n"
        )
        Path("own.py").write_text("import beside\n" + show)
        Path("beside.py").write_text("")
        for target in (["own.py"], ["-m", "own"], ["-c", show]):
            ran = [
                command(*target, "-x", "--write", stdin="typed\n", sandbox=sandbox)
                for sandbox in (True, False)
            ]
            assert [(done.returncode, done.stderr) for done in ran] == [(5, "error\n")] * 2
            assert ran[0].stdout == ran[1].stdout
        assert command("-", "a", stdin="import sys; print(sys.argv)").stdout == "['-', 'a']\n"

    @pytest.mark.slow
    def test_options_hold_there(self, command, places):
        code = f"open({places.out!r} + '/a', 'w').close(); print('passes')"
        done = command("-c", code)
        assert done.returncode == 77
        # The kernel holds no rule for a file that is not there.
        assert f"To allow it: --write {places.out}\n" in done.stderr
        assert os.listdir(places.out) == []
        assert command("--write", places.out, "-c", code).stdout == "passes\n"
        assert os.listdir(places.out) == ["a"]

    @pytest.mark.slow
    def test_what_it_reads(self, command, places):
        """The directory of its modules, and what `--read` names."""
        Path("beside").write_text("own")
        Path(places.out, "secret").write_text("SECRET")
        assert command("-c", "print(open('beside').read())").stdout == "own\n"
        code = f"print(open({places.out!r} + '/secret').read())"
        done = command("-c", code)
        assert done.returncode == 77
        assert f"To allow it: --read {places.out}/secret\n" in done.stderr
        for named in (places.out, "any"):
            assert command("--read", named, "-c", code).stdout == "SECRET\n"

    @pytest.mark.slow
    def test_the_current_directory_of_a_policy(self, command, places):
        """It is the one where the program begins, as without a sandbox."""
        Path("policy.toml").write_text('write = ["."]')
        assert command("--policy", "policy.toml", "-c", "open('a', 'w')").returncode == 0
        assert Path("a").exists()

    @pytest.mark.slow
    def test_tracebacks_are_those_of_the_program(self, command):
        done = command("-c", "def f():\n    1 / 0\nf()")
        assert done.returncode == 1
        assert "programs.py" not in done.stderr and "sandbox" not in done.stderr

    @pytest.mark.slow
    def test_what_was_swallowed(self, command):
        done = command("-c", "try:\n    open('/srv/a', 'w')\nexcept OSError:\n    pass")
        assert done.returncode == 0
        assert done.stderr.startswith("fastaudit-rs: denied: open /srv/a")
        assert done.stderr.endswith("to allow it: --write /srv\n")

    @pytest.mark.slow
    def test_limits(self, command):
        done = command("--timeout", "2", "-c", "print('began', flush=True)\nwhile True: pass")
        assert (done.returncode, done.stdout) == (124, "began\n")
        assert done.stderr == "fastaudit-rs: ended after 2 s (--timeout)\n"
        done = command("--memory", "300M", "-c", "x = 'x' * 10**9")
        assert done.returncode == 137
        assert done.stderr == "fastaudit-rs: ended by the limit on memory\n"

    def test_streams_that_lack_a_character(self, command, monkeypatch):
        """As those of a service or of cron."""
        monkeypatch.setenv("PYTHONIOENCODING", "ascii:strict")
        code = "import sys; print('ä'); print('ö', file=sys.stderr); raise SystemExit(3)"
        done = command("-c", code)
        assert (done.returncode, done.stdout, done.stderr) == (3, "\\xe4\n", "\\xf6\n")

    def test_a_script_that_is_not_there(self, command):
        done = command("missing.py")
        assert done.returncode == 2
        assert "missing.py" in done.stderr and "Traceback" not in done.stderr


def test_what_does_not_reach_into_it(command, places):
    done = command("-O", "-c", "print('ran')")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("-u, -O, -W and -X do not reach into a sandbox\n")
    done = command("--tmp", places.out, "-c", "print('ran')")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--tmp: a sandbox has a directory of its own" in done.stderr


def test_where_there_are_no_sandboxes(places):
    code = (
        "import sys; sys.modules['sandlock'] = None\n"
        "from fastaudit_rs.tools.cli import main; sys.exit(main())"
    )
    done = programs.ran(code, "run", "--sandbox", "-c", "print('ran')", input="")
    assert (done.returncode, done.stdout) == (2, "")
    assert "sandlock" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["run", "--sandbox", "-c", "1"], ["serve", "--http", "0"]])
def test_a_place_that_is_not_there(places, words):
    """The kernel opens what is there."""
    command, *rest = words
    missing = f"{places.ok}/missing"
    done = programs.run([sys.executable, "-m", "fastaudit_rs", command, "--write", missing, *rest])
    assert done.returncode == 2
    told = "there is no such file or directory; make it first"
    assert done.stderr == f"fastaudit-rs: --write {missing}: {told}\n"
