"""`Sandbox`: code in a process of its own, judged from outside of it."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import fastaudit_rs.sandbox
from fastaudit_rs import Limits, Policy, Sandbox, SandboxError

pytest.importorskip("sandlock")

#: What the code may do where only the kernel is to say no.
LOOSE = Policy(native=True, commands=True, network=True, threads="inherit", env=True)


@pytest.fixture
def make():
    """`make(policy, limits)`: a sandbox, closed afterwards."""
    made = []

    def make_one(policy=LOOSE, **limits):
        made.append(Sandbox(policy, Limits(**{"wall_seconds": 20, **limits})))
        return made[-1]

    yield make_one
    for sandbox in made:
        sandbox.close()


def running(mark):
    """The processes whose command has this text."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and int(directory.name) != os.getpid():
            try:
                command = directory.joinpath("cmdline").read_bytes()
                state = directory.joinpath("stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if mark.encode() in command and state != "Z":
                found.append(command)
    return found


def gone(mark, seconds=2.0):
    """Whether no such process is left, at the latest after some time."""
    deadline = time.monotonic() + seconds
    while running(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class TestRunning:
    def test_a_program(self, make):
        ran = make().run(
            "import sys\nprint(sys.argv, __name__, input())\nprint('no', file=sys.stderr)",
            args=["a", "-b"],
            input="given\n",
        )
        assert (ran.returncode, ran.success) == (0, True)
        assert ran.stdout == "['<sandbox>', 'a', '-b'] __main__ given\n"
        assert ran.stderr == "no\n"
        assert (ran.killed_by, ran.timed_out, ran.violations, ran.value) == (None, False, [], None)
        assert ran.confined and 0 < ran.duration < 20

    def test_a_file(self, make, tmp_path):
        (tmp_path / "script.py").write_text("print(__file__)")
        ran = make().run(tmp_path / "script.py")
        assert ran.stdout == f"{tmp_path}/script.py\n"
        with pytest.raises(FileNotFoundError):
            make().run(tmp_path / "none.py")

    @pytest.mark.parametrize(
        ("code", "value"),
        [
            ("x = 2\nx * 21", 42),
            ("{'a': [1, None, True]}", {"a": [1, None, True]}),
            ("object", "<class 'object'>"),
            ("x = 1", None),
            ("", None),
            ("float('nan') != 0", True),
        ],
    )
    def test_the_value(self, make, code, value):
        assert make().run(code, value=True).value == value

    @pytest.mark.parametrize(
        ("code", "status", "says"),
        [
            ("raise SystemExit(3)", 3, ""),
            ("raise SystemExit('why')", 1, "why\n"),
            ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
            ("x =", 1, "SyntaxError: invalid syntax\n"),
            (
                "import subprocess; subprocess.run(['sh', '-c', 'kill -ABRT $PPID'])",
                -signal.SIGABRT,
                "",
            ),
        ],
    )
    def test_how_it_ends(self, make, code, status, says):
        ran = make().run(code)
        assert (ran.returncode, ran.success, ran.killed_by) == (status, False, None)
        assert ran.stderr.endswith(says)
        assert "sandbox_child" not in ran.stderr

    def test_much_input_that_nobody_reads(self, make):
        assert make().run("print(1)", input="x" * 1_000_000).stdout == "1\n"
        ran = make().run("import sys; print(len(sys.stdin.read()))", input="x" * 1_000_000)
        assert ran.stdout == "1000000\n"

    def test_many_in_a_row(self, make):
        sandbox = make()
        for number in range(15):
            assert sandbox.run(f"print({number})", input="x").stdout == f"{number}\n"

    def test_side_by_side(self, make):
        async def main():
            sandboxes = [make() for _ in range(4)]
            runs = [one.arun(f"print({at})") for at, one in enumerate(sandboxes)]
            return [ran.stdout for ran in await asyncio.gather(*runs)]

        assert asyncio.run(main()) == ["0\n", "1\n", "2\n", "3\n"]


class TestPolicy:
    def test_a_denial(self, make, tmp_path):
        ran = make(Policy()).run(f"open({str(tmp_path / 'a')!r}, 'w')")
        assert ran.returncode == 77
        [denied] = ran.violations
        assert (denied.event, denied.path, denied.rule) == ("open", str(tmp_path / "a"), "write")
        assert "To allow it: write = " in ran.stderr
        assert list(tmp_path.iterdir()) == []

    def test_what_was_swallowed(self, make):
        code = """
            import os
            for command in ("ls", "true"):
                try:
                    os.system(command)
                except OSError:
                    print("no")
        """
        ran = make(Policy()).run(textwrap.dedent(code))
        assert ran.success and ran.stdout == "no\nno\n"
        assert [denied.event for denied in ran.violations] == ["os.system"] * 2

    def test_it_cannot_be_ended(self, make, tmp_path):
        code = f"""
            import contextvars, gc, sys
            for variable in contextvars.copy_context():
                variable.set(None)
            contextvars.Context().run(open, {str(tmp_path / "a")!r}, "w")
        """
        assert make(Policy()).run(textwrap.dedent(code)).returncode == 77
        assert list(tmp_path.iterdir()) == []

    def test_behind_it_the_kernel(self, make, tmp_path):
        """What programs do that the policy lets start."""
        sandbox = make(LOOSE.replace(network=False, block=["/etc/passwd"]))
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

    def test_reading(self, make, tmp_path):
        (tmp_path / "secret").write_text("x")
        sandbox = make(LOOSE.replace(read=["/usr/bin", "/bin"]))
        code = f"""
            import subprocess
            done = subprocess.run(["cat", "{tmp_path}/secret"], capture_output=True)
            print(done.stdout, done.returncode != 0)
        """
        ran = sandbox.run(textwrap.dedent(code))
        assert ran.stdout == "b'' True\n", ran

    def test_places_are_those_of_the_host(self, make, monkeypatch, tmp_path):
        """Where the sandbox is made: it has another home, and another current directory."""
        for name in ("home", "here"):
            (tmp_path / name / "out").mkdir(parents=True)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.chdir(tmp_path / "here")
        sandbox = make(LOOSE.replace(write=["~/out", "out"]))
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

    def test_the_environment(self, make, monkeypatch):
        monkeypatch.setenv("API_KEY", "secret")
        monkeypatch.setenv("MODE", "fast")
        shown = "import os, json; print(sorted(set(os.environ) - {'LANG', 'LANGUAGE', 'TZ'}))"
        plain = ["HOME", "PATH", "TMPDIR"]
        ran = make().run(f"{shown}\nprint(os.environ['HOME'] == os.getcwd())")
        found = [name for name in eval(ran.stdout.splitlines()[0]) if not name.startswith("LC_")]
        assert (found, ran.stdout.splitlines()[1]) == (plain, "True")
        with Sandbox(LOOSE, env=["MODE", "NONE"]) as sandbox:
            assert "'MODE'" in sandbox.run(shown).stdout
        with Sandbox(LOOSE, env={"API_KEY": "given"}) as sandbox:
            assert sandbox.run("import os; print(os.environ['API_KEY'])").stdout == "given\n"

    def test_the_environment_of_the_host_cannot_be_read(self, make, monkeypatch):
        code = """
            import subprocess
            done = subprocess.run(["sh", "-c", f"cat /proc/{HOST}/environ"], capture_output=True)
            print(done.stdout, done.returncode != 0)
        """
        code = textwrap.dedent(code).replace("{HOST}", str(os.getpid()))
        assert make().run(code).stdout == "b'' True\n"


class TestLimits:
    def test_memory(self, make):
        for code in ("x = bytearray(10**9)", "x = []\nwhile True: x.append(bytearray(10**6))"):
            ran = make(memory="200M").run(code)
            assert (ran.killed_by, ran.success, ran.returncode) == ("memory", False, -9)

    def test_wall_seconds(self, make):
        ran = make(wall_seconds=0.5).run("import time; time.sleep(60.25)")
        assert (ran.killed_by, ran.timed_out) == ("wall_seconds", True)
        assert ran.duration < 1.5
        assert gone("60.25")

    def test_cpu_seconds(self, make):
        ran = make(cpu_seconds=1).run("while True: pass")
        assert (ran.killed_by, ran.success) == ("cpu_seconds", False)
        assert ran.duration < 4

    def test_output(self, make):
        for stream in ("stdout", "stderr"):
            ran = make(output="1M").run(
                f"import sys\nwhile True: sys.{stream}.write('x' * 100_000)"
            )
            assert ran.killed_by == "output"
            assert len(getattr(ran, stream)) == 1 << 20

    def test_disk(self, make):
        sandbox = make(disk="20M")
        ran = sandbox.run("file = open('big', 'wb')\nwhile True: file.write(bytes(10**6))")
        assert (ran.killed_by, ran.success) == ("disk", False)

    def test_processes(self, make):
        code = """
            import os, time
            started = 0
            try:
                while True:
                    if os.fork() == 0:
                        time.sleep(61.5)
                    started += 1
            except OSError as error:
                print(started, error.errno)
        """
        ran = make(LOOSE, processes=12).run(textwrap.dedent(code))
        started, _ = ran.stdout.split()
        assert 5 < int(started) < 12
        assert gone("61.5")

    def test_open_files(self, make):
        code = "files = []\nwhile True: files.append(open('/dev/null'))"
        assert "Too many open files" in make(open_files=32).run(code).stderr

    @pytest.mark.parametrize(
        ("limits", "error", "says"),
        [
            ({"memory": "much"}, ValueError, "memory"),
            ({"memory": 1.5}, TypeError, "memory must be an int or a str, not float"),
            ({"output": 0}, ValueError, "output must be positive"),
            ({"disk": -1}, ValueError, "disk must be"),
            ({"wall_seconds": "1"}, TypeError, "wall_seconds must be a number, not str"),
            ({"wall_seconds": 0}, ValueError, "wall_seconds must be positive, not 0"),
            ({"processes": 1.5}, TypeError, "processes must be a whole number, not float"),
            ({"open_files": True}, TypeError, "open_files must be a whole number, not bool"),
            ({"cpu_percent": 101}, ValueError, "cpu_percent must be at most 100"),
        ],
    )
    def test_bad_limits(self, limits, error, says):
        with pytest.raises(error, match=says):
            Limits(**limits)

    def test_sizes(self):
        limits = Limits(memory="1K", disk=5, output=None)
        assert (limits.memory, limits.disk, limits.output) == (1024, 5, None)


class TestFaults:
    def test_what_it_leaves_running(self, make):
        ran = make().run("import subprocess; subprocess.Popen(['setsid', 'sleep', '62.5'])")
        assert ran.success
        assert gone("62.5")

    def test_what_it_leaves_running_when_it_is_ended(self, make):
        code = (
            "import subprocess, time; subprocess.Popen(['setsid', 'sleep', '63.5']); time.sleep(60)"
        )
        assert make(wall_seconds=1).run(code).timed_out
        assert gone("63.5")

    def test_it_ignores_signals(self, make):
        code = (
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(64.5)"
        )
        ran = make(wall_seconds=1).run(code)
        assert ran.timed_out and ran.duration < 2
        assert gone("64.5")

    def test_it_closes_its_descriptors(self, make):
        code = "import os\nos.closerange(0, 200)\nimport time\ntime.sleep(0.3)"
        ran = make().run(code)
        assert (ran.stdout, ran.killed_by) == ("", None)
        code = "import os\nos.closerange(0, 200)\nimport time\ntime.sleep(65.5)"
        assert make(wall_seconds=1).run(code).timed_out
        assert gone("65.5")

    def test_it_kills_itself(self, make):
        code = "import subprocess; subprocess.run(['sh', '-c', 'kill -9 $PPID'])"
        ran = make(memory=None).run(code)
        assert (ran.returncode, ran.killed_by) == (-9, None)

    def test_it_cannot_signal_others(self, make):
        other = subprocess.Popen(["sleep", "66.5"])
        try:
            make().run(f"import subprocess; subprocess.run(['kill', '-9', '{other.pid}'])")
            assert other.poll() is None
        finally:
            other.kill()
            other.wait()

    def test_it_lies_about_itself(self, make):
        """What it says of itself is no code, and harms nobody."""
        code = """
            import glob, json
            [report] = glob.glob("../report-*")
            with open(report, "ab") as file:
                for line in (b"[]", b"{}", b"no", b"{\\"denied\\": 1}", b"\\xff\\n" * 1000):
                    file.write(line + b"\\n")
        """
        ran = make(LOOSE.replace(write=None)).run(textwrap.dedent(code), value=True)
        assert (ran.violations, ran.value) == ([], None)

    def test_the_host_dies(self, tmp_path):
        code = """
            from fastaudit_rs import Limits, Policy, Sandbox
            sandbox = Sandbox(Policy(), Limits(wall_seconds=100))
            print("begun", flush=True)
            sandbox.run("import time; time.sleep(67.5)")
        """
        host = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        host.stdout.readline()
        deadline = time.monotonic() + 20
        while len(running("sandbox_child")) < 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        host.kill()
        host.wait()
        host.stdout.close()
        assert gone("sandbox_child", 3)

    def test_an_interrupt(self, make):
        """The host's `Ctrl-C` ends the run, and leaves nothing."""
        code = """
            import _thread, threading
            from fastaudit_rs import Policy, Sandbox
            threading.Timer(1, _thread.interrupt_main).start()
            try:
                with Sandbox(Policy()) as sandbox:
                    sandbox.run("import time; time.sleep(68.5)")
            except KeyboardInterrupt:
                print("interrupted", sandbox.directory.exists())
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True
        )
        assert done.stdout == "interrupted False\n", done.stderr
        assert gone("68.5")


class TestDirectory:
    def test_files(self, make):
        sandbox = make()
        sandbox.write_file("data/in.txt", "given")
        ran = sandbox.run("open('out.bin', 'wb').write(open('data/in.txt', 'rb').read()[::-1])")
        assert ran.success
        assert sandbox.list_files() == ["data/in.txt", "out.bin"]
        assert sandbox.read_file("out.bin") == b"nevig"

    @pytest.mark.parametrize("name", ["../a", "/etc/passwd", "data/../../a", "", "."])
    def test_names_that_lead_out(self, make, name):
        sandbox = make()
        for attempt in (sandbox.read_file, lambda name: sandbox.write_file(name, "x")):
            with pytest.raises(ValueError, match="is not in the directory of the sandbox"):
                attempt(name)

    def test_links_that_lead_out(self, make, tmp_path):
        (tmp_path / "secret").write_text("x")
        sandbox = make(LOOSE.replace(write=None))
        code = (
            f"import os; os.symlink({str(tmp_path)!r}, 'link'); os.symlink('/etc/passwd', 'file')"
        )
        assert sandbox.run(code).success
        for name in ("link/secret", "file"):
            with pytest.raises(ValueError):
                sandbox.read_file(name)
            with pytest.raises(ValueError):
                sandbox.write_file(name, "y")
        assert (tmp_path / "secret").read_text() == "x"

    def test_it_is_removed(self, tmp_path):
        with Sandbox(Policy()) as sandbox:
            directory = sandbox.directory
            assert directory.is_dir()
        assert not directory.parent.exists()
        with pytest.raises(RuntimeError, match="the sandbox is closed"):
            sandbox.run("1")
        forgotten = Sandbox(Policy()).directory
        assert not forgotten.exists()


class TestConfine:
    def test_it_is_required(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "sandlock", None)
        with pytest.raises(SandboxError, match="it needs sandlock: pip install"):
            Sandbox(Policy())

    def test_an_old_kernel(self, monkeypatch):
        import sandlock

        monkeypatch.setattr(sandlock, "landlock_abi_version", lambda: 3)
        with pytest.raises(SandboxError, match="too old a Landlock"):
            Sandbox(Policy())

    def test_without_it(self, monkeypatch, tmp_path):
        """The policy and what the host itself watches hold."""
        monkeypatch.setattr(fastaudit_rs.sandbox, "_kernel", lambda confine: None)
        limits = Limits(wall_seconds=1, output="1M")
        with Sandbox(LOOSE, limits, confine="prefer") as sandbox:
            ran = sandbox.run("print(input())", input="x\n")
            assert (ran.stdout, ran.confined) == ("x\n", False)
            assert sandbox.run(f"open({str(tmp_path / 'a')!r}, 'w')").returncode == 77
            assert sandbox.run("import time; time.sleep(69.5)").timed_out
            assert sandbox.run("while True: print('x' * 1000)").killed_by == "output"
            assert sandbox.explain()["memory"] == "nothing"
        assert gone("69.5")

    def test_explain(self, make):
        told = make(Policy(network=False)).explain()
        assert told["write"] == told["network"] == "guard and kernel"
        assert told["imports"] == told["block"] == "guard"
        assert (told["memory"], told["disk"], told["cpu_seconds"]) == ("kernel", "host", "process")
        assert make(LOOSE.replace(block=["/etc"])).explain()["block"] == "guard and kernel"

    @pytest.mark.parametrize(
        ("arguments", "error", "says"),
        [
            (("policy",), TypeError, "policy must be a Policy, not str"),
            ((Policy(), 3), TypeError, "limits must be Limits, not int"),
        ],
    )
    def test_bad_arguments(self, arguments, error, says):
        with pytest.raises(error, match=says):
            Sandbox(*arguments)
        with pytest.raises(ValueError, match="confine must be 'require' or 'prefer', not 'maybe'"):
            Sandbox(Policy(), confine="maybe")
        with pytest.raises(TypeError, match="env must be a mapping or names, not str"):
            Sandbox(Policy(), env="PATH")
