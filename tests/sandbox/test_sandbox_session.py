"""Sessions in sandboxes: steps in one process, values in and out, tools of the host."""

import asyncio
import gc
import inspect
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from programs import SLOWER
from sandboxes import LOOSE, gone, of, running
from waiting import until

from fastaudit_rs import Limits, Sandbox, SandboxError, mk_audit

#: A step that no exception ends.
STUBBORN = """
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
"""


@pytest.mark.slow
def test_two_at_once_and_a_run_beside(shared):
    with shared.session() as first, shared.session() as second:
        first.run("x = 1")
        second.run("x = 2")
        assert (first.get("x"), second.get("x")) == (1, 2)
        assert shared.run("'x' in globals()", value=True).value is False


@pytest.mark.parametrize(
    "code",
    [
        "os.dup2(os.open('out', os.O_CREAT | os.O_WRONLY), 1)",
        "os.close(1)",
        "os.close(1); file = open('out', 'w')",
        "os.dup2(2, 1)",
    ],
)
def test_output_after_a_step_that_redirects_it(session, code):
    session.run(f"import os, subprocess, sys\n{code}")
    say = "print('one', flush=True); subprocess.run(['echo', 'two'])"
    assert session.run(say).stdout == "one\ntwo\n"
    session.undo()
    session.run("os.dup2(1, 2)")
    ran = session.run("os.write(2, b'three')")
    assert (ran.stdout, ran.stderr) == ("", "three")


def test_a_variable_whose_package_is_not_there(shared):
    numpy = pytest.importorskip("numpy")
    with shared.session() as session:
        session.run("import sys; sys.modules['numpy'] = None; x = 1")
        ran = session.run("2", variables={"a": numpy.arange(3)})
        assert str(ran.error) == "ValueError: the package 'numpy' is not installed here"
        assert (ran.value, ran.returncode, session.get("x")) == (None, 1, 1)


def add(a: int, b: int = 2, *, c=None) -> int:
    """Add two numbers."""
    return a + b


class TestTools:
    @pytest.fixture
    def session(self, shared):
        with shared.session(tools={"add": add, "strange": object}) as made:
            yield made

    def test_what_code_sees_of_them(self, session):
        ran = session.run(
            "import inspect; [add.__name__, add.__doc__, str(inspect.signature(add))]"
        )
        assert ran.value == ["add", "Add two numbers.", str(inspect.signature(add))]
        assert session.names == ["inspect"]
        assert "its result" in session.run("strange()").error.message

    def test_those_of_a_step_last(self, session):
        assert session.run("double(4)", tools={"double": lambda x: 2 * x}).value == 8
        assert session.run("double(5)").value == 10
        session.reset()
        assert session.run("double(5)").error.kind == "NameError"
        assert session.run("add(5)").value == 7

    def test_one_that_nobody_awaits(self, session):
        async def slow():
            pass

        ran = session.run("slow()\n1", tools=[slow])
        assert "coroutine 'slow' was never awaited" in ran.stderr

    def test_a_call_that_the_step_leaves(self, session):
        async def slow():
            await asyncio.sleep(60)

        begin = "import asyncio\ntask = asyncio.create_task(slow())\nawait asyncio.sleep(0)"
        assert session.run(begin, tools=[slow]).success
        assert "the step that made it has ended" in session.run("await task").error.message

    def test_from_threads(self, session):
        code = """
            from concurrent.futures import ThreadPoolExecutor
            with ThreadPoolExecutor(8) as pool:
                found = list(pool.map(add, range(50)))
            found == [n + 2 for n in range(50)]
        """
        assert session.run(inspect.cleandoc(code)).value is True

    def test_a_budget(self, shared):
        with shared.session(tools={"add": add}, tool_calls=5) as session:
            assert session.run("[add(1) for _ in range(5)]").value == [3] * 5
            ran = session.run("[add(1) for _ in range(6)]")
            assert ran.error.kind == "RuntimeError" and "more than 5 calls" in ran.error.message

    def test_an_interrupt_of_the_host_in_a_function(self, session):
        def stop():
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            session.run("x = 1\nstop()", tools={"stop": stop})
        assert session.run("x").value == 1

    def test_a_signal_that_ends_the_host_in_a_function(self, session):
        """As that of a supervisor, whose handler exits."""

        def end(number, frame):
            raise SystemExit(3)

        def slow():
            signal.raise_signal(signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, end)
        try:
            with pytest.raises(SystemExit):
                session.run("x = 1\nslow()", tools=[slow])
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert session.run("x").value == 1


class TestUndo:
    @pytest.mark.slow
    def test_several(self, shared):
        with shared.session(undo_depth=3) as session:
            for number in range(5):
                session.run(f"x = {number}")
            for number in (3, 2, 1):
                session.undo()
                assert session.get("x") == number
            with pytest.raises(RuntimeError, match="no state"):
                session.undo()
            session.run("x = 10")
            session.run("x = 11")
            session.undo()
            assert session.get("x") == 10

    def test_none(self, shared):
        with shared.session(undo_depth=0) as session:
            session.run("x = 1")
            with pytest.raises(RuntimeError, match="keeps 0"):
                session.undo()

    def test_an_event_loop(self, session):
        """Its descriptors are shared with the process that has ended."""

        async def slow(value):
            await asyncio.sleep(0.05)
            return value

        session.run("import asyncio\nawait asyncio.sleep(0)", tools={"slow": slow})
        session.run("await slow(1); await asyncio.sleep(0.01)")
        session.undo()
        code = (
            "await asyncio.sleep(0.01); await asyncio.gather(slow(2), asyncio.to_thread(int, '3'))"
        )
        assert session.run(code).value == [2, 3]

    @pytest.mark.parametrize("undo_depth", [0, 3])
    def test_copies_are_no_processes_of_the_code(self, undo_depth):
        """The limit of processes is that of the code's own, and one more where there are copies.

        The place of the next copy is free while a step runs.
        """
        code = """
            import subprocess
            started = []
            try:
                for _ in range(9):
                    started.append(subprocess.Popen(["sleep", "30"]))
            except OSError:
                pass
            for process in started:
                process.kill()
                process.wait()
            len(started)
        """
        with Sandbox(LOOSE, Limits(wall_seconds=20, processes=5)) as sandbox:
            with sandbox.session(undo_depth=undo_depth) as session:
                for _ in range(4):
                    assert session.run("1").success
                # The copy that was let go of by the last step may take a moment to end.
                assert until(
                    lambda: session.run(inspect.cleandoc(code)).value == 4 + bool(undo_depth)
                )

    def test_threads_stay_in_the_process_that_goes_on(self, session):
        session.run(
            "import threading, time; n = 0\n"
            "def count():\n  global n\n  while True: n += 1; time.sleep(0.01)"
        )
        session.run("threading.Thread(target=count, daemon=True).start()")
        before = session.run("n").value
        time.sleep(0.2)
        assert session.run("n").value > before

    @pytest.mark.parametrize(
        "start",
        [
            """
            import threading, time
            n = 0
            def count():
                while True: globals()["n"] += 1; time.sleep(0.01)
            threading.Thread(target=count, daemon=True).start()
            """,
            """
            import asyncio
            n = 0
            async def count():
                while True: globals()["n"] += 1; await asyncio.sleep(0.01)
            task = asyncio.create_task(count())
            """,
        ],
        ids=["thread", "task"],
    )
    def test_it_keeps_what_went_on_between_steps(self, session, start):
        session.run("first = 1")
        assert session.run(inspect.cleandoc(start)).success
        later = session.run("n").value + 5
        assert until(lambda: session.get("n") > later)
        session.run("second = 2")
        session.undo()
        assert session.run("n").value > later
        assert "second" not in session.names

    def test_where_the_copies_that_wait_were_killed(self, session):
        process = session.run("import os; x = 1; os.getpid()").value
        session.run("x = 2")
        # It answers once the copy for the next step is made.
        assert session.get("x") == 2

        def are_killed():
            children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
            for child in children:
                os.kill(int(child), signal.SIGKILL)
            return all(b") Z " in Path(f"/proc/{child}/stat").read_bytes() for child in children)

        assert until(are_killed)
        session.run("x = 3")
        session.undo()
        assert session.get("x") == 2


#: Ends of steps that outlast a second interrupt, and give their name then.
HANDLERS = [
    "try: time.sleep(9)\nexcept KeyboardInterrupt: time.sleep(0.12); ended = 1",
    "try: time.sleep(9)\nfinally:\n    time.sleep(0.12); ended = 1",
    "def end():\n    try: 1 / 0\n    except ZeroDivisionError: time.sleep(0.12)\n"
    "try: time.sleep(9)\nexcept KeyboardInterrupt: end(); ended = 1",
    "async def f():\n    try: await asyncio.sleep(9)\n    finally: time.sleep(0.12)\n"
    "try: await f()\nfinally: ended = 1",
    # The first interrupts are lost.
    "ended = 0\nwhile ended < 3:\n    try: time.sleep(9)\n    except: ended += 1",
]


class TestEnds:
    @pytest.mark.parametrize("code", HANDLERS)
    def test_a_handler_of_an_interrupt_has_its_time(self, session, code):
        session.run("import asyncio, time")
        ran = session.run(code, timeout=0.3 * SLOWER)
        assert ran.killed_by == "wall_seconds"
        assert "ended" in session.names

    @pytest.mark.slow
    def test_a_limit_that_is_ignored(self, session):
        session.run("x = 1")
        ran = session.run("x = 2" + STUBBORN, timeout=0.2)
        assert ran.killed_by == "wall_seconds" and "undone" in ran.error.message
        assert ran.duration < 5
        assert session.run("x").value == 1

    @pytest.mark.slow
    def test_a_limit_that_is_ignored_without_a_state(self, shared):
        with shared.session(undo_depth=0) as session:
            ran = session.run(STUBBORN, timeout=0.2)
            assert ran.killed_by == "wall_seconds" and "reset()" in ran.error.message
            with pytest.raises(
                SandboxError, match=r"has ended \(signal 9\): reset\(\) starts another"
            ):
                session.run("1")
            session.reset()
            assert session.run("1").value == 1

    @pytest.mark.slow
    @pytest.mark.parametrize("code", ["while True: pass", STUBBORN, "import time; time.sleep(60)"])
    def test_interrupt(self, session, code):
        assert session.interrupt() is False
        session.run("x = 1")
        timer = threading.Timer(0.3, session.interrupt)
        timer.start()
        ran = session.run(code)
        timer.join()
        assert ran.killed_by == "interrupt" and ran.error.kind == "KeyboardInterrupt"
        assert ran.duration < 5
        assert session.run("x").value == 1

    @pytest.mark.parametrize(
        ("code", "status"),
        [
            (
                "next(one for one in gc.get_objects() if type(one).__name__ == '_Child').end(3)",
                3,
            ),
            ("import os; os.closerange(3, 256)", 0),
            ("import signal, time; signal.setitimer(0, 0.01); time.sleep(9)", -14),
        ],
    )
    def test_by_itself(self, session, code, status):
        session.run("import gc\nx = 1")
        ran = session.run(f"print('said', flush=True); x = 2; {code}")
        assert (ran.returncode, ran.killed_by, ran.stdout) == (status, None, "said\n")
        assert not ran.success
        how = f"exit status {status}" if status >= 0 else f"signal {-status}"
        way = "reset() starts another, undo() goes back"
        assert str(ran.error) == f"SystemExit: the step ended its process ({how}): {way}"
        with pytest.raises(SandboxError, match=r"has ended .*: reset\(\) .*undo\(\)"):
            session.run("1")
        session.undo()
        assert session.run("x").value == 1

    @pytest.mark.slow
    def test_files_without_end(self):
        with Sandbox(LOOSE, Limits(wall_seconds=20, disk=10 << 20)) as sandbox:
            with sandbox.session() as session:
                code = "n = 0\nwhile True:\n  n += 1\n  open(f'f{n}', 'wb').write(b'x' * (1 << 20))"
                ran = session.run(code)
                assert ran.killed_by == "disk", ran

    @pytest.mark.slow
    def test_a_step_after_files_without_end(self):
        """It may remove some, and add none."""
        limits = Limits(wall_seconds=20, disk="2M")
        more = "for i in range(40): open(f'{name}{i}', 'wb').write(bytes(100_000))\ntime.sleep(5)"
        with Sandbox(LOOSE, limits) as sandbox, sandbox.session() as session:
            for name in ("a", "b"):
                ran = session.run(f"import os, time; name = {name!r}\n{more}")
                assert ran.killed_by == "disk" and "remove some" in ran.error.message
                session.reset()
                assert session.run("import time; time.sleep(0.4); 1").value == 1
            assert sandbox.run("import time; time.sleep(0.4)").success
            code = "import os, time\nfor name in os.listdir('.'): os.remove(name); time.sleep(0.02)"
            assert session.run(code).success
            assert sandbox.list_files() == []
            assert session.run(f"name = 'c'\n{more}").killed_by == "disk"

    def test_a_step_with_files_without_end_is_undone(self):
        limits = Limits(wall_seconds=20, disk="2M")
        more = "for i in range(40): open(f'{i}', 'wb').write(bytes(100_000))"
        with Sandbox(LOOSE, limits) as sandbox, sandbox.session() as session:
            session.run("x = 1")
            ran = session.run(f"import time; x = 2\n{more}\ntime.sleep(5)")
            assert ran.killed_by == "disk" and "it was undone" in ran.error.message, ran
            assert session.get("x") == 1

    def test_memory_without_end(self):
        with Sandbox(LOOSE, Limits(wall_seconds=20, memory="300M")) as sandbox:
            with sandbox.session() as session:
                ran = session.run("x = []\nwhile True: x.append(bytearray(10 << 20))")
                assert ran.error.kind == "MemoryError", ran
                session.reset()
                # More than may be reserved: an error, or the end of all processes.
                ran = session.run("[0] * 10**12")
                assert ran.error.kind == "MemoryError", ran
                assert ran.killed_by in (None, "memory") and not ran.success
                session.reset()
                assert session.run("1").value == 1

    @pytest.mark.slow
    @pytest.mark.parametrize("what", ["session", "sandbox"])
    def test_close_while_a_step_runs(self, what):
        with Sandbox(LOOSE) as sandbox:
            session = sandbox.session()
            closing = session.close if what == "session" else sandbox.close
            timer = threading.Timer(0.3, closing)
            timer.start()
            if what == "session":
                assert session.run(STUBBORN).killed_by == "interrupt"
            else:
                with pytest.raises(RuntimeError, match="the sandbox was closed meanwhile"):
                    session.run(STUBBORN)
            timer.join()
            assert gone(of(sandbox))

    def test_a_session_that_is_forgotten(self):
        with Sandbox(LOOSE) as sandbox:
            session = sandbox.session()
            session.run("1")
            assert running(of(sandbox))
            del session
            assert gone(of(sandbox))

    @pytest.mark.parametrize("policy", [LOOSE, None], ids=["its own process", "copied"])
    def test_a_session_that_is_forgotten_under_a_guard(self, policy):
        """Garbage is collected at any point: the guard does not keep its processes."""
        with Sandbox(policy) as sandbox:
            other = sandbox.session(undo_depth=0)
            other.run("1")
            before = len(running(of(sandbox)))
            # All that the tests have made takes its time too.
            gc.freeze()
            session = sandbox.session()
            session.run("1")
            begun = time.monotonic()
            with mk_audit([])():
                del session
                gc.collect()
            took = time.monotonic() - begun
            gc.unfreeze()
            assert took < 2
            assert until(lambda: len(running(of(sandbox))) == before, 2)
            assert other.run("1").value == 1


@pytest.mark.parametrize("size", [0, 16_000, 17_000, 300_000, (2 << 20) + 1, 9 << 20])
def test_values_of_each_size(session, size):
    """Long messages are read and sent in other ways than short ones."""
    data = os.urandom(size)
    ran = session.run("data[::-1], len(data)", variables={"data": data})
    assert ran.value == (data[::-1], size)
    assert session.run("echo(data) == data", tools={"echo": lambda data: data}).value is True
    assert session.get("data") == data
