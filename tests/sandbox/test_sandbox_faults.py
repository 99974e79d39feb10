"""Faults in a sandbox, judged from outside of it."""

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time

import pytest

from fastaudit_rs import SandboxError

pytest.importorskip("sandlock")

from sandboxes import gone, of, running


class TestFaults:
    def test_what_it_leaves_running(self, make_sandbox):
        ran = make_sandbox().run("import subprocess; subprocess.Popen(['setsid', 'sleep', '62.5'])")
        assert ran.success
        assert gone("62.5")

    def test_what_it_leaves_running_when_it_is_ended(self, make_sandbox):
        code = (
            "import subprocess, time; subprocess.Popen(['setsid', 'sleep', '63.5']); time.sleep(60)"
        )
        assert make_sandbox(wall_seconds=1).run(code).timed_out
        assert gone("63.5")

    def test_it_copies_itself_without_end(self, make_sandbox):
        code = """
            import os
            while True:
                try:
                    os.fork()
                except OSError:
                    pass
        """
        sandbox = make_sandbox(wall_seconds=2, processes=20)
        ran = sandbox.run(textwrap.dedent(code))
        assert ran.timed_out and ran.duration < 3, ran
        assert gone(of(sandbox))

    def test_it_ignores_signals(self, make_sandbox):
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
        sandbox = make_sandbox(wall_seconds=1)
        ran = sandbox.run(code)
        assert ran.timed_out and ran.duration < 2
        assert gone(of(sandbox))

    def test_it_closes_its_descriptors(self, make_sandbox):
        code = "import os\nos.closerange(0, 200)\nimport time\ntime.sleep(0.3)"
        ran = make_sandbox().run(code)
        assert (ran.stdout, ran.killed_by) == ("", None)
        code = "import os\nos.closerange(0, 200)\nimport time\ntime.sleep(60)"
        sandbox = make_sandbox(wall_seconds=1)
        assert sandbox.run(code).timed_out
        assert gone(of(sandbox))

    def test_it_kills_itself(self, make_sandbox):
        code = "import subprocess; subprocess.run(['sh', '-c', 'kill -9 $PPID'])"
        ran = make_sandbox(memory=None).run(code)
        assert (ran.returncode, ran.killed_by) == (-9, None)

    def test_it_cannot_signal_others(self, make_sandbox):
        other = subprocess.Popen(["sleep", "66.5"])
        try:
            make_sandbox().run(f"import subprocess; subprocess.run(['kill', '-9', '{other.pid}'])")
            assert other.poll() is None
        finally:
            other.kill()
            other.wait()

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

    def test_it_cannot_reach_what_waits_for_work(self, make_sandbox):
        """Whatever it starts: the guard would see Python code."""
        code = """
            import os, subprocess
            kill = f"kill -9 {os.getppid()}; echo $?; echo x > /proc/{os.getppid()}/mem; echo $?"
            print(subprocess.run(["sh", "-c", kill], capture_output=True, text=True).stdout.split())
        """
        sandbox = make_sandbox()
        assert sandbox.run("1").success
        [worker] = running(of(sandbox))
        assert sandbox.run(textwrap.dedent(code)).stdout == "['1', '2']\n"
        assert running(of(sandbox)) == [worker]

    def test_the_host_dies(self):
        code = """
            from fastaudit_rs import Limits, Policy, Sandbox
            sandbox = Sandbox(Policy(), Limits(wall_seconds=100))
            print(sandbox.directory.parent, flush=True)
            sandbox.run("import os; os.fork() or os.fork(); import time; time.sleep(60)")
        """
        # Its name is short: the command of what runs has that of its socket.
        place = tempfile.mkdtemp(dir="/tmp")
        host = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": place},
        )
        mark = host.stdout.readline().decode().strip()
        deadline = time.monotonic() + 20
        while len(running(mark)) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(running(mark)) == 4
        host.kill()
        host.wait()
        host.stdout.close()
        assert gone(mark, 3)
        shutil.rmtree(place)

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
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True
        )
        *said, mark = done.stdout.split()
        assert said == ["interrupted", "False"], done.stderr
        assert gone(mark)

    def test_what_waits_for_work_ends_by_itself(self, make_sandbox, monkeypatch):
        """Such an end is no limit: it is reported as what it is."""
        import fastaudit_rs.sandbox.host.process

        broken = "import fastaudit_rs.sandbox.inside.worker as w; "
        broken += "w.run = None; w._fork = None; w.main()"
        command = (*fastaudit_rs.sandbox.host.process.COMMAND[:-1], broken)
        monkeypatch.setattr(fastaudit_rs.sandbox.host.process, "COMMAND", command)
        with pytest.raises(SandboxError, match=r"ended: Ended\(exit_code=1"):
            make_sandbox().run("1")
