"""`Sandbox`: code in a process of its own, judged from outside of it."""

import os
import textwrap

import promises
import pytest
from sandboxes import LOOSE, gone, of, running, until

from fastaudit_rs import Limits, Policy, Sandbox
from fastaudit_rs.sandbox.host import cgroup


class TestRunning:
    def test_a_program(self, make_sandbox):
        ran = make_sandbox().run(
            "import sys\nprint(sys.argv, __name__, input())\nprint('no', file=sys.stderr)",
            args=["a", "-b"],
            stdin="given\n",
        )
        assert (ran.returncode, ran.success) == (0, True)
        assert ran.stdout == "['<sandbox>', 'a', '-b'] __main__ given\n"
        assert ran.stderr == "no\n"
        assert (ran.killed_by, ran.timed_out, ran.violations, ran.value) == (None, False, [], None)
        assert ran.confined and 0 < ran.duration < 20

    def test_a_file(self, make_sandbox, tmp_path):
        (tmp_path / "script.py").write_text("print(__file__)")
        ran = make_sandbox().run(tmp_path / "script.py")
        assert ran.stdout == f"{tmp_path}/script.py\n"
        with pytest.raises(FileNotFoundError):
            make_sandbox().run(tmp_path / "none.py")

    def test_a_file_with_a_byte_order_mark(self, make_sandbox, tmp_path):
        sandbox = make_sandbox()
        for place in (tmp_path, sandbox.directory):
            (place / "code.py").write_text("print(6 * 7)", encoding="utf-8-sig")
            assert sandbox.run(place / "code.py").stdout == "42\n"

    def test_a_file_that_is_not_utf_8(self, make_sandbox, tmp_path):
        file = tmp_path / "code.py"
        file.write_bytes(b"# coding: latin-1\nprint('\xe9')")
        with pytest.raises(ValueError, match=r"'.*code.py' must be UTF-8: write path.read_text\("):
            make_sandbox().run(file)

    def test_children_that_have_ended_are_waited_for(self, make_sandbox):
        """A sandbox hides a process from the moment that it ends."""
        code = """
            import os
            for status in range(1, 41):
                if os.fork() == 0:
                    os._exit(status)
                if status % 2 == 0:
                    found = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2)]
                    assert sorted(found) == [status - 1, status], found
        """
        ran = make_sandbox().run(textwrap.dedent(code))
        assert (ran.returncode, ran.stderr) == (0, "")

    def test_much_input_that_nobody_reads(self, make_sandbox):
        assert make_sandbox().run("print(1)", stdin="x" * 1_000_000).stdout == "1\n"
        ran = make_sandbox().run("import sys; print(len(sys.stdin.read()))", stdin="x" * 1_000_000)
        assert ran.stdout == "1000000\n"


class TestPolicy:
    @pytest.mark.holds("guard", promises.WRITE)
    def test_a_denial(self, make_sandbox, tmp_path):
        ran = make_sandbox(Policy()).run(f"open({str(tmp_path / 'a')!r}, 'w')")
        assert ran.returncode == 77
        [denied] = ran.violations
        assert (denied.event, denied.path, denied.rule) == ("open", str(tmp_path / "a"), "write")
        assert "To allow it: write = " in ran.stderr
        assert list(tmp_path.iterdir()) == []

    def test_what_was_swallowed(self, make_sandbox):
        code = """
            import os
            for command in ("ls", "true"):
                try:
                    os.system(command)
                except OSError:
                    print("no")
        """
        ran = make_sandbox(Policy()).run(textwrap.dedent(code))
        assert ran.success and ran.stdout == "no\nno\n"
        assert [denied.event for denied in ran.violations] == ["os.system"] * 2

    @pytest.mark.holds("kernel", promises.WRITE)
    def test_behind_it_the_kernel(self, make_sandbox, tmp_path):
        """The acts of programs that the policy lets start."""
        sandbox = make_sandbox(LOOSE.replace(network=False, block=["/etc/passwd"]))
        code = f"""
            import subprocess, sys
            for command in ("echo x > {tmp_path}/a", "cat /etc/passwd", "echo x > inside"):
                print(subprocess.run(["sh", "-c", command], capture_output=True).returncode == 0)
            connect = "import socket; socket.create_connection(('127.0.0.1', 1))"
            done = subprocess.run([sys.executable, "-c", connect], capture_output=True, text=True)
            print("PermissionError" in done.stderr)
        """
        assert sandbox.run(textwrap.dedent(code)).stdout == "False\nFalse\nTrue\nTrue\n"
        assert list(tmp_path.iterdir()) == []
        assert sandbox.list_files() == ["inside"]

    @pytest.mark.holds("kernel", promises.READ)
    @pytest.mark.parametrize("commands", [True, ["cat"]])
    def test_programs_where_reading_is_restricted(self, make_sandbox, tmp_path, commands):
        """Programs that the policy lets start, the kernel lets be read."""
        (tmp_path / "secret").write_text("x")
        sandbox = make_sandbox(LOOSE.replace(read=[], commands=commands))
        sandbox.write_file("own", "mine")
        code = f"""
            import subprocess
            for name in ("own", "{tmp_path}/secret"):
                print(subprocess.run(["cat", name], capture_output=True).stdout)
        """
        ran = sandbox.run(textwrap.dedent(code))
        assert ran.stdout == "b'mine'\nb''\n", ran

    def test_places_are_those_of_the_host(self, make_sandbox, monkeypatch, tmp_path):
        """Where the sandbox is made: it has another home, and another current directory."""
        for name in ("home", "here"):
            (tmp_path / name / "out").mkdir(parents=True)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.chdir(tmp_path / "here")
        sandbox = make_sandbox(LOOSE.replace(write=["~/out", "out"]))
        monkeypatch.chdir(tmp_path)
        code = f"""
            import subprocess
            for place in ("home", "here"):
                open(f"{tmp_path}/{{place}}/out/a", "w").close()
                subprocess.run(["sh", "-c", f"echo x > {tmp_path}/{{place}}/out/b"], check=True)
            open("{tmp_path}/here/a", "w")
        """
        ran = sandbox.run(textwrap.dedent(code))
        assert [denied.path for denied in ran.violations] == [f"{tmp_path}/here/a"], ran
        for name in ("home", "here"):
            assert sorted(os.listdir(tmp_path / name / "out")) == ["a", "b"]

    @pytest.mark.slow
    def test_the_environment(self, make_sandbox, monkeypatch):
        monkeypatch.setenv("API_KEY", "secret")
        monkeypatch.setenv("MODE", "fast")
        shown = "import os, json; print(sorted(set(os.environ) - {'LANG', 'LANGUAGE', 'TZ'}))"
        plain = ["HOME", "PATH", "PYTHONDONTWRITEBYTECODE", "TMPDIR"]
        ran = make_sandbox().run(f"{shown}\nprint(os.environ['HOME'] == os.getcwd())")
        found = [name for name in eval(ran.stdout.splitlines()[0]) if not name.startswith("LC_")]
        assert (found, ran.stdout.splitlines()[1]) == (plain, "True")
        with Sandbox(LOOSE, env=["MODE", "NONE"]) as sandbox:
            assert "'MODE'" in sandbox.run(shown).stdout
        with Sandbox(LOOSE, env={"API_KEY": "given"}) as sandbox:
            assert sandbox.run("import os; print(os.environ['API_KEY'])").stdout == "given\n"


MEMORY = pytest.mark.holds("kernel", promises.MEMORY)
WALL = pytest.mark.holds("host", promises.WALL)
CPU = pytest.mark.holds("kernel", promises.CPU)
OUTPUT = pytest.mark.holds("host", promises.OUTPUT)
DISK = pytest.mark.holds("host", promises.DISK)

SLEEP = "import time; time.sleep(60)"
IGNORING = "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
PRINTING = "import sys\nwhile True: sys.std{}.write('x' * 100_000)"
WRITING = "file = open('big', 'wb')\nwhile True: file.write(bytes(10**6))"


class TestLimits:
    @pytest.mark.parametrize(
        ("limit", "to", "code"),
        [
            pytest.param("memory", "200M", code, marks=[MEMORY, pytest.mark.slow])
            for code in ("x = b'x' * (500 << 20)", "x = []\nwhile True: x.append(bytearray(10**6))")
        ]
        + [
            pytest.param("wall_seconds", 0.5, SLEEP, marks=[WALL, pytest.mark.slow]),
            pytest.param("cpu_seconds", 1, "while True: pass", marks=[CPU, pytest.mark.slow]),
            pytest.param("cpu_seconds", 1, IGNORING, marks=pytest.mark.slow),
            pytest.param("output", "1M", PRINTING.format("out"), marks=OUTPUT),
            pytest.param("output", "1M", PRINTING.format("err"), marks=OUTPUT),
            pytest.param("disk", "20M", WRITING, marks=DISK),
        ],
    )
    def test_what_ends_a_run(self, make_sandbox, limit, to, code):
        sandbox = make_sandbox(**{limit: to})
        ran = sandbox.run(code)
        if not cgroup.are_there() and "MemoryError" in ran.stderr:
            # Without a control group a process meets its own limit.
            return
        assert (ran.killed_by, ran.success) == (limit, False), ran
        assert limit != "memory" or ran.returncode == -9
        assert limit != "output" or 1 << 20 in (len(ran.stdout), len(ran.stderr))
        assert ran.timed_out is (limit == "wall_seconds")
        # The wall time of others depends on what else the machine does.
        assert not ran.timed_out or (ran.duration < 1.5 and gone(of(sandbox)))

    @pytest.mark.slow
    @pytest.mark.holds("kernel", promises.SHARE)
    def test_cpu_percent(self, make_sandbox):
        """The time that a computation takes shows the share of the processor."""
        code = "import time; begun = time.monotonic()\nwhile time.process_time() < 0.4: pass\n"
        ran = make_sandbox(cpu_percent=20).run(f"{code}time.monotonic() - begun", value=True)
        assert ran.value > 1

    @pytest.mark.holds("kernel", promises.OPEN_FILES)
    def test_open_files(self, make_sandbox):
        code = "files = []\nwhile True: files.append(open('/dev/null'))"
        assert "Too many open files" in make_sandbox(open_files=32).run(code).stderr

    @pytest.mark.holds("kernel", promises.PROCESSES)
    def test_processes(self, make_sandbox):
        code = """
            import os, time
            started = 0
            try:
                while True:
                    if os.fork() == 0:
                        time.sleep(60)
                    started += 1
            except OSError as error:
                print(started, error.errno)
        """
        sandbox = make_sandbox(LOOSE, processes=12)
        ran = sandbox.run(textwrap.dedent(code))
        assert ran.stdout.split()[0] == "11", ran
        # What waits for work, and the child for the next run.
        assert len(running(of(sandbox))) <= 2
        assert until(lambda: len(running(of(sandbox))) == 2)

    @pytest.mark.parametrize(
        ("limits", "error", "says"),
        [
            ({"memory": "much"}, ValueError, "memory"),
            ({"memory": 1.5}, TypeError, "memory must be an int or a str, not float"),
            ({"output": 0}, ValueError, "output must be positive"),
            ({"disk": -1}, ValueError, "disk must be"),
            ({"wall_seconds": "1"}, TypeError, "wall_seconds must be a number of seconds, not str"),
            ({"wall_seconds": 0}, ValueError, "wall_seconds must be positive, not 0"),
            ({"processes": 1.5}, TypeError, "processes must be a whole number, not float"),
            ({"open_files": True}, TypeError, "open_files must be a whole number, not bool"),
            ({"cpu_percent": 101}, ValueError, "cpu_percent must be at most 100"),
            ({"memory": "10"}, ValueError, "memory must be at least 16777216, not 10"),
            ({"open_files": 5}, ValueError, "open_files must be at least 16, not 5"),
            ({"processes": 2**32}, ValueError, "at most 4194304, not 4294967296: None is no limit"),
            ({"open_files": 2**40}, ValueError, "open_files must be at most 4194304"),
            ({"cpu_seconds": 2**62}, ValueError, "cpu_seconds must be at most 1073741824"),
            ({"memory": 2**62}, ValueError, "memory must be at most 1125899906842624"),
        ],
    )
    def test_bad_limits(self, limits, error, says):
        with pytest.raises(error, match=says):
            Limits(**limits)

    def test_sizes(self):
        limits = Limits(memory="20M", disk=5, output=None)
        assert (limits.memory, limits.disk, limits.output) == (20 << 20, 5, None)


class TestDirectory:
    def test_files(self, make_sandbox):
        sandbox = make_sandbox()
        sandbox.write_file("data/in.txt", "given")
        ran = sandbox.run("open('out.bin', 'wb').write(open('data/in.txt', 'rb').read()[::-1])")
        assert ran.success
        assert sandbox.list_files() == ["data/in.txt", "out.bin"]
        assert sandbox.read_file("out.bin") == b"nevig"

    def test_what_changed(self, make_sandbox):
        sandbox = make_sandbox()
        for name in ("kept", "data/changed", "removed", "replaced"):
            sandbox.write_file(name, "x")
        code = """
            import os
            open("kept").read()
            open("data/changed", "w").write("y")
            os.remove("removed")
            open("made", "w").close()
            open("new", "w").close()
            os.replace("new", "replaced")
        """
        ran = sandbox.run(textwrap.dedent(code))
        assert ran.changed == ["data/changed", "made", "removed", "replaced"], ran
        assert sandbox.run("1").changed == []

    def test_it_is_removed(self, tmp_path):
        with Sandbox(Policy()) as sandbox:
            directory = sandbox.directory
            assert directory.is_dir()
        acts = [lambda: sandbox.run("1"), lambda: sandbox.pool(1), sandbox.list_files]
        acts += [lambda: sandbox.write_file("a", "x"), lambda: sandbox.read_file("a")]
        for act in acts:
            with pytest.raises(RuntimeError, match="the sandbox is closed"):
                act()
        assert not directory.parent.exists()
        forgotten = Sandbox(Policy()).directory
        assert not forgotten.exists()
