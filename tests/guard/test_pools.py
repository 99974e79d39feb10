"""Pools of processes: their workers run under the guard, or are denied before any runs."""

import importlib.util
import os
import sys
import textwrap

import programs
import pytest
from repository import ROOT

METHODS = ["fork", "spawn", "forkserver"]

PRESETS = ["workspace", "notebook"]

#: The beginning of a program that uses pools: it is run as a script, which workers import.
PROGRAM = """
import glob, multiprocessing, multiprocessing.pool, os, subprocess, sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import shared_memory
from fastaudit_rs import AuditDenied, Policy, mk_audit, v02

OUT = {out!r}


def double(x):
    return 2 * x


def write(path):
    with open(path, "w") as file:
        file.write("x")


def run_python(path):
    subprocess.run([sys.executable, "-c", f"open({{path!r}}, 'w')"])


def put(queue, what):
    queue.put(what)


def fill(name):
    memory = shared_memory.SharedMemory(name=name)
    memory.buf[0] = 7
    memory.close()


def share():
    memory = shared_memory.SharedMemory(create=True, size=10)
    memory.close()
    return memory.name


def raised(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except BaseException as error:
        return error


def main(context, guard):
{code}


if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
{before}
    main(context, {guard})
    print("done")
"""

COMMANDS = "Policy(write=['.'], commands=[sys.executable]).guard(monitor_calls=False)"

#: Guards that let no threads start, and so no pools.
CLOSED = {
    "mk_audit": "mk_audit(['.'], monitor_calls=False)",
    "v02": "v02.mk_audit(['.'], monitor_calls=False)",
    "policy": "Policy(write=['.']).guard(monitor_calls=False)",
}
#: Before 3.12 no event tells the first two that a thread starts.
TOLD = list(CLOSED.values())[0 if sys.version_info >= (3, 12) else 2 :]


def preset(name):
    return f"Policy.preset({name!r}).guard()"


@pytest.fixture
def run(tmp_path):
    """`run(code, guard, method)`: runs it in a process of its own, as a script; what it prints."""
    (tmp_path / "cwd").mkdir()
    (tmp_path / "out").mkdir()

    def run(code, guard, method="spawn", before="", python=sys.executable, timeout=60):
        indented = [textwrap.indent(textwrap.dedent(text), "    ") for text in (code, before)]
        program = PROGRAM.format(
            out=str(tmp_path / "out"),
            code=indented[0],
            before=indented[1],
            method=method,
            guard=guard,
        )
        (tmp_path / "program.py").write_text(program)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = programs.run(
            [python, tmp_path / "program.py"],
            cwd=tmp_path / "cwd",
            env=environment,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("done\n"), done.stderr
        assert os.listdir(tmp_path / "out") == []
        return done.stdout.removesuffix("done\n"), done.stderr

    return run


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", PRESETS)
class TestPresets:
    """They let pools of each kind run; what their workers do is judged as in the process itself."""

    def test_pools_and_executors(self, run, name, method):
        """Also one that is busy as it ends."""
        code = """
        def check(get):
            for function, event in ((write, "open"), (run_python, "subprocess.Popen")):
                error = raised(get, function, OUT + "/a")
                assert type(error) is AuditDenied and error.event == event, error

        begun = time.monotonic()
        with guard() as entered:
            with context.Pool(2) as pool:
                assert pool.map(double, range(5)) == [0, 2, 4, 6, 8]
                check(lambda function, path: pool.apply(function, (path,)))
                pool.apply(write, ("inside",))
                pool.apply_async(time.sleep, (60,))
            with ProcessPoolExecutor(2, mp_context=context) as pool:
                assert list(pool.map(double, range(5))) == [0, 2, 4, 6, 8]
                check(lambda function, path: pool.submit(function, path).result())
        assert os.path.exists("inside")
        assert entered.violation_count == 0
        assert time.monotonic() - begun < 40
        assert multiprocessing.active_children() == []
        """
        run(code, preset(name), method)

    def test_queues_values_arrays_and_shared_memory(self, run, name, method):
        code = """
        with guard() as entered:
            queue = context.Queue()
            process = context.Process(target=put, args=(queue, 5))
            process.start()
            assert queue.get(timeout=20) == 5
            process.join()
            memory = shared_memory.SharedMemory(create=True, size=10)
            process = context.Process(target=fill, args=(memory.name,))
            process.start()
            process.join()
            assert memory.buf[0] == 7
            again = shared_memory.SharedMemory(name=memory.name)
            again.close()
            memory.close()
            memory.unlink()
            assert context.Value("i", 3).value == 3
            assert list(context.Array("d", 2)) == [0, 0]
        assert entered.violation_count == 0
        assert not os.path.exists("/dev/shm/" + memory.name)
        """
        _, errors = run(code, preset(name), method)
        assert errors == ""

    def test_a_manager(self, run, name, method):
        code = """
        with guard() as entered:
            with context.Manager() as manager:
                found = manager.dict()
                found["a"] = 1
                assert dict(found) == {"a": 1}
        assert entered.violation_count == 0
        """
        run(code, preset(name), method)

    def test_where_other_threads_run(self, run, name, method):
        """As in a kernel."""
        before = """
        import threading
        go = threading.Event()
        threading.Thread(target=go.wait, daemon=True).start()
        """
        code = """
        import warnings
        warnings.simplefilter("ignore")
        with guard():
            with context.Pool(2) as pool:
                assert pool.map(double, range(3)) == [0, 2, 4]
        """
        run(code, preset(name), method, before)


class TestWorkers:
    """Workers that are started anew are guarded before anything else runs."""

    def test_what_is_not_a_worker_does_not_start(self, run):
        code = """
        from multiprocessing import spawn, util
        path = OUT + "/a"
        with guard():
            for command in (
                [sys.executable, "-c", f"open({path!r}, 'w')"],
                [sys.executable, "-c", f"open({path!r}, 'w')", "--multiprocessing-fork"],
                [sys.executable, "-m", "http.server"],
                [sys.executable, "script.py"],
            ):
                error = raised(util.spawnv_passfds, os.fsencode(sys.executable), command, ())
                assert type(error) is AuditDenied and error.rule == "commands", error
                error = raised(subprocess.run, command)
                assert type(error) is AuditDenied, error
            command = spawn.get_command_line(tracker_fd=3, pipe_handle=4)
            assert type(raised(subprocess.run, command)) is AuditDenied
            error = raised(util.spawnv_passfds, b"/bin/sh", command, ())
            assert type(error) is AuditDenied, error
        """
        run(code, preset("notebook"))

    def test_code_that_lies_in_the_current_directory_does_not_come_first(self, run):
        code = """
        with guard():
            for name in ("fastaudit_rs", "contextlib", "multiprocessing"):
                write(name + ".py")
                with open(name + ".py", "w") as file:
                    file.write(f"open({OUT + '/a'!r}, 'w')")
            process = context.Process(target=write, args=("inside",))
            process.start()
            process.join()
        """
        run(code, preset("workspace"))

    def test_other_interpreters(self, run):
        code = """
        with guard():
            context.set_executable("/bin/echo")
            process = context.Process(target=double, args=(1,))
            error = raised(process.start)
        assert type(error) is AuditDenied, error
        """
        run(code, preset("workspace"))

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_shared_memory_made_later(self, run, method):
        """By the process that started them, or by them."""
        before = "from multiprocessing import resource_tracker; resource_tracker.ensure_running()"
        code = """
        with guard() as entered:
            with context.Pool(1) as pool:
                pool.apply(double, (1,))
                own = shared_memory.SharedMemory(create=True, size=10)
                pool.apply(fill, (own.name,))
                assert own.buf[0] == 7
                theirs = shared_memory.SharedMemory(name=pool.apply(share))
            for memory in (own, theirs):
                memory.close()
                memory.unlink()
        assert entered.violation_count == 0
        """
        run(code, preset("workspace"), method, before)

    def test_a_manager_where_the_host_has_a_directory_for_sockets(self, run):
        before = "from multiprocessing import util; util.get_temp_dir()"
        code = """
        with guard():
            with context.Manager():
                pass
        assert os.listdir(multiprocessing.util.get_temp_dir()) == []
        """
        _, errors = run(code, preset("workspace"), "fork", before)
        assert errors == ""

    def test_without_inherited_threads_they_do_not_start(self, run):
        code = """
        with guard():
            error = raised(context.Process(target=double, args=(1,)).start)
        assert type(error) is AuditDenied and error.rule == "commands", error
        assert error.hint == "commands = ['python']"
        """
        run(code, "Policy(write=['.']).guard(monitor_calls=False)")

    def test_python_that_may_be_started(self, run):
        """As any program, without the guard."""
        code = """
        with guard():
            process = context.Process(target=double, args=(1,))
            process.start()
            process.join()
            assert process.exitcode == 0
            memory = shared_memory.SharedMemory(create=True, size=10)
            memory.close()
            memory.unlink()
        """
        for method in ("spawn", "forkserver"):
            run(code, COMMANDS, method)

    @pytest.mark.slow
    def test_also_under_an_installed_policy(self, run):
        before = "Policy.preset('workspace').install(monitor_calls=False)"
        code = """
        with context.Pool(1) as pool:
            assert pool.apply(double, (2,)) == 4
            assert type(raised(pool.apply, write, (OUT + "/a",))) is AuditDenied
            assert type(raised(subprocess.run, [sys.executable, "-c", ""])) is AuditDenied
        """
        for method in METHODS:
            run(code, "None", method, before)

    def test_the_rest_of_the_policy_holds_too(self, run):
        code = """
        with guard():
            with context.Pool(1) as pool:
                error = raised(pool.apply, os.listdir, (OUT,))
                assert type(error) is AuditDenied and error.rule == "read", error
                error = raised(pool.apply, os.putenv, ("A", "b"))
                assert type(error) is AuditDenied and error.rule == "env", error
        """
        # This package may not be installed.
        guard = f"Policy(write=['.'], read=['.', {str(ROOT)!r}], threads='inherit')"
        run(code, guard + ".guard(monitor_calls=False)")

    def test_they_read_the_program_where_reading_is_restricted(self, run):
        """A pool starts workers for ever if each of them fails to."""
        code = """
        with guard() as entered:
            with context.Pool(1) as pool:
                assert pool.map(double, [1]) == [2]
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                assert list(pool.map(double, [1])) == [2]
                error = raised(pool.submit(open, OUT + "/../other").result)
                assert type(error) is AuditDenied and "program.py" not in str(error), error
        assert entered.violation_count == 0
        """
        guard = f"Policy(write=['.'], read=['.', {str(ROOT)!r}], threads='inherit')"
        for method in METHODS:
            run(code, guard + ".guard()", method)

    def test_their_denials_are_told_as_those_of_the_host(self, run):
        code = """
        def told(error):
            return error.message, error.hint

        with guard():
            here = told(raised(open, OUT + "/a", "w"))
            with context.Pool(1) as pool:
                assert told(raised(pool.apply, open, (OUT + "/a", "w"))) == here
        """
        for method in METHODS:
            run(code, preset("workspace"), method)


class TestWhatTheHostHas:
    """The server of workers is one for the process: it is the host's or the guard's, never both."""

    @pytest.mark.slow
    def test_its_server_makes_no_workers_for_guarded_code(self, run):
        before = """
        with context.Pool(1) as pool:
            pool.apply(double, (1,))
        """
        code = """
        with guard():
            error = raised(context.Process(target=write, args=(OUT + "/a",)).start)
        assert type(error) is AuditDenied and "without this guard" in error.message, error
        with context.Pool(1) as pool:
            assert pool.apply(double, (1,)) == 2
        """
        run(code, preset("notebook"), "forkserver", before)
        run(code, "mk_audit(['.'], monitor_calls=False)", "forkserver", before)

    def test_that_of_a_guard_makes_none_for_the_host(self, run):
        code = """
        with guard():
            with context.Pool(1) as pool:
                assert type(raised(pool.apply, write, (OUT + "/a",))) is AuditDenied
        with context.Pool(1) as pool:
            pool.apply(write, (OUT + "/a",))
        os.remove(OUT + "/a")
        with guard():
            error = raised(context.Process(target=write, args=(OUT + "/a",)).start)
            assert type(error) is AuditDenied, error
        """
        run(code, preset("workspace"), "forkserver")

    def test_that_of_a_guard_removes_its_temporary_files(self, run):
        """It is ended by what ends it without a guard, so that it sees to them."""
        code = """
        import glob, tempfile, time
        from multiprocessing import forkserver
        with guard():
            with context.Pool(1) as pool:
                pool.apply(tempfile.gettempdir)
        server = forkserver._forkserver._forkserver_pid
        begun = time.monotonic()
        with context.Pool(1) as pool:
            pool.apply(double, (1,))
        assert forkserver._forkserver._forkserver_pid != server
        assert not os.path.exists(f"/proc/{server}")
        left = glob.glob(tempfile.gettempdir() + "/fastaudit_*")
        assert len(left) <= 1, left
        """
        # Other tests make such directories too, and names of sockets are short.
        before = (
            "import tempfile; own = tempfile.mkdtemp(dir='/tmp')\n"
            "tempfile.tempdir = os.environ['TMPDIR'] = own"
        )
        run(code, preset("workspace"), "forkserver", before)

    def test_that_of_a_guard_makes_none_for_another(self, run):
        code = """
        with guard():
            with context.Pool(1) as pool:
                pool.apply(double, (1,))
        with Policy.preset("readonly").guard()():
            with context.Pool(1) as pool:
                assert type(raised(pool.apply, write, ("a",))) is AuditDenied
        """
        run(textwrap.dedent(code), preset("workspace"), "forkserver")

    @pytest.mark.slow
    def test_its_managers_and_temporary_files_work_after_a_guard(self, run):
        code = """
        with guard():
            with context.Manager() as manager:
                assert dict(manager.dict(a=1)) == {"a": 1}
        with context.Manager() as manager:
            assert dict(manager.dict(a=1)) == {"a": 1}
        directory = multiprocessing.util.get_temp_dir()
        assert os.path.isdir(directory)
        """
        for method in METHODS:
            _, errors = run(
                "import multiprocessing.util\n" + textwrap.dedent(code), preset("workspace"), method
            )
            assert errors == ""


class TestDenied:
    """Under a guard that lets no threads start a pool is denied as it is made."""

    @pytest.mark.parametrize("guard", TOLD)
    @pytest.mark.parametrize("method", METHODS)
    def test_before_anything_runs(self, run, guard, method):
        before = "from multiprocessing import resource_tracker; resource_tracker.ensure_running()"
        code = """
        def use(make):
            with guard():
                with make() as pool:
                    pool.submit(double, 1)

        for make in (
            lambda: ProcessPoolExecutor(2, mp_context=context),
            lambda: context.Pool(2),
            lambda: multiprocessing.pool.ThreadPool(2),
        ):
            error = raised(use, make)
            assert type(error) is AuditDenied, error
            assert error.event.startswith("_thread."), error
            assert "threads of its own" in error.message
            assert multiprocessing.active_children() == []
        """
        run(code, guard, method, before, timeout=20)

    @pytest.mark.parametrize("guard", [*TOLD, COMMANDS])
    @pytest.mark.parametrize("method", METHODS)
    def test_that_was_made_before(self, run, guard, method):
        """It has no processes and no threads before it gets its first job."""
        before = "global pool; pool = ProcessPoolExecutor(1, mp_context=context)"
        code = """
        with guard():
            error = raised(pool.submit, double, 1)
        assert type(error) is AuditDenied, error
        assert multiprocessing.active_children() == []
        pool.shutdown()
        """
        if guard == COMMANDS:
            code += 'assert "threads of its own" in error.message and error.rule == "threads"'
        run(code, guard, method, before, timeout=20)

    @pytest.mark.parametrize("guard", TOLD)
    @pytest.mark.parametrize("method", METHODS)
    def test_managers_and_processes(self, run, guard, method):
        """A copy may be made, as by `os.fork`; a manager's server needs threads."""
        code = """
        from multiprocessing.managers import BaseManager
        copies = context.get_start_method() == "fork"
        with guard() as entered:
            for make in (context.Manager, BaseManager(ctx=context).start):
                error = raised(make)
                assert type(error) is AuditDenied, error
                assert not copies or "Manager starts threads of its own" in error.message, error
                assert error.hint
            count = entered.violation_count
            process = context.Process(target=double, args=(1,))
            error = raised(process.start)
            if copies:
                assert error is None
                process.join()
            else:
                assert type(error) is AuditDenied and error.hint, error
        assert multiprocessing.active_children() == []
        """
        _, errors = run(code, guard, method, timeout=20)
        assert errors == ""

    @pytest.mark.parametrize("kind", CLOSED)
    def test_a_queue_of_a_copy_is_fed(self, run, kind):
        code = """
        with guard():
            queue = context.Queue()
            process = context.Process(target=put, args=(queue, 5))
            process.start()
            assert queue.get(timeout=10) == 5
            process.join()
            queue.put(6)
            assert queue.get(timeout=10) == 6
        """
        run(code, CLOSED[kind], "fork")

    @pytest.mark.parametrize("kind", CLOSED)
    def test_what_feeds_it_keeps_the_guard(self, run, kind):
        """Objects that are put into it are pickled there."""
        code = """
        class Pickled:
            def __reduce__(self):
                write(OUT + "/a")
                return (int, ())

        with guard() as entered:
            queue = context.Queue()
            queue.put(Pickled())
            queue.close()
            queue.join_thread()
        """
        _, errors = run(code, CLOSED[kind], "fork")
        assert "AuditDenied" in errors


class TestSharedMemory:
    """Shared memory of others is not the guard's."""

    @pytest.fixture
    def theirs(self):
        path = f"/dev/shm/psm_theirs{os.getpid()}"
        with open(path, "w") as file:
            file.write("x" * 100)
        yield os.path.basename(path)
        os.unlink(path)

    def test_that_of_others(self, run, theirs):
        code = f"""
        name = {theirs!r}
        with guard():
            error = raised(shared_memory.SharedMemory, name=name)
            assert type(error) is AuditDenied, error
            error = raised(shared_memory.SharedMemory, name=name, create=True, size=10)
            assert type(error) is AuditDenied, error
            error = raised(shared_memory.SharedMemory, name=name)
            assert type(error) is AuditDenied, error
            error = raised(os.remove, "/dev/shm/" + name)
            assert type(error) is AuditDenied, error
            own = shared_memory.SharedMemory(name="psm_own" + str(os.getpid()), create=True, size=9)
            own.close()
            own.unlink()
            error = raised(open, "/dev/shm/psm_a", "w")
            assert type(error) is AuditDenied, error
        """
        run(code, preset("workspace"))

    @pytest.mark.parametrize("name", PRESETS)
    def test_what_is_forgotten_is_removed_and_nothing_of_others(self, run, theirs, name):
        # The tracker ends after the program, and keeps its stderr: `run` waits for it.
        own = [f"{start}_forgotten{os.getpid()}" for start in ("psm", "data", "host")]
        code = f"""
        with guard():
            for name in {own[:2]!r}:
                shared_memory.SharedMemory(name=name, create=True, size=10)
            from multiprocessing import resource_tracker
            resource_tracker.register("/" + {theirs!r}, "shared_memory")
            path = "/dev/shm/" + {theirs!r}
            error = raised(os.setxattr, path, "user.fastaudit", b"x")
            assert type(error) is AuditDenied, error
        shared_memory.SharedMemory(name={own[2]!r}, create=True, size=10)
        """
        run(code, preset(name))
        assert [each for each in [*own, theirs] if os.path.exists("/dev/shm/" + each)] == [theirs]

    def test_where_no_pool_may_run(self, run):
        code = """
        with guard():
            error = raised(shared_memory.SharedMemory, create=True, size=10)
        assert type(error) is AuditDenied, error
        assert glob.glob(f"/dev/shm/psm_*") == before
        """
        before = "global before; before = glob.glob('/dev/shm/psm_*')"
        run(code, CLOSED["policy"], "fork", before)


needs_joblib = pytest.mark.skipif(not importlib.util.find_spec("joblib"), reason="needs joblib")


@needs_joblib
@pytest.mark.parametrize("name", PRESETS)
class TestJoblib:
    @pytest.mark.parametrize("imported", ["before", "inside"])
    def test_parallel(self, run, name, imported):
        before = "import joblib" if imported == "before" else ""
        code = """
        with guard() as entered:
            from joblib import Parallel, delayed
            assert Parallel(n_jobs=2)(delayed(double)(i) for i in range(4)) == [0, 2, 4, 6]
            error = raised(Parallel(n_jobs=2), [delayed(write)(OUT + "/a")])
            assert type(error) is AuditDenied, error
        assert entered.violation_count == 0, entered.violations
        """
        run(code, preset(name), "spawn", before)

    def test_the_executor_that_is_used_again(self, run, name):
        """One for the process; its workers are those of the guard that they were started under."""
        code = """
        from joblib import Parallel, delayed
        def pids():
            return set(Parallel(n_jobs=2)(delayed(os.getpid)() for _ in range(4)))
        with guard():
            inside = pids()
            assert pids() & inside
        Parallel(n_jobs=2)([delayed(write)(OUT + "/a")])
        os.remove(OUT + "/a")
        assert not pids() & inside
        """
        run(code, preset(name), "spawn")

    def test_shared_arrays(self, run, name):
        pytest.importorskip("numpy")
        code = """
        import numpy
        from joblib import Parallel, delayed
        with guard() as entered:
            array = numpy.ones((1000, 500))
            found = Parallel(n_jobs=2)(delayed(numpy.sum)(array) for _ in range(2))
        assert found == [500000, 500000]
        assert entered.violation_count == 0, entered.violations
        """
        _, errors = run(code, preset(name), "spawn")
        assert "Error" not in errors


@needs_joblib
def test_shared_arrays_where_reading_is_restricted(run):
    pytest.importorskip("numpy")
    code = """
    import numpy
    from joblib import Parallel, delayed
    with guard() as entered:
        array = numpy.ones((1000, 500))
        assert Parallel(n_jobs=2)(delayed(numpy.sum)(array) for _ in range(2)) == [500000] * 2
    assert entered.violation_count == 0, entered.violations
    """
    # psutil, if it is installed, looks at the workers there.
    policy = 'Policy.preset("workspace").replace(read=["/proc"]).guard()'
    _, errors = run(code, policy, "spawn")
    assert errors == ""


@needs_joblib
def test_under_mk_audit_that_names_packages(run):
    code = """
    from joblib import Parallel, delayed
    with guard():
        assert Parallel(n_jobs=2)(delayed(double)(i) for i in range(4)) == [0, 2, 4, 6]
        error = raised(Parallel(n_jobs=2), [delayed(write)(OUT + "/a")])
        assert type(error) is AuditDenied, error
    """
    run(code, "mk_audit(['.'], packages='data')", "spawn")
