"""Copies of the process that guarded code makes end where its guard does."""

import os
import sys
import textwrap

import programs
import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="has no fork")

#: The exit status of a copy that came to the end of its guard.
STATUS = 70

PROGRAM = """
import asyncio, atexit, contextlib, contextvars, multiprocessing, os, pty, signal, subprocess, sys
import threading, time
from fastaudit_rs import Policy, mk_audit, v02

guard = {guard}
host = os.getpid()


def ended(pid):
    "The exit status of a copy."
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def says(text):
    "Says something at once, and what process does."
    os.write(1, f"{{'host' if os.getpid() == host else 'copy'}}: {{text}}\\n".encode())


{code}
"""

GUARDS = {
    "mk_audit": "mk_audit(['.'], monitor_calls=False)",
    "v02": "v02.mk_audit(['.'], monitor_calls=False)",
    "policy": "Policy(write=['.']).guard(monitor_calls=False)",
    "workspace": "Policy.preset('workspace').guard(monitor_calls=False)",
}


@pytest.fixture(params=GUARDS)
def guard(request):
    return GUARDS[request.param]


@pytest.fixture
def run(tmp_path, guard):
    """`run(code)`: runs it as a program; what it prints, and what its copies tell."""

    def run(code):
        program = PROGRAM.format(guard=guard, code=textwrap.dedent(code))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = programs.ran(program, options=["-W", "ignore"], cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines(), done.stderr

    return run


def is_told_once(errors):
    return errors.count("a copy of the process, made by guarded code, ends here") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "fork", ["os.fork()", "os.forkpty()[0]", "pty.fork()[0]"], ids=lambda fork: fork.split("(")[0]
)
def test_that_falls_out_of_the_block(run, fork):
    code = f"""
    atexit.register(says, "at exit")
    with guard():
        pid = {fork}
        says("guarded")
    says("on")
    assert ended(pid) == {STATUS}
    """
    said, errors = run(code)
    # The copy's output in a terminal of its own is not seen here.
    assert [line for line in said if "host" in line] == [
        "host: guarded",
        "host: on",
        "host: at exit",
    ]
    assert "copy: on" not in said and "copy: at exit" not in said
    assert fork != "os.fork()" or is_told_once(errors)


def test_text_that_it_printed_is_not_lost(run):
    code = f"""
    with guard():
        pid = os.fork()
        if not pid:
            print("from the copy")
    assert ended(pid) == {STATUS}
    """
    assert run(code)[0] == ["from the copy"]


@pytest.mark.parametrize(
    "leave",
    [
        "decorated()",
        "asyncio.run(awaited())",
        "stacked()",
        "nested()",
        "inner()",
        "generated()",
        "by_hand()",
        "returned()",
        "asynchronous_with()",
    ],
)
def test_however_the_guard_was_entered(run, leave):
    code = f"""
    pids = []
    def fork():
        pids.append(os.fork())

    @guard()
    def decorated():
        fork()

    @guard()
    async def awaited():
        fork()

    def stacked():
        with contextlib.ExitStack() as stack:
            stack.enter_context(guard())
            fork()

    def nested():
        with guard():
            with guard():
                fork()
            says("outer")

    def inner():
        "One that was entered in the copy is left as ever."
        with guard():
            fork()
            with guard():
                says("inner")
            says("after the inner")
        says("after all")

    def generated():
        def generator():
            with guard():
                fork()
                yield 1
                says("goes on")
        for _ in generator():
            pass

    def by_hand():
        entered = guard()
        entered.__enter__()
        fork()
        entered.__exit__(None, None, None)

    def returned():
        with guard():
            fork()
            return 1

    def asynchronous_with():
        async def main():
            async with guard():
                fork()
        asyncio.run(main())

    {leave}
    says("on")
    assert ended(pids[0]) == {STATUS}
    """
    said, errors = run(code)
    assert "host: on" in said and "copy: on" not in said
    assert "copy: outer" not in said and "copy: after all" not in said
    if leave == "inner()":
        assert "copy: inner" in said and "copy: after the inner" in said
    assert is_told_once(errors)


@pytest.mark.parametrize(
    ("end", "status", "told"),
    [
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('goodbye')", 1, "goodbye\n"),
        ("os._exit(7)", 7, ""),
        ("open('/fastaudit-no')", 1, "FileNotFoundError"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt"),
        ("raise GeneratorExit", STATUS, "ends here"),
    ],
)
def test_that_ends_by_an_exception(run, end, status, told):
    """As a program would; no handler of the host's sees it."""
    code = f"""
    sys.excepthook = lambda *error: says("hook")
    atexit.register(says, "at exit")
    try:
        with guard():
            pid = os.fork()
            if not pid:
                {end}
    except BaseException:
        says("caught")
    finally:
        says("finally")
    assert ended(pid) == {status}
    """
    said, errors = run(code)
    assert said == ["host: finally", "host: at exit"]
    assert told in errors and "ends here" not in errors.replace(told, "")
    if "Error" in told:
        # Lines of `-c` are shown from 3.13 on.
        assert "Traceback" in errors and (end in errors or sys.version_info < (3, 13))


def test_an_exception_that_guarded_code_catches(run):
    code = """
    with guard():
        pid = os.fork()
        if not pid:
            try:
                sys.exit(3)
            except SystemExit:
                os._exit(5)
    assert ended(pid) == 5
    """
    assert run(code) == ([], "")


def test_a_copy_of_a_copy(run):
    code = f"""
    with guard():
        pid = os.fork()
        if not pid:
            os._exit(ended(os.fork() or sys.exit(4)))
    assert ended(pid) == 4
    with guard():
        pid = os.fork()
        if not pid:
            second = os.fork()
            if second:
                os._exit(ended(second))
    assert ended(pid) == {STATUS}
    """
    assert is_told_once(run(code)[1])


#: Since 3.14 asyncio has no running loop in a copy: the step of the task raises an error.
IN_LOOP = STATUS if sys.version_info < (3, 14) else 1

needs_loop = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="the loop of a copy does not go on"
)


class TestTasks:
    """A step of a task that is over goes back to the host's event loop."""

    def test_the_loop_does_not_go_on(self, run):
        code = f"""
        pids = []
        async def job():
            pids.append(os.fork())
            await asyncio.sleep(0)
            says("job")

        async def other():
            for _ in range(20):
                await asyncio.sleep(0.01)
                says("other")

        async def main():
            begun = asyncio.create_task(other())
            async with guard():
                await asyncio.create_task(job())
            await begun

        asyncio.run(main())
        assert ended(pids[0]) == {IN_LOOP}
        """
        said, errors = run(code)
        assert "host: job" in said and "copy: job" not in said and "copy: other" not in said
        assert is_told_once(errors) or IN_LOOP == 1

    @needs_loop
    def test_a_loop_that_is_guarded_itself_goes_on(self, run):
        code = f"""
        pids = []
        async def job():
            pids.append(os.fork())
            await asyncio.sleep(0)
            says("job")

        async def main():
            await asyncio.create_task(job())

        with guard():
            asyncio.run(main())
        says("on")
        assert ended(pids[0]) == {STATUS}
        """
        said, errors = run(code)
        assert sorted(said) == ["copy: job", "host: job", "host: on"]
        assert is_told_once(errors)

    def test_context_run(self, run):
        code = f"""
        with guard():
            pid = contextvars.Context().run(os.fork)
            says("guarded")
        says("on")
        assert ended(pid) == {STATUS}
        """
        assert sorted(run(code)[0]) == ["copy: guarded", "host: guarded", "host: on"]

    def test_a_context_that_is_entered_later(self, run):
        code = f"""
        with guard():
            context = contextvars.copy_context()
        pid = context.run(os.fork)
        says("on")
        assert ended(pid) == {STATUS}
        """
        assert run(code)[0] == ["host: on"]


@pytest.mark.parametrize("guard", [GUARDS["v02"]])
def test_a_job_in_a_pool_of_threads(run):
    """Under the rules of 0.2 the process may be copied where threads run."""
    code = f"""
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(1) as executor:
        executor.submit(int).result()
        with guard():
            pid = executor.submit(os.fork)
            after = executor.submit(says, "next")
        assert ended(pid.result()) == {STATUS}
    """
    said, errors = run(code)
    assert said == ["host: next"] and is_told_once(errors)


class TestLeftAlone:
    """Copies that end by themselves, and those that guarded code did not make."""

    def test_multiprocessing(self, run):
        code = """
        with guard():
            process = multiprocessing.get_context("fork").Process(target=says, args=("worker",))
            process.start()
            process.join()
        assert process.exitcode == 0
        """
        assert run(code) == (["copy: worker"], "")

    def test_programs(self, run):
        code = """
        allowed = Policy(write=["."], commands=["echo"]).guard(monitor_calls=False)
        with allowed():
            assert subprocess.run(["echo", "a"], capture_output=True, text=True).stdout == "a\\n"
            subprocess.run(["echo", "a"], preexec_fn=lambda: None, check=True)
        """
        assert run(code) == (["a"], "")

    def test_a_copy_that_the_host_makes(self, run):
        code = """
        pid = os.fork()
        with guard():
            says("guarded")
        says("on")
        if not pid:
            os._exit(3)
        assert ended(pid) == 3
        """
        assert sorted(run(code)[0]) == [
            f"{who}: {what}" for who in ("copy", "host") for what in ("guarded", "on")
        ]

    @needs_loop
    def test_a_copy_that_the_host_makes_beside_a_guarded_task(self, run):
        code = """
        pids = []
        async def guarded():
            async with guard():
                await asyncio.sleep(0.05)
            says("after the guard")

        async def main():
            task = asyncio.create_task(guarded())
            await asyncio.sleep(0)
            pids.append(os.fork())
            await asyncio.sleep(0)
            says("host's")
            if os.getpid() != host:
                await task
                os._exit(3)

        asyncio.run(main())
        assert ended(pids[0]) == 3
        """
        said = run(code)[0]
        assert "copy: host's" in said and "copy: after the guard" in said


@pytest.mark.parametrize("name", ["run", "learn", "trace"])
def test_of_a_program_that_the_command_runs(name, places, command):
    """The copy ends as the program does."""
    with open("program.py", "w") as file:
        file.write(
            "import os\npid = os.fork()\nprint('first' if pid else 'copy', flush=True)\n"
            "if pid:\n    assert os.waitpid(pid, 0)[1] == 0\n"
        )
    done = command(name, *(["--write", "."] if name == "run" else []), "program.py")
    assert done.returncode == 0, done.stderr
    # The policy is on the standard output.
    printed = done.stderr if name == "learn" else done.stdout
    assert sorted(printed.split()[:2]) == ["copy", "first"]
    assert "ends here" not in done.stderr
