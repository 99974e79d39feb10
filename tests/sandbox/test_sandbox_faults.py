"""Faults in a sandbox, judged from outside of it."""

import os
import signal
import subprocess
import sys
import textwrap

import promises
import pytest
from programs import printed
from sandboxes import LOOSE, gone, of, running
from users import directory_of
from waiting import until

from fastaudit_rs import Limits, Sandbox, SandboxError
from fastaudit_rs.sandbox.host import cgroup, process

#: Runs that do not end by themselves.
ENDLESS = {
    "a program": "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '63.5'])",
    "copies": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "no signals": "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "no descriptors": "import os, time; os.closerange(0, 200)",
}


class TestFaults:
    @pytest.mark.holds("host", promises.LEFT)
    def test_what_it_leaves_running(self, make_sandbox):
        ran = make_sandbox().run("import subprocess; subprocess.Popen(['setsid', 'sleep', '62.5'])")
        assert ran.success
        assert gone("62.5")

    @pytest.mark.holds("host", promises.LEFT)
    @pytest.mark.holds("host", promises.WALL)
    @pytest.mark.slow
    @pytest.mark.parametrize("name", ENDLESS)
    def test_the_limit_ends_it_with_all_that_it_started(self, make_sandbox, name):
        sandbox = make_sandbox(wall_seconds=1, processes=20)
        ran = sandbox.run(f"{ENDLESS[name]}\ntime.sleep(60)")
        assert ran.timed_out and ran.duration < 2, ran
        assert gone(of(sandbox)) and gone("63.5")

    @pytest.mark.holds("host", promises.LEFT)
    def test_nothing_is_left_without_the_kernel_part(self, monkeypatch):
        """Nor control groups, which an ordinary user often cannot make."""
        monkeypatch.setattr(cgroup, "joined", lambda *_: None)
        leave = "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '67.5'])"
        with Sandbox(LOOSE, Limits(wall_seconds=1), confine="audit") as sandbox:
            assert sandbox.run(f"{leave}\ntime.sleep(60)").timed_out
            assert gone("67.5")
            with sandbox.session() as session:
                session.run(leave)
            assert gone("67.5")

    def test_it_closes_its_descriptors(self, make_sandbox):
        ran = make_sandbox().run(f"{ENDLESS['no descriptors']}; time.sleep(0.3)")
        assert (ran.stdout, ran.killed_by) == ("", None)

    def test_it_kills_itself(self, make_sandbox):
        code = "import subprocess; subprocess.run(['sh', '-c', 'kill -9 $PPID'])"
        ran = make_sandbox(memory=None).run(code)
        assert (ran.returncode, ran.killed_by) == (-9, None)

    @pytest.mark.holds("kernel", promises.OTHERS)
    def test_it_cannot_signal_others(self, make_sandbox):
        other = subprocess.Popen(["sleep", "66.5"])
        try:
            make_sandbox().run(f"import subprocess; subprocess.run(['kill', '-9', '{other.pid}'])")
            assert other.poll() is None
        finally:
            other.kill()
            other.wait()

    @pytest.mark.holds("host", promises.UNHURT)
    def test_it_lies_about_itself(self, make_sandbox):
        """Its report about itself is no code, and harms nobody."""
        code = """
            import os
            written = 0
            for descriptor in range(3, 20):
                for line in (b"[]", b"{}", b"no", b"{\\"denied\\": 1}", b"\\xff\\n" * 1000):
                    try:
                        written += os.write(descriptor, line + b"\\n") > 0
                    except OSError:
                        pass
            print(written)
        """
        ran = make_sandbox().run(textwrap.dedent(code), value=True)
        assert (ran.stdout, ran.violations, ran.value) == ("5\n", [], None)

    @pytest.mark.holds("kernel", promises.OTHERS)
    def test_it_cannot_reach_what_waits_for_work(self, make_sandbox):
        """Whatever it starts: the guard would see Python code."""
        code = """
            import os, subprocess
            kill = f"kill -9 {os.getppid()}; echo $?; echo x > /proc/{os.getppid()}/mem; echo $?"
            print(subprocess.run(["sh", "-c", kill], capture_output=True, text=True).stdout.split())
        """
        sandbox = make_sandbox()
        worker = int(sandbox.run("import os; print(os.getppid())").stdout)
        assert sandbox.run(textwrap.dedent(code)).stdout == "['1', '2']\n"
        assert until(lambda: len(running(of(sandbox))) == 2)
        assert worker in running(of(sandbox))

    def test_the_child_for_the_next_run_is_killed(self, make_sandbox):
        """As by the kernel, for memory: another one takes its place."""
        sandbox = make_sandbox()
        for number in range(2):
            assert sandbox.run(f"print({number})").stdout == f"{number}\n"
            assert until(lambda: len(running(of(sandbox))) == 2)
            os.kill(max(running(of(sandbox))), signal.SIGKILL)

    @pytest.mark.slow
    def test_the_host_dies(self):
        code = """
            from fastaudit_rs import Limits, Policy, Sandbox
            sandbox = Sandbox(Policy(), Limits(wall_seconds=100))
            print(sandbox.directory.parent, flush=True)
            sandbox.run("import os; os.fork() or os.fork(); import time; time.sleep(60)")
        """
        # Its name is short: the command of what runs has that of its socket.
        with directory_of("root") as place:
            host = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(code)],
                stdout=subprocess.PIPE,
                env={**os.environ, "TMPDIR": place},
            )
            with host:
                mark = host.stdout.readline().decode().strip()
                assert until(lambda: len(running(mark)) == 4)
                host.kill()
            assert gone(mark, 3)

    @pytest.mark.slow
    def test_an_interrupt(self, make_sandbox):
        """The host's `Ctrl-C` ends the run, and leaves nothing."""
        code = """
            import _thread, threading
            from fastaudit_rs import Policy, Sandbox
            threading.Timer(1, _thread.interrupt_main).start()
            try:
                with Sandbox(Policy()) as sandbox:
                    sandbox.run("import time; time.sleep(60)")
            except KeyboardInterrupt:
                print("interrupted", sandbox.directory.exists(), sandbox.directory.parent)
        """
        *said, mark = printed(code).split()
        assert said == ["interrupted", "False"]
        assert gone(mark)

    def test_what_waits_for_work_ends_by_itself(self, make_sandbox, monkeypatch):
        """Such an end is no limit: it is reported as what it is."""
        broken = "import fastaudit_rs.sandbox.inside.worker as worker; worker._next = None\n"
        command = (*process.COMMAND[:-1], process.START.replace("from fast", f"{broken}from fast"))
        monkeypatch.setattr(process, "COMMAND", command)
        with pytest.raises(SandboxError, match="ended with exit code 1"):
            make_sandbox().run("1")


@pytest.mark.parametrize("confine", ["require", "audit"])
def test_a_process_that_cannot_import_its_program(monkeypatch, confine):
    program = process.START.replace("import main", "import nothing_there")
    command = (*process.COMMAND[:-1], program)
    monkeypatch.setattr(process, "COMMAND", command)
    with Sandbox(confine=confine) as sandbox, pytest.raises(SandboxError) as raised:
        sandbox.run("1")
    assert "did not start" in str(raised.value) and "nothing_there" in str(raised.value)
