"""Runs that are copies of a process that waits for work: what they share, and what they do not."""

import asyncio
import gc
import json
import os
import textwrap
from concurrent.futures import ThreadPoolExecutor

import promises
import pytest
from programs import printed
from repository import SUPPORT
from sandboxes import LOOSE, gone
from waiting import until

from fastaudit_rs import Limits, Policy, Sandbox, SandboxError


def worker_of(sandbox):
    """The process that waits for work."""
    return sandbox.run("import os; os.getppid()", value=True).value


#: Code that ends badly, or leaves something behind.
FAULTS = [
    "1",
    "1 / 0",
    "def",
    "raise SystemExit(10**30)",
    "bytes(10**15)",
    "def f(): f()\nf()",
    "while True: pass",
    "while True: print('x' * 10_000)",
    "import os; os.closerange(0, 300)",
    "import os; os.mkfifo(str(os.getpid())); os.symlink('loop', f'loop{os.getpid()}')",
    "import os\ntry:\n    while True: os.pipe()\nexcept OSError: pass",
    "import os\nfor each in range(3, 30):\n    try: os.write(each, b'[' * 999 + b'\\xff')\n"
    "    except OSError: pass",
    "import os\nif os.fork() == 0: os.fork(); os.execvp('sleep', ['sleep', '97.5'])",
    "import subprocess; subprocess.run(['sh', '-c', 'kill -KILL $PPID'])",
    "import subprocess; subprocess.run(['sh', '-c', 'kill -SEGV $PPID'])",
    "import subprocess; subprocess.Popen(['setsid', 'sleep', '97.5'])",
]


class TestWorker:
    def test_runs_are_copies_of_one_process(self, sandbox):
        first = sandbox.run("import os; [os.getpid(), os.getppid()]", value=True).value
        second = sandbox.run("import os; [os.getpid(), os.getppid()]", value=True).value
        assert first[0] != second[0]
        assert first[1] == second[1]

    def test_they_share_nothing(self, sandbox):
        code = """
            import builtins, json, os, sys, __main__
            found = [hasattr(json, "mark"), "MARK" in os.environ, hasattr(__main__, "mark"),
                     os.umask(0o777) == 0o777, "mark" in sys.path]
            json.mark = mark = builtins.mark = 1
            os.environ["MARK"] = "1"
            sys.path.append("mark")
            found + [os.getcwd().endswith("work"), sys.argv]
        """
        for _ in range(2):
            ran = sandbox.run(textwrap.dedent(code), value=True)
            assert ran.value == [False] * 5 + [True, ["<sandbox>"]], ran

    def test_modules_that_a_run_writes(self, tmp_path):
        """They are not for the process that later runs are copies of."""
        with Sandbox(LOOSE.replace(write=[tmp_path]), path=[tmp_path]) as sandbox:
            code = f"open({str(tmp_path / 'random.py')!r}, 'w').write('MARK = 1')"
            assert sandbox.run(code).success
            assert (tmp_path / "random.py").exists()
            code = "import random; [hasattr(random, 'MARK'), hasattr(random, 'Random')]"
            assert sandbox.run(code, value=True).value == [False, True]

    @pytest.mark.slow
    def test_random_numbers_differ(self, sandbox):
        code = "import random; random.random()"
        assert len({sandbox.run(code, value=True).value for _ in range(3)}) == 3
        pytest.importorskip("numpy")
        code = "import numpy; [numpy.random.rand(), numpy.random.default_rng().random()]"
        with sandbox.pool(1, ["numpy.random"]) as pool:
            found = [pool.run(code, value=True).value for _ in range(3)]
        assert len({number for pair in found for number in pair}) == 6

    @pytest.mark.slow
    def test_it_is_another_one_after_a_limit(self, sandbox):
        with Sandbox(LOOSE, Limits(wall_seconds=1)) as sandbox:
            before = worker_of(sandbox)
            assert sandbox.run("while True: pass").timed_out
            assert worker_of(sandbox) != before

    def test_it_is_another_one_where_a_root_is_another(self, tmp_path):
        root = tmp_path / "root"
        code = f"""
            import subprocess
            subprocess.run(["sh", "-c", "echo x > {root}/a"], capture_output=True).returncode
        """
        with Sandbox(LOOSE.replace(write=[root])) as sandbox:
            for _ in range(2):
                root.mkdir()
                assert sandbox.run(textwrap.dedent(code), value=True).value == 0
                (root / "a").unlink()
                root.rename(tmp_path / f"before-{os.urandom(4).hex()}")

    @pytest.mark.slow
    def test_side_by_side(self, sandbox):
        """Runs that come at the same time do not wait for each other."""
        code = "import time; time.sleep(0.5); print(1)"
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(sandbox.run, [code] * 4))
        assert [ran.stdout for ran in found] == ["1\n"] * 4
        starts = "import os; os.getpid()"
        assert sandbox.run(starts).success

    def test_a_copy_of_the_host_ends(self):
        """Its end is not the end of the host's sandboxes."""
        code = """
            import os, sys
            from fastaudit_rs import Policy, Sandbox
            sandbox = Sandbox(Policy())
            print(sandbox.run("1").success)
            sys.stdout.flush()
            if os.fork() == 0:
                sys.exit()
            os.wait()
            print(sandbox.directory.exists(), sandbox.run("1").success)
        """
        assert printed(code, options=["-Wignore"]) == "True\nTrue True\n"

    @pytest.mark.slow
    @pytest.mark.holds("host", promises.LEFT)
    @pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=pytest.mark.nightly)])
    def test_nothing_is_left_of_faults(self, sandbox, rounds, tmp_path):
        """In a host of its own: here others come and go."""
        code = """
            import ctypes, json, os, sys, threading, time
            from fastaudit_rs import Limits, Sandbox
            from sandboxes import LOOSE
            def children_of(task):
                try:
                    return open(f"/proc/self/task/{task}/children").read()
                except FileNotFoundError:  # A thread that has ended meanwhile.
                    return ""
            def left():
                tasks = os.listdir("/proc/self/task")
                children = map(children_of, tasks)
                return [len(os.listdir("/proc/self/fd")), len(tasks), *sorted(children)[-1:]]
            # libffi keeps its own file open from the first callback on, of which the kernel part
            # makes some.
            ctypes.CFUNCTYPE(None)(lambda: None)
            begun = left()
            sandbox = Sandbox(LOOSE, Limits(wall_seconds=1, output="1M", processes=20))
            sandbox.run("1")
            before = left()
            for code in json.loads(sys.argv[1]):
                sandbox.run(code, stdin="x" * 200_000)
            # The kernel part keeps copies of a few sockets for as long as its process runs.
            print(left()[0] - before[0] < 5)
            threading.Timer(0.2, sandbox.close).start()
            try:
                sandbox.run("while True: pass")
            except RuntimeError:
                pass
            # A thread of the kernel part closes its own a little later.
            deadline = time.monotonic() + 5
            while left() != begun and time.monotonic() < deadline:
                time.sleep(0.01)
            print(left() == begun or (begun, left()))
        """
        env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(SUPPORT)}
        assert printed(code, json.dumps(FAULTS * rounds), env=env, timeout=300) == "True\nTrue\n"
        assert list(tmp_path.iterdir()) == [] and gone("97.5")
        seen = "import os; print(sorted(os.listdir('/proc/self/fd')))"
        # Its standard streams and its report, what lists, and two of the worker's own: the list of
        # its children, and what keeps signals inside.
        assert len(eval(sandbox.run(seen).stdout)) == 7


class TestEnds:
    """The steps at the end of an interpreter are done."""

    @pytest.mark.parametrize(
        "code",
        [
            "file = open('a', 'w'); file.write('x')",
            "import sys; sys.file = open('a', 'w'); sys.file.write('x')",
            "file = open('a', 'wb'); file.write(b'x'); loop = [file]; loop.append(loop)",
            "import atexit; atexit.register(lambda: open('a', 'w').write('x'))",
            "import threading, time\n"
            "def later():\n  time.sleep(0.3)\n  open('a', 'w').write('x')\n"
            "threading.Thread(target=later).start()",
            "class A:\n  def __del__(self): open('a', 'w').write('x')\na = A()",
            "import gzip\nfile = gzip.open('z', 'w'); file.write(b'x')\n"
            "import atexit\natexit.register(open('a', 'w').write, 'x')",
            "open('a', 'w').write('x')\nraise SystemExit(0)",
        ],
    )
    def test_files(self, sandbox, code):
        assert sandbox.run(code).success
        assert sandbox.read_file("a") == b"x"

    def test_streams(self, sandbox):
        ran = sandbox.run("import sys; print('a', end=''); sys.stderr.write('b')")
        assert (ran.stdout, ran.stderr) == ("a", "b")

    def test_c_streams(self, sandbox):
        pytest.importorskip("cffi")
        code = """
            import cffi
            ffi = cffi.FFI()
            ffi.cdef("int puts(const char *s);")
            ffi.dlopen(None).puts(b"by C")
        """
        ran = sandbox.run(textwrap.dedent(code))
        assert ran.stdout == "by C\n", ran

    def test_daemon_threads_do_not_hold_it(self, sandbox):
        code = "import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True)"
        assert sandbox.run(code + ".start()").duration < 5

    @pytest.mark.parametrize(
        ("code", "says"),
        [
            ("import atexit; atexit.register(lambda: 1 / 0)", "ZeroDivisionError"),
            ("class A:\n  def __del__(self): 1 / 0\na = A()", "ZeroDivisionError"),
        ],
    )
    def test_errors_are_told(self, sandbox, code, says):
        ran = sandbox.run(code)
        assert says in ran.stderr
        assert ran.success

    def test_the_policy_holds_to_the_end(self, tmp_path):
        code = f"""
            import atexit
            class A:
                def __del__(self):
                    open({str(tmp_path / "a")!r}, "w")
            a = A()
            atexit.register(open, {str(tmp_path / "b")!r}, "w")
        """
        with Sandbox(Policy()) as sandbox:
            ran = sandbox.run(textwrap.dedent(code))
        assert len(ran.violations) == 2, ran
        assert list(tmp_path.iterdir()) == []


class TestPool:
    @pytest.mark.parametrize("confine", ["require", "audit"])
    def test_what_is_preloaded_is_there(self, confine):
        code = "import sys; 'decimal' in sys.modules"
        with Sandbox(LOOSE, confine=confine) as sandbox:
            assert sandbox.run(code, value=True).value is False
            with sandbox.pool(2, preload=["decimal"]) as pool:
                for _ in range(4):
                    ran = pool.run(code, value=True)
                    assert (ran.value, ran.confined) == (True, confine == "require")
                assert asyncio.run(pool.arun("print(input())", stdin="x\n")).stdout == "x\n"

    def test_modules_of_the_host(self, tmp_path):
        """Modules that a path names: for preloading, and for the code."""
        (tmp_path / "helper.py").write_text("VALUE = 7")
        policy = LOOSE.replace(read=[])
        with Sandbox(policy, path=[tmp_path]) as sandbox, sandbox.pool(1, ["helper"]) as pool:
            code = (
                "import sys; found = 'helper' in sys.modules\nimport helper; [found, helper.VALUE]"
            )
            assert sandbox.run(code, value=True).value == [False, 7]
            assert pool.run(code, value=True).value == [True, 7]

    def test_a_module_that_keeps_a_process_from_being_copied(self, tmp_path):
        """As one that makes another interpreter: CPython ends the copy."""
        code = "import os; os.register_at_fork(after_in_child=os.abort)"
        (tmp_path / "alone.py").write_text(code)
        with Sandbox(LOOSE, path=[tmp_path]) as sandbox, sandbox.pool(1, ["alone"]) as pool:
            with pytest.raises(SandboxError, match="exit code 1: no copy of it .* ran the code"):
                pool.run("1")
            assert sandbox.run("1").success

    def test_renaming_between_directories(self):
        """The kernel's rules for signals say nothing of files."""
        code = "import os; os.makedirs('a/b'); open('c', 'w').close(); os.rename('c', 'a/b/c')"
        for policy in (LOOSE, LOOSE.replace(read=[])):
            with Sandbox(policy) as sandbox:
                assert sandbox.run(code).success
                assert sandbox.list_files() == ["a/b/c"]

    def test_a_file_with_arguments(self, sandbox, tmp_path):
        (tmp_path / "script.py").write_text("import sys; print(__file__, sys.argv[1:])")
        with sandbox.pool(1) as pool:
            ran = pool.run(tmp_path / "script.py", ["a"])
        assert ran.stdout == f"{tmp_path}/script.py ['a']\n"

    @pytest.mark.slow
    def test_what_ended_is_replaced(self):
        with Sandbox(LOOSE, Limits(wall_seconds=1)) as sandbox, sandbox.pool(2) as pool:
            before = {pool.run("import os; os.getppid()", value=True).value for _ in range(4)}
            assert len(before) == 2
            assert all(pool.run("while True: pass").timed_out for _ in range(2))
            after = set()

            def are_both_there():
                after.add(pool.run("import os; os.getppid()", value=True).value)
                return len(after) == 2

            assert until(are_both_there) and not after & before

    @pytest.mark.slow
    def test_more_runs_than_processes(self, sandbox):
        with sandbox.pool(2) as pool, ThreadPoolExecutor(8) as threads:
            found = list(threads.map(pool.run, [f"print({number})" for number in range(60)]))
        assert [ran.stdout for ran in found] == [f"{number}\n" for number in range(60)]

    def test_their_processes_end_with_it(self, sandbox):
        with sandbox.pool(1) as pool:
            worker = pool.run("import os; os.getppid()", value=True).value
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)
        with pytest.raises(RuntimeError, match="the pool is closed"):
            pool.run("1")

    def test_the_sandbox_ends_first(self, sandbox):
        pool = sandbox.pool(1)
        sandbox.close()
        with pytest.raises(RuntimeError, match="the sandbox is closed"):
            pool.run("1")
        with pytest.raises(RuntimeError, match="the sandbox is closed"):
            sandbox.pool(1)
        pool.close()

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("preload", "says"),
        [(["no_such_module"], "No module named 'no_such_module'"), (["os.path.no"], "os.path.no")],
    )
    def test_modules_that_are_not_there(self, sandbox, preload, says):
        with pytest.raises(SandboxError, match=says) as raised:
            sandbox.pool(2, preload)
        assert f"cannot import {preload[0]!r} (preload=): " in str(raised.value)
        assert "Traceback" not in str(raised.value)
        assert sandbox.run("1").success

    @pytest.mark.slow
    def test_nothing_native_is_left_to_be_freed(self, sandbox):
        """By the garbage collector, perhaps under a guard, where native calls are denied."""
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(SandboxError) as raised:
                sandbox.pool(2, ["no_such_module"])
            found = [type(one).__name__ for one in gc.get_objects()]
        finally:
            gc.enable()
        assert raised.value.args
        assert "_NativePolicy" not in found

    @pytest.mark.parametrize(
        ("arguments", "error", "says"),
        [
            ((0,), ValueError, "size must be positive, not 0"),
            (("2",), TypeError, "size must be a whole number, not str"),
            ((True,), TypeError, "size must be a whole number, not bool"),
            ((1, "numpy"), TypeError, "preload must be a list of modules, not str"),
            ((1, [1]), TypeError, r"preload\[0\] must be the name of a module, not int"),
        ],
    )
    def test_bad_arguments(self, sandbox, arguments, error, says):
        with pytest.raises(error, match=says):
            sandbox.pool(*arguments)
