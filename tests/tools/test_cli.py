"""The command `fastaudit-rs`, in processes of its own."""

import json
import os
import py_compile
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import zipapp
from importlib.util import find_spec
from pathlib import Path

import programs
import pytest
from repository import ROOT
from users import USERS, run_as

from fastaudit_rs import Policy, _landlock
from fastaudit_rs.tools import doctor

PAGE = ROOT / "docs" / "shell.md"
COMMAND = [sys.executable, "-m", "fastaudit_rs"]


@pytest.fixture
def script(tmp_path):
    """`script(code)`: the path of a script."""

    def write(code):
        path = tmp_path / "scripts" / "script.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("import os, sys\n" + code)
        return str(path)

    return write


def test_it_is_installed():
    installed = Path(sysconfig.get_path("scripts"), "fastaudit-rs")
    done = programs.run([installed, "--version"])
    assert done.stdout.startswith("fastaudit-rs 0.")


def test_it_begins_with_little():
    """A program starts no later than it must: these take longer than the rest of it."""
    large = ["asyncio", "socket", "rich", "mcp", "inspect", "dataclasses", "tempfile", "shutil"]
    code = f"import sys\nprint({{*{large}, 'json', 'pathlib', 'traceback'}} & {{*sys.modules}})"
    done = programs.run([*COMMAND, "run", "-c", code])
    # What the interpreter itself imported, before 3.11 and for virtual environments, is not told.
    own = programs.ran(code).stdout
    # CPython 3.14.10's `argparse` imports two for its colours.
    parsed = programs.ran(f"import argparse\nargparse.ArgumentParser()\n{code}").stdout
    by_argparse = {"inspect", "dataclasses"} & eval(parsed)
    assert eval(done.stdout) - by_argparse == eval(own) - by_argparse


class TestPrograms:
    def test_a_script(self, command, script):
        path = script(
            "print(sys.argv, __name__, __file__, sys.path[0])\n"
            "print(sys.modules['__main__'].os is os, 'argparse' in globals())"
        )
        done = command("run", path, "a", "--write", "-h")
        directory = os.path.realpath(os.path.dirname(path))
        assert done.stdout.splitlines() == [
            f"{[path, 'a', '--write', '-h']} __main__ {path} {directory}",
            "True False",
        ]
        assert (done.returncode, done.stderr) == (0, "")

    def test_code_and_standard_input(self, command):
        code = "import sys; print(sys.argv, __name__)"
        assert command("run", "-c", code, "a", "-b").stdout == "['-c', 'a', '-b'] __main__\n"
        assert command("run", "-", "a", stdin=code).stdout == "['-', 'a'] __main__\n"

    def test_a_module(self, command, places):
        Path(places.cwd, "own.py").write_text("import sys; print(sys.argv[1:], __name__)")
        assert command("run", "-m", "own", "a", "-c").stdout == "['a', '-c'] __main__\n"
        done = command("run", "-m", "asyncio", stdin="await asyncio.sleep(0, 4321)\n")
        assert ("4321" in done.stdout, done.returncode) == (True, 0), done.stderr
        assert command("run", "-m", "json.tool", stdin="[1]").stdout.split() == ["[", "1", "]"]

    @pytest.mark.slow
    def test_exit_statuses(self, command):
        for code, status, printed in [
            ("pass", 0, ""),
            ("raise SystemExit", 0, ""),
            ("raise SystemExit(3)", 3, ""),
            ("raise SystemExit('why')", 1, "why\n"),
        ]:
            for name in ("run", "learn", "trace"):
                done = command(name, "-c", code)
                assert done.returncode == status
                assert done.stderr.startswith(printed) and (
                    done.stderr == printed or name == "trace"
                )

    def test_errors_are_those_of_the_program(self, command, script):
        done = command("run", script("def f():\n    1 / 0\nf()"))
        assert done.returncode == 1
        first, *frames, last = done.stderr.splitlines()
        assert first == "Traceback (most recent call last):"
        assert last == "ZeroDivisionError: division by zero"
        assert "cli.py" not in done.stderr
        assert "script.py" in frames[0]
        done = command("run", "-m", "no_such_module")
        assert done.returncode == 1
        assert "No module named no_such_module" in done.stderr.splitlines()[-1]

    def test_a_syntax_error(self, command):
        done = command("run", "-c", "1 +")
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith("SyntaxError")

    def test_interrupts(self, command):
        done = command("run", "-c", "raise KeyboardInterrupt")
        assert done.returncode == -signal.SIGINT
        assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"
        assert "fastaudit" not in done.stderr and "runpy" not in done.stderr

    def test_a_directory(self, command, places):
        os.mkdir("app")
        Path("app/__main__.py").write_text("import sys, own; print(sys.argv[1:], own.X)")
        Path("app/own.py").write_text("X = 1")
        assert command("run", "app", "a").stdout == "['a'] 1\n"

    @pytest.mark.parametrize("name", ["app", "app.pyz"])
    def test_modules_of_a_directory_or_archive_from_another_directory(self, command, places, name):
        os.mkdir("app")
        Path("app/__main__.py").write_text("import os; os.chdir('/'); import own, colorsys")
        Path("app/own.py").touch()
        Path("colorsys.py").write_text("print('beside it')")
        zipapp.create_archive("app", "app.pyz")
        done = command("run", name)
        assert (done.stdout, done.stderr) == ("", "")

    def test_lines_of_a_script_that_changes_the_directory(self, command, places):
        os.mkdir("in")
        Path("in/own.py").write_text("import os\nos.chdir('/')\n1 / 0")
        assert "    1 / 0\n" in command("run", "in/own.py").stderr

    @pytest.mark.skipif(sys.version_info < (3, 13), reason="Python has no colours there")
    def test_colours_of_a_terminal(self, command):
        code = "import os; os.environ['FORCE_COLOR'] = '1'; 1 / 0"
        assert "\x1b[35mdivision by zero" in command("run", "-c", code).stderr

    def test_hooks_for_exceptions_of_the_program(self, command):
        code = "import sys\nsys.excepthook = lambda *e: print('told', e[0].__name__)\n1/0"
        done = command("run", "-c", code)
        assert (done.returncode, done.stdout) == (1, "told ZeroDivisionError\n")
        code = "import os, sys\nsys.excepthook = lambda *e: os.mkdir('a')\n1/0"
        assert command("run", "-c", code).returncode == 1
        assert os.listdir() == []

    @pytest.mark.parametrize(
        "arguments, error",
        [
            (["run", "missing.py"], "No such file or directory: 'missing.py'"),
            (["run", "--policy", "missing.toml", "-c", "1"], "missing.toml"),
            (["run", "--net", "a:b", "-c", "1"], "a:b"),
            (["run", "--memory", "20M", "-c", "1"], "--memory is too small: a program needs "),
            (["run", "--write", "a,b", "-c", "1"], "write --write a --write b"),
            (["learnt", "a.py"], "there is no command 'learnt' (did you mean learn?)"),
            ([], "required"),
        ],
    )
    def test_wrong_arguments(self, command, arguments, error):
        done = command(*arguments)
        assert done.returncode == 2
        assert error in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("kind", ["archive", "compiled"])
    def test_no_source(self, command, tmp_path, kind):
        (tmp_path / "app").mkdir()
        (tmp_path / "app" / "__main__.py").write_text("import sys; print(__name__, sys.argv[1:])")
        file = tmp_path / "app.pyz"
        if kind == "archive":
            zipapp.create_archive(tmp_path / "app", file, "/usr/bin/env python3")
        else:
            py_compile.compile(str(tmp_path / "app" / "__main__.py"), str(file))
        done = command("run", str(file), "a")
        assert (done.stdout, done.stderr) == ("__main__ ['a']\n", "")

    def test_a_denial_in_a_module_has_no_place_of_the_command(self, command):
        done = command("run", "-m", "platform")
        assert "fastaudit-rs: denied: subprocess.Popen uname -p; to allow it: --run uname" in (
            done.stderr.replace("/usr/bin/", "")
        )


class TestPermissions:
    def test_what_is_wrong_is_told(self, command, tmp_path):
        done = command("run", "--write", "", "-c", "pass")
        assert done.stderr == "fastaudit-rs: --write takes a directory, not an empty text\n"
        done = command("run", "--policy", "a.toml", "--policy", "b.toml", "-c", "pass")
        assert done.stderr.endswith("error: --policy may be given once\n")

    def test_nothing_is_written_by_default(self, command):
        done = command("run", "-c", "open('a', 'w')")
        assert done.returncode == 77
        reason = "open the file 'a' for writing: nothing may be written"
        assert f"fastaudit_rs.AuditDenied: Denied: {reason}" in done.stderr
        assert "cli.py" not in done.stderr
        assert os.listdir() == []

    def test_a_program_may_read_itself(self, command, script, tmp_path):
        """As each process of a pool does that is spawned."""
        program = script(
            "import multiprocessing\nif __name__ == '__main__':\n"
            "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
            "        print(pool.map(abs, [-1]))\n    os.listdir('/srv')"
        )
        (tmp_path / "other").mkdir()
        done = command("run", "--read", str(tmp_path / "other"), program)
        assert done.stdout == "[1]\n"
        assert "To allow it: --read /srv\n" in done.stderr


class TestLearning:
    def test_it_writes_where_it_was_started(self, command, places):
        done = command("learn", "-o", "p.toml", "-c", f"import os; os.chdir({places.out!r})")
        assert (done.returncode, done.stderr) == (0, "")
        assert os.listdir() == ["p.toml"] and os.listdir(places.out) == []
        # Changing the directory writes nothing.
        assert Policy.from_toml("p.toml").write == ()

    def test_a_wrong_place_is_told_before_the_program_runs(self, command):
        done = command("learn", "-o", "/none/such", "-c", "open('a', 'w')")
        assert done.returncode == 2 and "Traceback" not in done.stderr
        assert os.listdir() == []

    def test_what_the_program_prints_is_kept_apart(self, command):
        code = "import os; print('own'); os.system('echo of a child'); open('a', 'w')"
        done = command("learn", "-c", code)
        assert Policy.parse_toml(done.stdout).write == (os.path.abspath("a"),)
        assert sorted(done.stderr.splitlines()) == ["of a child", "own"]

    def test_a_program_that_fails(self, command):
        done = command("learn", "-c", "open('a', 'w'); 1 / 0; open('b', 'w')")
        assert done.returncode == 1
        told = "# Perhaps not all of it: the program ended with the status 1."
        assert done.stdout.splitlines()[0] == told
        assert Policy.parse_toml(done.stdout).write == (os.path.abspath("a"),)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_program_that_is_ended(self, command, number):
        """As Ctrl-C and a supervisor do."""
        code = f"import os, time; open('a', 'w'); os.kill(os.getpid(), {number}); time.sleep(60)"
        done = command("learn", "-o", "p.toml", "-c", code)
        assert (done.returncode, done.stderr) == (128 + number, "")
        assert f"ended with the status {128 + number}." in Path("p.toml").read_text()
        assert Policy.from_toml("p.toml").write == (os.path.abspath("a"),)

    def test_a_copy_that_the_program_ends(self, command):
        """Signals end it as they do without the command."""
        code = (
            "import os, time\nread, write = os.pipe()\nchild = os.fork()\n"
            "if not child: os.write(write, b'x'); time.sleep(60)\n"
            "os.read(read, 1); os.kill(child, 15); print(os.wait()[1])"
        )
        assert command("learn", "-o", "p.toml", "-c", code).stdout == "15\n"

    def test_its_file_is_made_at_the_end(self, command):
        """An empty one would be a policy that allows more."""
        done = command("learn", "-o", "p.toml", "-c", "import os; os._exit(3)")
        assert (done.returncode, os.listdir()) == (3, [])

    @pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
    def test_workers(self, command, method):
        # The test's name is in the path of the server's socket, which holds 107 bytes.
        Path("pools.py").write_text(f"""
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context({method!r}).Pool(1) as pool:
        pool.map(abs, [1])
""")
        done = command("learn", "pools.py")
        told = "# Without what other processes did that the program made of itself."
        assert (done.stdout.splitlines()[0], done.returncode) == (told, 0), done.stderr
        learnt = Policy.parse_toml(done.stdout)
        # Workers are guarded: no Python without a guard is needed.
        assert (learnt.commands, learnt.threads) == (False, "inherit")
        Path("learnt.toml").write_text(done.stdout)
        assert command("run", "--policy", "learnt.toml", "pools.py").returncode == 0
        assert "# Without" not in command("learn", "-c", "import os; os.system('true')").stdout


class TestHints:
    """What is written after `To allow it` allows it."""

    @pytest.mark.parametrize(
        ("code", "hint"),
        [
            ("import os; os.environ['PATH'] = '/x'; os.environ['A'] = 'b'", "--env PATH"),
            (
                "import subprocess, sys; subprocess.run([sys.executable, '-c', '1'])",
                "--run python",
            ),
            (
                "import http.server; http.server.HTTPServer(('127.0.0.1', 0), None)",
                "--listen 127.0.0.1:0",
            ),
        ],
    )
    def test_in_one_round(self, command, code, hint):
        done = command("run", "-c", code)
        assert f"\nTo allow it: {hint}\n" in done.stderr
        done = command("run", *hint.split(), "-c", code)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_the_page(places):
    """The page docs/shell.md shows what is printed."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(blocks), re.MULTILINE)
    assert len(steps) > 5
    _, program = steps[0]
    Path("notes.py").write_text(program)
    path = sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"]

    def without_times(text):
        return re.sub(r"^ +(at) |^ *[\d.]+ (ms) ", r"\1\2", text, flags=re.MULTILINE)

    for line, expected in steps:
        done = programs.run(["bash", "-c", line], env={**os.environ, "PATH": path})
        assert done.stderr == "", line
        shown = done.stdout.replace(places.cwd, "/project")
        assert without_times(shown) == without_times(expected), line


class TestDoctor:
    @pytest.mark.slow
    def test_it_works_here(self, command):
        done = command("doctor")
        assert (done.returncode, done.stderr) == (0, "")
        found = {line[4:23].strip(): (line[:2], line[23:]) for line in done.stdout.splitlines()}
        assert found["writing elsewhere"] == ("ok", "is stopped")
        assert found["pytest"] == ("ok", "guards in tests")
        assert found["seccomp"][1].endswith("sandboxes")
        assert found["Landlock"][1].endswith("policy.call and sandboxes")
        assert found["native acts"] == ("ok", "judged")
        assert found["native calls"][0] == "ok"
        assert found["native calls"][1].startswith("watched")

    @pytest.mark.skipif(find_spec("sandlock") is None, reason="no sandlock")
    @pytest.mark.parametrize("user", USERS)
    def test_the_kernel_part_of_a_sandbox(self, user):
        """It says what it is, for this user, judged by other means."""
        code = """
import json, subprocess, sys
from fastaudit_rs import Sandbox
from fastaudit_rs.tools import doctor
may = subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0
with Sandbox() as sandbox:
    held = sandbox.explain()
told = {"memory": held["memory"], "cpu": held["cpu_percent"]}
print(json.dumps([may, told, [vars(found) for found in doctor.findings()]]))
"""
        may, told, findings = json.loads(run_as(user, code))
        found = {each["about"]: (each["state"], each["text"]) for each in findings}
        assert found["sandbox: filter"][0] == found["sandbox: rights"][0] == "ok"
        network = "an empty network of its own" if may else "no more: CAP_SYS_ADMIN is missing"
        assert found["sandbox: network"] == (
            "ok" if may else "lacking",
            f"with network=False: the filter, and {network}",
        )
        for name, ring in told.items():
            is_counted = ring == "kernel"
            words = "control group: all" if is_counted else "no control group can be made: "
            state, text = found[f"sandbox: {name}"]
            assert (state, text.startswith(words)) == ("ok" if is_counted else "lacking", True)

    @pytest.mark.skipif(find_spec("sandlock") is None, reason="no sandlock")
    def test_a_sandbox_that_does_not_start(self, monkeypatch, capsys):
        monkeypatch.setattr(_landlock, "version", lambda: 0)
        assert doctor.report(sys.stdout) == 0
        shown = capsys.readouterr().out
        assert "--  sandbox            does not work: this system cannot confine a sandbox" in shown

    @pytest.mark.parametrize(
        ("version", "state", "text"),
        [
            (-1, "lacking", "not in this kernel: no policy.call and sandboxes"),
            (
                4,
                "lacking",
                "ABI 4, for sandboxes; policy.call lacks requests for devices (Linux 6.10), "
                "abstract Unix sockets (Linux 6.12)",
            ),
            (6, "ok", "ABI 6, for policy.call and sandboxes"),
        ],
    )
    def test_an_older_landlock(self, monkeypatch, version, state, text):
        monkeypatch.setattr(_landlock, "version", lambda: version)
        found = {finding.about: (finding.state, finding.text) for finding in doctor._kernel()}
        assert found["Landlock"] == (state, text)

    def test_what_is_broken(self, monkeypatch, capsys):
        """A guard that stops nothing is found out."""
        monkeypatch.setattr(doctor, "Policy", lambda **fields: Policy(write=None, commands=True))
        assert doctor.report(sys.stdout) == 1
        shown = capsys.readouterr().out
        assert "NO  writing elsewhere  passes" in shown
        assert "NO  starting programs  passes" in shown
        assert "ok  writing in a root  passes" in shown

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="no sys.monitoring")
    def test_tools_that_watch_already(self, monkeypatch, capsys):
        monkeypatch.setattr(doctor.sys.monitoring, "get_tool", lambda number: f"tool {number}")
        assert doctor.report(sys.stdout) == 1
        assert "NO  native calls       no tool id is free: 0 (tool 0), 1" in capsys.readouterr().out

    def test_what_is_not_installed(self, monkeypatch, capsys):
        monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
        assert doctor.report(sys.stdout) == 0
        assert "--  rich               not installed: no tables" in capsys.readouterr().out


class TestCompletion:
    @pytest.mark.parametrize(
        ("words", "found"),
        [
            (["r"], ["run"]),
            (["run", "--w"], ["--write"]),
            (["run", "--write", "o"], ["out_dir"]),
            (["trace", "--html", "o"], ["out_dir", "other.py"]),
            (["learn", "ot"], ["other.py"]),
            (["completion", "z"], ["zsh"]),
        ],
    )
    def test_bash(self, command, places, words, found):
        if shutil.which("bash") is None:
            pytest.skip("there is no bash here")
        Path("completion.bash").write_text(command("completion", "bash").stdout)
        Path("out_dir").mkdir()
        Path("other.py").touch()
        line = " ".join(["fastaudit-rs", *words])
        code = (
            f"source ./completion.bash; COMP_WORDS=({line}); COMP_CWORD={len(words)}; "
            '_shtab_fastaudit_rs; printf "%s\n" "${COMPREPLY[@]}"'
        )
        done = programs.run(["bash", "-c", code])
        assert (set(done.stdout.split()), done.stderr) == (set(found), "")

    @pytest.mark.parametrize("shell", ["zsh", "fish", "tcsh"])
    def test_others(self, command, shell):
        shown = command("completion", shell).stdout
        assert "fastaudit-rs" in shown and "write" in shown

    def test_an_old_shtab_without_fish(self):
        code = (
            "import shtab, sys; shtab.SUPPORTED_SHELLS = ['bash']\n"
            "from fastaudit_rs.tools.cli import main; sys.exit(main(['completion', 'fish']))"
        )
        done = programs.ran(code)
        assert (done.returncode, done.stdout) == (2, "")
        assert "fish needs a newer shtab: pip install --upgrade shtab" in done.stderr

    def test_without_shtab(self, command):
        code = (
            "import sys; sys.modules['shtab'] = None; sys.argv[1:] = ['completion', 'bash']\n"
            "from fastaudit_rs.tools.cli import main; sys.exit(main())"
        )
        done = programs.ran(code)
        assert done.returncode == 2
        assert done.stderr.startswith("fastaudit-rs: completion needs shtab: pip install")


@pytest.mark.parametrize("words", [["doctor"], ["learn", "-c", "1"], ["completion", "bash"]])
def test_a_reader_that_leaves(words):
    """As `head` does: there is no traceback."""
    with subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (128 + signal.SIGPIPE, "")
