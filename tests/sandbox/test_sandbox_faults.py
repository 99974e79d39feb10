"""Faults in a sandbox, judged from outside of it."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time

import promises
import pytest

from fastaudit_rs import Sandbox, SandboxError
from fastaudit_rs.sandbox.host import process

pytest.importorskip("sandlock")

import sandboxes
from sandboxes import gone, of, running
from users import NAMES, USERS, run_as

pytestmark = pytest.mark.once


class TestFaults:
    @pytest.mark.holds("host", promises.LEFT)
    def test_what_it_leaves_running(self, make_sandbox):
        ran = make_sandbox().run("import subprocess; subprocess.Popen(['setsid', 'sleep', '62.5'])")
        assert ran.success
        assert gone("62.5")

    @pytest.mark.holds("host", promises.LEFT)
    @pytest.mark.slow
    def test_what_it_leaves_running_when_it_is_ended(self, make_sandbox):
        code = (
            "import subprocess, time; subprocess.Popen(['setsid', 'sleep', '63.5']); time.sleep(60)"
        )
        assert make_sandbox(wall_seconds=1).run(code).timed_out
        assert gone("63.5")

    @pytest.mark.holds("host", promises.LEFT)
    @pytest.mark.slow
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

    @pytest.mark.holds("host", promises.WALL)
    @pytest.mark.slow
    def test_it_ignores_signals(self, make_sandbox):
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
        sandbox = make_sandbox(wall_seconds=1)
        ran = sandbox.run(code)
        assert ran.timed_out and ran.duration < 2
        assert gone(of(sandbox))

    @pytest.mark.slow
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
        assert sandbox.run("1").success
        [worker] = running(of(sandbox))
        assert sandbox.run(textwrap.dedent(code)).stdout == "['1', '2']\n"
        assert running(of(sandbox)) == [worker]

    @pytest.mark.slow
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
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True
        )
        *said, mark = done.stdout.split()
        assert said == ["interrupted", "False"], done.stderr
        assert gone(mark)

    def test_what_waits_for_work_ends_by_itself(self, make_sandbox, monkeypatch):
        """Such an end is no limit: it is reported as what it is."""
        broken = "import fastaudit_rs.sandbox.inside.worker as worker; worker._fork = None\n"
        command = (*process.COMMAND[:-1], process.START.replace("from fast", f"{broken}from fast"))
        monkeypatch.setattr(process, "COMMAND", command)
        with pytest.raises(SandboxError, match=r"ended: Ended\(exit_code=1"):
            make_sandbox().run("1")


#: Runs of all kinds of faults, in sandboxes that are closed now and then, also during a run. It
#: tells about its process after the first of them, and after the last.
MANY = r"""
import asyncio, gc, json, os, sys, threading, time
support, mark, count = json.loads(sys.argv[1])
sys.path.append(support)
from fastaudit_rs import Limits, Sandbox
from sandboxes import LOOSE, of, running

SHORT = [
    "import os; os.closerange(0, 300)",
    "import subprocess; subprocess.run(['sh', '-c', 'kill -KILL $PPID'])",
    "import subprocess; subprocess.run(['sh', '-c', 'kill -SEGV $PPID'])",
    f"import subprocess; [subprocess.Popen(['setsid', 'sleep', '{mark}']) for _ in range(3)]",
    f"import os\nif os.fork() == 0: os.fork(); os.execvp('sleep', ['sleep', '{mark}'])",
    "import threading, time; threading.Thread(target=time.sleep, args=(90,), daemon=True).start()",
    "import os\ntry:\n    while True: os.pipe()\nexcept OSError: pass",
    "import os\nfor each in range(3, 30):\n    try: os.write(each, b'[' * 999 + b'\\xff')\n"
    "    except OSError: pass",
    "def f(): f()\nf()",
    "raise SystemExit(10**30)",
    "bytes(10**15)",
    "print('x' * 500_000)",
    "def",
    "import os; os.mkfifo(str(os.getpid())); os.symlink('loop', f'loop{os.getpid()}')",
    "import os; os.makedirs(f'{os.getpid()}/a/b'); open(f'{os.getpid()}/a/c', 'w').close()\n"
    "os.chmod(f'{os.getpid()}/a', 0)",
    "import os\nfor name in os.listdir(): os.path.isdir(name) or os.unlink(name)",
]
LONG = [
    "while True: print('x' * 10_000)",
    "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "x = bytearray(10**9)",
]
LIMITS = Limits(wall_seconds=20, memory="200M", output="1M", processes=20)


def state():
    gc.collect()
    # A thread closes what watched the files of a sandbox, which takes the kernel 10 ms.
    time.sleep(0.5)
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    children = [
        open(f"/proc/self/task/{task}/children").read().split()
        for task in os.listdir("/proc/self/task")
    ]
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
        "children": sum(children, []),
        "left": [name for name in os.listdir() if name.startswith("fastaudit-rs-")],
        "memory": int(status["VmRSS"].split()[0]) >> 10,
    }


def closed_meanwhile(sandbox):
    closing = threading.Timer(0.2, sandbox.close)
    closing.start()
    try:
        sandbox.run("import time; time.sleep(90)")
        print("not closed")
    except RuntimeError:
        pass
    closing.join()


async def cancelled(sandbox):
    try:
        await asyncio.wait_for(sandbox.arun("import time; time.sleep(90)"), 0.1)
        print("not cancelled")
    except asyncio.TimeoutError:
        pass


def batch():
    ran = 0
    with Sandbox(LOOSE, LIMITS) as sandbox:
        for _ in range(4):
            for code in SHORT:
                sandbox.run(code)
                ran += 1
        asyncio.run(cancelled(sandbox))
        assert sandbox.run("6 * 7", value=True).value == 42
        closed_meanwhile(sandbox)
    with Sandbox(LOOSE, Limits(wall_seconds=0.2, memory="200M", processes=20)) as sandbox:
        killed = [sandbox.run(code).killed_by for code in LONG]
        assert None not in killed, killed
    return ran + 3 + len(LONG)


ran = batch()
before = state()
while ran < count:
    ran += batch()
print(json.dumps([ran, before, state()]))
"""


@pytest.mark.holds("host", promises.LEFT)
@pytest.mark.nightly
@pytest.mark.parametrize("user", USERS)
def test_many_faults_leave_nothing(user, monkeypatch):
    """A thousand runs: half of them as root, where it is there."""
    # No memory is kept in reserve for each thread that there was.
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    mark = f"97.{os.getpid()}"
    support = os.path.dirname(sandboxes.__file__)
    count = 1000 // len(NAMES)
    said = run_as(user, MANY, json.dumps([support, mark, count]), timeout=300)
    ran, before, after = json.loads(said)
    assert ran >= count
    grown = after.pop("memory") - before.pop("memory")
    assert after == before
    assert (after["children"], after["left"]) == ([], [])
    # It goes up and down by 20 MB; 0.1 MB for each run would be more.
    assert grown < 32
    assert gone(mark)


@pytest.mark.parametrize("confine", ["require", "audit"])
def test_a_process_that_cannot_import_its_program(monkeypatch, confine):
    program = process.START.replace("import main", "import nothing_there")
    command = (*process.COMMAND[:-1], program)
    monkeypatch.setattr(process, "COMMAND", command)
    with Sandbox(confine=confine) as sandbox, pytest.raises(SandboxError) as raised:
        sandbox.run("1")
    assert "did not start" in str(raised.value) and "nothing_there" in str(raised.value)
