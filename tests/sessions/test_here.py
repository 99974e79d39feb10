"""A session in this process: its thread, the host's streams and directory, and its end."""

import asyncio
import contextlib
import gc
import io
import os
import sys
import threading
import time

import pytest
from programs import printed
from steps import value
from waiting import until

from fastaudit_rs import AuditDenied, Policy


@pytest.fixture
def session(directory):
    with Policy(write=[str(directory)]).session(directory=directory) as session:
        yield session


def test_an_event_loop_that_a_step_closed_is_replaced(session):
    value(session, "import asyncio\nawait asyncio.sleep(0)")
    value(session, "asyncio.run(asyncio.sleep(0))\nasyncio.set_event_loop(None)")
    assert value(session, "await asyncio.sleep(0, 3)") == 3


def test_the_directory_of_the_host_stays(session):
    before = os.getcwd()
    seen = []
    stop = threading.Event()

    def look():
        while not stop.is_set():
            seen.append(os.getcwd())

    looking = threading.Thread(target=look)
    looking.start()
    session.run("import os\nos.mkdir('a')\nos.chdir('a')\nimport time\ntime.sleep(0.1)")
    stop.set()
    looking.join()
    assert set(seen) == {before}
    assert value(session, "os.path.basename(os.getcwd())") == "a"


def test_other_output_of_the_process_is_left_alone(session, capsys):
    code = "import time\nfor _ in range(50):\n    print('step')\n    time.sleep(0.002)"
    results = []
    thread = threading.Thread(target=lambda: results.append(session.run(code)))
    thread.start()
    for _ in range(50):
        print("host")
        time.sleep(0.002)
    thread.join()
    assert results[0].stdout == "step\n" * 50
    assert capsys.readouterr().out == "host\n" * 50


def test_the_current_directory_was_removed(directory, monkeypatch):
    monkeypatch.chdir(directory)
    directory.rmdir()
    with pytest.raises(FileNotFoundError, match="was removed: pass directory="):
        Policy(write=[]).session()
    directory.mkdir()
    with Policy(write=[]).session(directory=directory) as session:
        assert value(session, "1") == 1


def test_the_streams_of_the_process_come_back(directory):
    before = sys.stdout, sys.stderr
    with Policy().session() as first, Policy().session() as second:
        first.run("print(1)")
        second.run("print(1)")
        assert sys.stdout is not before[0]
    assert (sys.stdout, sys.stderr) == before


def test_output_goes_where_the_host_redirects_it_between_steps(session):
    session.run("1")
    with contextlib.redirect_stdout(io.StringIO()) as other:
        print("host")
        assert session.run("print('step')").stdout == "step\n"
        print("host")
    assert other.getvalue() == "host\nhost\n"
    assert session.run("print('step')").stdout == "step\n"


def test_the_host_wraps_methods_of_its_streams(session, capsys):
    session.run("1")
    wrapped, texts = sys.stdout.write, []
    sys.stdout.write = lambda text: (texts.append(text), wrapped(text))
    try:
        print("host")
        assert session.run("print('step')").stdout == "step\n"
    finally:
        sys.stdout.write = wrapped
    print("host")
    assert texts == ["host", "\n"]
    assert capsys.readouterr().out == "host\nhost\n"


def test_output_of_threads_that_a_step_starts(directory, capsys):
    with Policy(threads="inherit").session() as session:
        result = session.run(
            "import threading\n"
            "threads = [threading.Thread(target=print, args=(n,)) for n in range(3)]\n"
            "for one in threads: one.start()\n"
            "for one in threads: one.join()"
        )
    assert sorted(result.stdout.split()) == ["0", "1", "2"]
    assert capsys.readouterr().out == ""


def test_a_stream_of_a_step_is_a_text_stream(session):
    assert value(
        session,
        "import sys\nsys.stdout.buffer.write(b'a\\xff')\nsys.stdout.writelines(['b', '\\udc80'])\n"
        "print('c', flush=True)\nsys.stdout.encoding, sys.stdout.isatty(), sys.stdout.writable()",
    ) == ("utf-8", False, True)
    result = session.run("sys.stdout.close()")
    assert result.success
    assert session.run("print(1)").stdout == "1\n"


@pytest.mark.parametrize(
    "removed", ["del sys.stdout, sys.stderr", "sys.stdout = sys.stderr = None"]
)
def test_the_streams_are_back_after_a_step_that_removes_them(directory, removed):
    before = sys.stdout
    with Policy().session(directory=directory) as session:
        assert session.run(f"import sys\n{removed}").success
        assert session.run("print(1)").stdout == "1\n"
        session.run(removed)
    assert sys.stdout is before


def test_swallowed_denials_take_no_time_from_the_step(session):
    code = """
import os
for n in range(1000):
    try: os.mkdir(f"/nowhere/{n}")
    except PermissionError: pass
n
"""
    for _ in range(3):
        begun = time.monotonic()
        ran = session.run(code, timeout=10)
        assert time.monotonic() - begun < 5
        assert (ran.value, ran.killed_by, len(ran.violations)) == (999, None, 1000)
    assert "write = " in ran.violations[-1].hint


def test_denials_of_a_step_that_is_ended_are_told(session):
    code = "import os\ntry: os.mkdir('/nowhere')\nexcept OSError: pass\nwhile True: pass"
    ran = session.run(code, timeout=0.2)
    assert ran.killed_by == "wall_seconds"
    assert [denied.path for denied in ran.violations] == ["/nowhere"]


def test_a_display_that_is_malformed_leaves_the_value(session):
    for display in ("{'image/png': '!', 'text/html': '<b>'}", "{'a/b': [{1}], 'text/html': '<b>'}"):
        code = f"class A(int):\n    def _repr_mimebundle_(self, *a, **k): return {display}\nA(3)"
        ran = session.run(code)
        assert (ran.value, ran.error) == (3, None)
        assert ran.display[0]["text/html"] == "<b>"


@pytest.mark.slow
def test_a_step_that_catches_every_interrupt_is_given_up(session):
    began = time.monotonic()
    # Before 3.13 a block's own handlers miss what arrives where its loop goes back.
    code = """
def wait():
    while 1: pass
n = 0
while n < 100:
    try:
        wait()
    except BaseException: n += 1
"""
    guest = session._guest
    result = session.run(code, timeout=0.2)
    assert time.monotonic() - began < 10
    assert result.killed_by == "wall_seconds"
    assert result.returncode == -2
    # It gets them until it ends.
    assert until(lambda: not guest.is_given_up)
    assert session.names == []


@pytest.mark.slow
def test_native_code_that_waits_does_not_hold_the_host(session):
    began = time.monotonic()
    result = session.run("x = 1\nimport time\ntime.sleep(3)\ny = 1", timeout=0.2)
    assert time.monotonic() - began < 2.5
    assert result.killed_by == "wall_seconds"
    assert result.error.kind == "KeyboardInterrupt"
    assert "was undone: it runs on" in result.error.message
    assert str(result.error) in result.error.traceback
    assert str(session.run("while True: pass", timeout=0.1).error) == "KeyboardInterrupt"
    session.reset()
    assert value(session, "globals().get('x')") is None
    assert session.names == []


@pytest.mark.slow
def test_a_session_goes_on_from_before_a_step_that_runs_on(directory):
    one = Policy(write=[str(directory)])
    session = one.session(directory=directory, tools={"price": lambda item: 3.5})
    code = "import os, time\nos.mkdir('below')\nos.chdir('below')\ndef f():\n    1 / 0\nx = [1]"
    value(session, code)
    kept = session.snapshot()
    value(session, "x.append(2)\ny = 1", tools={"more": lambda: 4})
    guest = session._guest
    for _ in range(2):
        assert session.run("x = y = 3\ntime.sleep(2)\ny = 4", timeout=0.1).killed_by
        code = "x, y, more(), price('tea'), os.path.basename(os.getcwd())"
        assert value(session, code) == ([1, 2], 1, 4, 3.5, "below")
    ran = session.run("display(3)\nf()")
    assert "1 / 0" in ran.error.traceback and len(ran.display) == 1
    assert asyncio.run(session.arun("time.sleep(2)", timeout=0.1)).killed_by == "wall_seconds"
    assert session.save({}).lost == {}
    session.restore(kept)
    assert "y" not in session.names and len(session.run("display(3)").display) == 1
    assert until(lambda: guest.job is None)
    assert value(session, "x") == [1, 2]
    session.undo()
    session.close()


def test_a_step_that_catches_the_interrupt_of_a_limit(make):
    """It ended by the limit, in each place."""
    # Python 3.11 raises the interrupt one instruction before the loop: `x = 0` has it in the `try`.
    code = "try:\n    x = 0\n    while True: pass\nexcept KeyboardInterrupt: x = 1"
    ran = make().run(code, timeout=0.2)
    assert (ran.killed_by, ran.success, ran.error) == ("wall_seconds", False, None)


def test_an_interrupt_waits_for_a_function_of_the_host(session):
    ended = []

    def slow():
        time.sleep(0.1)
        # An interrupt would arrive here.
        for _ in range(1000):
            pass
        ended.append(1)

    result = session.run("slow()\nwhile True: pass", tools={"slow": slow}, timeout=0.05)
    assert result.killed_by == "wall_seconds"
    assert ended == [1]


@pytest.mark.slow
def test_ctrl_c_ends_the_step_and_is_raised(directory):
    code = """
        import os, signal, threading
        from fastaudit_rs import Policy
        session = Policy().session()
        session.run("x = 1")
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            session.run("while True: pass")
        except KeyboardInterrupt:
            print("raised", session.run("x").value)
    """
    assert printed(code) == "raised 1\n"


@pytest.mark.slow
def test_a_process_ends_beside_a_step_that_does_not():
    step = "while True:\n  try:\n    while True: pass\n  except BaseException: pass"
    code = f"""
        from fastaudit_rs import Policy
        session = Policy().session()
        print(session.run({step!r}, timeout=0.1).killed_by, flush=True)
    """
    assert printed(code) == "wall_seconds\n"


def test_functions_have_the_rights_of_the_host(session, tmp_path):
    def save(text):
        (tmp_path / "out").write_text(text)

    async def save_later(text):
        await asyncio.sleep(0)
        (tmp_path / "later").write_text(text)

    code = "save('1')\nawait save_later('2')\nopen('../out', 'a')"
    result = session.run(code, tools={"save": save, "save_later": save_later})
    assert (result.returncode, result.error.line) == (77, 3)
    assert (tmp_path / "out").read_text() == "1"
    assert (tmp_path / "later").read_text() == "2"
    assert len(result.violations) == 1


def test_a_function_gets_data_alone(session):
    given = []

    async def later(x):
        given.append(x)

    tools = {"now": given.append, "later": later}
    result = session.run("class A: pass\nnow(A())", tools=tools)
    assert result.error.kind == "TypeError"
    result = session.run("class L(list): pass\nawait later([L([1])])\nawait later(A())")
    assert result.error.kind == "TypeError"
    assert "'later'" in result.error.message
    assert given == [[[1]]]
    assert type(given[0][0]) is list


def test_a_task_of_an_earlier_step_is_guarded_and_told(session, tmp_path):
    session.run(
        "import asyncio\nasync def later():\n    await asyncio.sleep(0.05)\n"
        "    open('../out', 'w')\n"
    )
    session.run("task = asyncio.ensure_future(later())\nawait asyncio.sleep(0)")
    result = session.run("await asyncio.sleep(0.2)\ntask.exception()")
    assert "AuditDenied" in result.value
    assert [denied.path for denied in result.violations] == ["../out"]
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_finalizers_run_under_the_guard(session, tmp_path):
    code = (
        "class A:\n    def __init__(self, name): self.name = name\n"
        "    def __del__(self, open=open): open('../' + self.name, 'w')\n"
    )
    session.run(f"{code}a = A('replaced')\nb = A('undone')\nc = A('reset')")
    session.run("a = None")
    session.run("b = None")
    session.reset()
    session.run(f"{code}a = A('closed')\nr = [A('cycle')]\nr.append(r)")
    session.close()
    gc.collect()
    names = ("replaced", "undone", "reset", "closed")
    assert [name for name in names if (tmp_path / name).exists()] == []


def test_denials_are_data(session):
    result = session.run("def f():\n    secret = object()\n    open('/never', 'w')\nf()")
    (denied,) = result.violations
    assert type(denied) is AuditDenied
    assert denied.__traceback__ is None
    assert result.error.kind == "fastaudit_rs.AuditDenied"


@pytest.mark.parametrize("threads", ["deny", "inherit"])
def test_callbacks_of_the_host_have_its_output(threads, capsys):
    def ask(denied):
        print("asked")
        return "deny"

    policy = Policy(threads=threads)
    with policy.session(on_ask=ask, on_denied=lambda denied: print("told")) as session:
        result = session.run("print(1)\nopen('/never', 'w')")
    assert (result.returncode, result.stdout) == (77, "1\n")
    assert capsys.readouterr().out == "asked\ntold\n"


def test_temporary_files_last(directory):
    with Policy(write=[str(directory)]).session(directory=directory) as session:
        session.run("import tempfile\nf = tempfile.NamedTemporaryFile('w', delete=False)")
        assert value(session, "f.write('1')\nf.close()\nopen(f.name).read()") == "1"


@pytest.mark.slow
def test_a_session_that_is_dropped_ends_its_thread():
    session = Policy().session()
    session.run("x = 1")
    thread = session._guest._thread
    del session
    gc.collect()
    assert until(lambda: not thread.is_alive())


def test_a_session_in_a_running_loop():
    async def main():
        with Policy().session() as session:
            assert session.run("import asyncio\nawait asyncio.sleep(0.01, 1)").value == 1
            results = await asyncio.gather(*(one(n) for n in range(10)))
            assert results == list(range(10))

    async def one(number):
        async with Policy().session() as session:
            result = await session.arun("import time\ntime.sleep(0.1)\nn", variables={"n": number})
            return result.value

    asyncio.run(main())


def test_a_directory_that_is_gone_is_told(directory):
    with Policy(write=[str(directory)]).session(directory=directory) as session:
        directory.rmdir()
        with pytest.raises(FileNotFoundError):
            session.run("1")
        directory.mkdir()
        assert value(session, "1") == 1


def test_code_under_a_guard_starts_no_session(directory):
    session = Policy(write=[str(directory)]).session(directory=directory)
    with Policy().guard()(), pytest.raises(AuditDenied):
        session.run("1")
    assert value(session, "1") == 1
    session.close()


class TestCoroutinesOfTheHost:
    """Objects that steps find of the host's coroutine functions lead nowhere."""

    def test_the_guests_loop_does_not_lead_to_the_host(self):
        async def ask(question):
            return question

        code = """
import asyncio
await ask("1")
found, rest = [], [asyncio.get_running_loop()._selector.get_map()]
seen = set()
while rest:
    at = rest.pop()
    if id(at) in seen or len(seen) > 10000:
        continue
    seen.add(id(at))
    found.append(type(at).__name__)
    if hasattr(at, "values"):
        rest += at.values()
    for name in ("_callback", "_args", "__self__", "data", "__dict__", "__closure__"):
        value = getattr(at, name, None)
        if value is not None and not isinstance(value, type):
            rest += value if isinstance(value, (tuple, list)) else [value]
sorted(set(found))
"""
        with Policy.preset("workspace").session(tools={"ask": ask}) as session:
            ran = session.run(code)
        assert ran.error is None
        assert "_Answers" in ran.value
        assert "Coroutines" not in ran.value

    @pytest.mark.parametrize("make", ["tool", "plain", "object"])
    def test_what_is_awaited(self, make):
        async def plain(question):
            return f"{question}!"

        class Asker:
            async def __call__(self, question):
                return f"{question}!"

        policy = Policy.preset("workspace")
        function = {"tool": policy.tool(plain), "plain": plain, "object": Asker()}[make]
        with policy.session(tools={"ask": function}) as session:
            ran = session.run("import asyncio\nawait asyncio.create_task(ask('a'))")
        assert (ran.error, ran.value) == (None, "a!")

    def test_one_goes_on_where_an_event_loop_runs_the_next_step(self):
        async def ask(question):
            await asyncio.sleep(0.2)
            return f"{question}!"

        with Policy().session(tools={"ask": ask}, timeout=20) as session:
            session.run("import asyncio\ntask = asyncio.create_task(ask('a'))")
            session.run("await asyncio.sleep(0)")
            ran = asyncio.run(session.arun("await task, await ask('b')"))
        assert (ran.error, ran.value) == (None, ("a!", "b!"))

    def test_a_session_that_is_dropped_leaves_no_loop(self):
        async def ask(question):
            return question

        def threads():
            return {one for one in threading.enumerate() if one.name == "fastaudit_rs: tools"}

        before = threads()
        session = Policy().session(tools={"ask": ask})
        assert session.run("await ask(1)").value == 1
        assert len(threads() - before) == 1
        del session
        gc.collect()
        assert until(lambda: not threads() - before)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["function", "method", "object"])
def test_an_interrupt_waits_for_the_answer(kind, tmp_path):
    """Whatever kind of callable is asked."""
    ended = []

    class Host:
        def ask(self, denied):
            until = time.monotonic() + 0.6
            while time.monotonic() < until:
                pass
            ended.append(True)
            return "deny"

        __call__ = ask

    host = Host()
    asks = {"function": lambda denied: host.ask(denied), "method": host.ask, "object": host}
    policy = Policy(write=[str(tmp_path / "in")])
    with policy.session(on_ask=asks[kind], monitor_calls=False) as session:
        threading.Timer(0.2, session.interrupt).start()
        ran = session.run(f"open({str(tmp_path / 'a')!r}, 'w')")
    assert ended == [True]
    assert ran.killed_by == "interrupt"


CODE = "import sys\nsys.path.insert(0, '')\nsys.dont_write_bytecode = True\n"


def test_modules_of_another_session(tmp_path, monkeypatch):
    """Each has those of its own directory, and the host keeps its own."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for number in (1, 2):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / "own_of_each.py").write_text(f"x = {number}")
        with Policy().session(directory=directory) as session:
            assert value(session, CODE + "import own_of_each\nown_of_each.x") == number


def test_modules_of_the_host(directory, session, monkeypatch):
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (directory / "own_of_host.py").write_text("x = 1")
    import own_of_host

    with Policy().session(directory=directory) as session:
        session.run("import own_of_host\nown_of_host.x = 2")
        session.reset()
        assert sys.modules["own_of_host"] is own_of_host
        assert value(session, "import own_of_host\nown_of_host.x") == 2
    assert sys.modules.pop("own_of_host") is own_of_host


@pytest.mark.slow
def test_figures_of_the_host_are_its_own():
    """A step neither draws on them, lists or closes them, nor takes their numbers."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    mine = pyplot.figure(1)
    with Policy(packages=["matplotlib", "numpy"]).session() as session:
        code = """
import matplotlib.pyplot as plt
numbers = [plt.fignum_exists(1), plt.get_fignums()]
plt.figure(1)
plt.plot([1])
plt.figure(2)
plt.figure(1)
numbers += [plt.gcf().number, plt.get_fignums()]
plt.close()
plt.close(2)
plt.close("all")
numbers
"""
        assert value(session, code) == [False, [], 1, [1, 2]]
        other = pyplot.figure()
        assert len(session.run("plt.figure(1)\nplt.figure(7);").display) == 2
    assert (pyplot.get_fignums(), mine.axes, pyplot.gcf() is other) == ([1, 2], [], True)
    pyplot.figure(1)
    assert pyplot.gcf() is mine
    pyplot.close("all")
    assert pyplot.get_fignums() == []


@pytest.mark.slow
def test_figures_are_shown_and_closed(recwarn):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    mine = pyplot.figure()
    with Policy(packages=["matplotlib", "numpy"]).session() as session:
        shown = session.run(
            "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\n"
            "plt.figure()\nplt.plot([2]);"
        ).display
        mimes = {"application/vnd.fastaudit.chart+json", "image/png", "text/plain"}
        assert [set(item) for item in shown] == [mimes] * 2
        assert all(item["image/png"].startswith(b"\x89PNG") for item in shown)
        assert value(session, "len(plt.get_fignums())") == 0
    assert pyplot.gcf() is mine and not mine.axes
    pyplot.close(mine)
    assert not [one for one in recwarn if "non-interactive" in str(one.message)]


def test_a_session_ends_while_the_host_prints(directory, monkeypatch):
    """`print()` goes on with the stream that it began with."""

    class Ends(io.StringIO):
        def write(self, text):
            session.close()
            gc.collect()
            return super().write(text)

    monkeypatch.setattr(sys, "stdout", Ends())
    session = Policy().session(directory=directory)
    session.run("1")
    print("host", "goes on")
    assert sys.stdout.getvalue() == "host goes on\n"


def test_files_are_looked_through_beside_the_event_loop(directory):
    """Code chooses how many there are, and the loop has other work."""
    session = Policy(write=[str(directory)]).session(directory=directory)
    threads = []

    class Noted:
        def __init__(self, own):
            self.own = own

        def __getattr__(self, name):
            threads.append(threading.current_thread())
            return getattr(self.own, name)

    session._changes = Noted(session._changes)
    ran = asyncio.run(session.arun("open('a', 'w').close()"))
    assert (ran.error, ran.changed) == (None, ["a"])
    assert threads and threading.current_thread() not in threads
    # One that does not begin leaves nothing behind.
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(session.arun("1"))


def test_a_step_that_is_cancelled_as_its_files_are_looked_through(directory):
    """What was begun ends: the session would note the files of each such step for ever."""
    session = Policy(write=[str(directory)]).session(directory=directory)
    begun, ended = [], []

    class Noted:
        def begin(self):
            time.sleep(0.2)
            begun.append(own.begin())
            return begun[-1]

        def end(self, first):
            ended.append(first)
            return own.end(first)

    own, session._changes = session._changes, Noted()

    async def cancelled():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(session.arun("1"), 0.05)

    asyncio.run(cancelled())
    assert begun and until(lambda: ended == begun)
    session._changes = own
    session.close()
