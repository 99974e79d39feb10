"""`Sandbox`: code in a process of its own, judged from outside of it."""

import asyncio
import os
import signal
import sys
import textwrap

import pytest

from fastaudit_rs import Limits, Policy, Sandbox, SandboxError

pytest.importorskip("sandlock")

from sandboxes import LOOSE, gone, of, running


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
        assert "sandbox_worker" not in ran.stderr

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

    @pytest.mark.parametrize("commands", [True, ["cat"]])
    def test_programs_where_reading_is_restricted(self, make, tmp_path, commands):
        """What the policy lets start the kernel lets be read."""
        (tmp_path / "secret").write_text("x")
        sandbox = make(LOOSE.replace(read=[], commands=commands))
        sandbox.write_file("own", "mine")
        code = f"""
            import subprocess
            for name in ("own", "{tmp_path}/secret"):
                print(subprocess.run(["cat", name], capture_output=True).stdout)
        """
        ran = sandbox.run(textwrap.dedent(code))
        assert ran.stdout == "b'mine'\nb''\n", ran

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
        sandbox = make(wall_seconds=0.5)
        ran = sandbox.run("import time; time.sleep(60)")
        assert (ran.killed_by, ran.timed_out) == ("wall_seconds", True)
        assert ran.duration < 1.5
        assert gone(of(sandbox))

    def test_cpu_seconds(self, make):
        ran = make(cpu_seconds=1).run("while True: pass")
        assert (ran.killed_by, ran.success) == ("cpu_seconds", False)
        assert ran.duration < 4

    def test_cpu_percent(self, make):
        """How much it computes in a second, judged by how long that takes."""
        code = """
            import time
            begun = time.monotonic()
            while time.process_time() < 0.4:
                pass
            time.monotonic() - begun
        """
        took = make(cpu_percent=20).run(textwrap.dedent(code), value=True).value
        assert took > 1

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
                        time.sleep(60)
                    started += 1
            except OSError as error:
                print(started, error.errno)
        """
        sandbox = make(LOOSE, processes=12)
        ran = sandbox.run(textwrap.dedent(code))
        assert ran.stdout.split()[0] == "11", ran
        assert len(running(of(sandbox))) == 1

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


class TestDirectory:
    def test_files(self, make):
        sandbox = make()
        sandbox.write_file("data/in.txt", "given")
        ran = sandbox.run("open('out.bin', 'wb').write(open('data/in.txt', 'rb').read()[::-1])")
        assert ran.success
        assert sandbox.list_files() == ["data/in.txt", "out.bin"]
        assert sandbox.read_file("out.bin") == b"nevig"

    def test_what_changed(self, make):
        sandbox = make()
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
        monkeypatch.setitem(sys.modules, "sandlock", None)
        limits = Limits(wall_seconds=1, output="1M")
        with Sandbox(LOOSE, limits, confine="prefer") as sandbox:
            ran = sandbox.run("print(input())", input="x\n")
            assert (ran.stdout, ran.confined) == ("x\n", False)
            assert sandbox.run(f"open({str(tmp_path / 'a')!r}, 'w')").returncode == 77
            assert sandbox.run("import time; time.sleep(60)").timed_out
            assert sandbox.run("while True: print('x' * 1000)").killed_by == "output"
            assert sandbox.explain()["memory"] == "nothing"
        assert gone(of(sandbox))

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
        with pytest.raises(
            ValueError, match="confine must be 'require', 'prefer' or 'audit', not 'maybe'"
        ):
            Sandbox(Policy(), confine="maybe")
        with pytest.raises(TypeError, match="env must be a mapping or names, not str"):
            Sandbox(Policy(), env="PATH")
