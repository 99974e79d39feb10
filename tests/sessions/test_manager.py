"""`SessionManager`: sessions by key, their queues, and how long they last."""

import asyncio
import contextlib
import inspect
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from programs import printed
from sandboxes import in_copy
from waiting import until

from fastaudit_rs import DirectoryStore, Limits, Policy, Sandbox, SandboxError, SessionManager
from fastaudit_rs._threads import MOST
from fastaudit_rs.sessions.turns import Turns

KEYS = [f"user {number}" for number in range(20)]


@pytest.fixture
def opens(place, tmp_path):
    """Opens sessions in a place; it has noted the keys."""
    if place == "sandbox":
        pytest.importorskip("sandlock")
    keys = []

    @contextlib.contextmanager
    def opened(key):
        keys.append(key)
        time.sleep(opened.seconds)
        with contextlib.ExitStack() as stack:
            one = Policy() if place == "here" else stack.enter_context(Sandbox())
            yield stack.enter_context(one.session(**opened.options))

    opened.keys = keys
    opened.options, opened.seconds = {}, 0
    return opened


@pytest.fixture
def manage(opens):
    with contextlib.ExitStack() as stack:

        def make(**options):
            return stack.enter_context(SessionManager(opens, **options))

        yield make


def value(manager, key, code, **options):
    ran = manager.run(key, code, **options)
    assert ran.error is None, ran.error.traceback
    return ran.value


def test_each_key_has_its_session(manage, opens):
    manager = manage()
    value(manager, "anna", "x = 1")
    assert manager.run("ben", "x").error.kind == "NameError"
    assert asyncio.run(manager.arun("anna", "x + y", variables={"y": 2})).value == 3
    assert value(manager, "ben", "price(2)", tools={"price": lambda n: n * 2}) == 4
    assert (opens.keys, manager.list()) == (["anna", "ben"], ["anna", "ben"])
    with manager.session("anna") as session:
        assert session.names == ["x", "y"] and session.get("x") == 1
    assert manager.run("anna", "while True: pass", timeout=0.2).killed_by == "wall_seconds"


@pytest.mark.slow
def test_many_keys_with_queues(manage):
    """Steps of a key come in the order in which they were asked for."""
    manager = manage()

    def one(key):
        return [value(manager, key, f"n = {n}\nn") for n in range(3)]

    with ThreadPoolExecutor(len(KEYS)) as threads:
        assert list(threads.map(one, KEYS)) == [[0, 1, 2]] * len(KEYS)

    async def ask():
        for key in KEYS:
            assert (await manager.arun(key, "done = []")).success
        steps = [manager.arun(key, f"done.append({n})\ndone") for n in range(5) for key in KEYS]
        return await asyncio.gather(*steps)

    ran = asyncio.run(ask())
    assert [each.value for each in ran[-len(KEYS) :]] == [list(range(5))] * len(KEYS)
    assert sorted(manager.list()) == sorted(KEYS)


@pytest.mark.slow
def test_threads_and_loops_share_a_queue(manage):
    manager = manage()
    value(manager, "a", "n = 0")
    step = "m = n\nimport time\ntime.sleep(0.005)\nn = m + 1"

    async def several():
        ran = await asyncio.gather(*(manager.arun("a", step) for _ in range(10)))
        assert all(each.success for each in ran)

    with ThreadPoolExecutor(6) as threads:
        loops = [threads.submit(asyncio.run, several()) for _ in range(2)]
        assert all(ran.success for ran in threads.map(lambda _: manager.run("a", step), range(20)))
        for loop in loops:
            loop.result()
    assert value(manager, "a", "n") == 40


def test_the_time_in_a_queue_is_told(manage):
    manager = manage()

    async def two():
        slow = manager.arun("a", "import time; time.sleep(0.2)")
        return await asyncio.gather(slow, manager.arun("a", "1"))

    first, second = asyncio.run(two())
    assert second.timings.waited > first.timings.ran > second.duration


def test_steps_of_others_do_not_wait(manage):
    manager = manage()
    begun = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        code = "begun()\nwhile True: pass"
        running = threads.submit(manager.run, "a", code, tools={"begun": begun.set})
        begun.wait(20)
        assert value(manager, "b", "1") == 1
        assert manager.interrupt("a")
        assert running.result().killed_by == "interrupt"
    assert not manager.interrupt("a") and not manager.interrupt("none")


def test_a_step_cannot_wait_for_its_own_end(manage):
    manager = manage()
    errors = []

    def again():
        for call in (lambda: manager.run("a", "1"), lambda: asyncio.run(manager.arun("a", "1"))):
            try:
                call()
            except RuntimeError as error:
                errors.append(str(error))
        return value(manager, "b", "3")

    assert value(manager, "a", "again()", tools={"again": again}) == 3
    assert errors == ["the session is in use here: a step cannot wait for its own end"] * 2
    with manager.session("a"), pytest.raises(RuntimeError, match="in use here"):
        manager.run("a", "1")
    assert value(manager, "a", "1") == 1


@pytest.mark.slow
def test_who_waits_and_is_cancelled(manage):
    manager = manage()

    async def ask():
        begun, loop = asyncio.Event(), asyncio.get_running_loop()
        tools = {"begun": lambda: bool(loop.call_soon_threadsafe(begun.set))}
        code = "x = 1\nbegun()\nwhile True: pass"
        running = asyncio.create_task(manager.arun("a", code, tools=tools))
        await begun.wait()
        waiting = [asyncio.create_task(manager.arun("a", f"x = {n}")) for n in range(2, 2000)]
        last = asyncio.create_task(manager.arun("a", "x"))
        await asyncio.sleep(0.1)
        for task in (*waiting, running):
            task.cancel()
        ended = await asyncio.gather(running, *waiting, return_exceptions=True)
        assert {type(one) for one in ended} == {asyncio.CancelledError}
        return await last

    assert asyncio.run(ask()).value == 1


@pytest.mark.slow
def test_one_that_is_cancelled_while_it_is_opened(manage, opens):
    manager = manage()
    opens.seconds = 0.5

    async def ask():
        task = asyncio.create_task(manager.arun("a", "1"))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await manager.arun("a", "2")

    assert asyncio.run(ask()).value == 2
    assert opens.keys == ["a"]


def test_what_is_saved_comes_back(manage, opens, tmp_path):
    store = DirectoryStore(tmp_path / "store")
    with SessionManager(opens, store=store) as manager:
        value(manager, "anna/1", "import math\nx = 1\ndef f(): return x + 1\ng = lambda: 3")
        value(manager, "ben", "y = 2")
        assert list(store) == []
    assert sorted(store) == ["anna/1", "ben"]
    with pytest.raises(RuntimeError, match="the manager is closed"):
        manager.run("ben", "1")
    manager = manage(store=store)
    ran = manager.run("anna/1", "f()")
    assert (ran.value, ran.restarted, ran.lost) == (2, "restored", {"g": "a lambda"})
    assert value(manager, "anna/1", "math.floor(2.5)") == 2
    assert manager.run("carl", "1").restarted is None


def test_a_key_that_is_removed(manage, opens):
    store = {}
    manager = manage(store=store, autosave=True)
    value(manager, "a", "x = 1")
    value(manager, "b", "x = 2")
    assert sorted(store) == ["a", "b"]
    waiting = threading.Thread(target=manager.run, args=("a", "while True: pass"))
    waiting.start()
    assert until(lambda: manager._of["a"].turns.are_taken)
    time.sleep(0.2)
    errors = []

    def queued():
        try:
            manager.run("a", "x")
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=queued)
    thread.start()
    assert until(lambda: manager._of["a"].turns.is_wanted)
    manager.remove("a")
    waiting.join(20)
    thread.join(20)
    assert errors == ["the session of 'a' was removed meanwhile"]
    assert list(store) == ["b"] and manager.list() == ["b"]
    assert manager.run("a", "x").error.kind == "NameError"
    manager.remove("none")
    assert opens.keys == ["a", "b", "a"]


def test_a_tool_that_removes_its_own_session(manage):
    store = {}
    manager = manage(store=store, autosave=True)
    ran = manager.run("a", "leave()\nx = 1", tools={"leave": lambda: manager.remove("a")})
    assert ran.killed_by == "interrupt"
    assert store == {} and manager.list() == []
    assert value(manager, "a", "1") == 1


@pytest.mark.slow
def test_idle_sessions_are_saved_and_closed(manage, opens):
    store = {}
    manager = manage(store=store, idle_seconds=0.5)
    value(manager, "a", "x = 1")
    # A step that takes longer is not idle.
    value(manager, "b", "import time\ny = 2\ntime.sleep(1.5)")
    assert until(lambda: manager.list() == [], 20)
    assert sorted(store) == ["a", "b"]
    assert until(lambda: not manager._watches)
    ran = manager.run("b", "y")
    assert (ran.value, ran.restarted) == (2, "restored")
    assert opens.keys == ["a", "b", "b"]
    assert manager._of.keys() == {"b"}


def test_names_that_nobody_saved(manage):
    """The model is told that they are gone; but for a key that was removed."""
    manager = manage(max_sessions=1)
    value(manager, "a", "x = 1")
    assert manager.run("b", "1").restarted is None
    ran = manager.run("a", "x")
    assert (ran.restarted, ran.error.kind) == ("anew", "NameError")
    manager.remove("a")
    assert manager.run("a", "1").restarted is None
    assert manager.run("b", "1").restarted == "anew"


@pytest.mark.slow
def test_a_session_that_cannot_be_saved_makes_room(manage, opens, place, caplog):
    """Nobody else pays for what a user's code does."""
    store = {}
    opens.options["timeout"] = 1
    manager = manage(store=store, max_sessions=1)
    if place == "here":
        code = "for n in range(20_001): globals()[f'n{n}'] = 1"
    else:
        code = """
import sys, time
sys.modules["fastaudit_rs.sessions.kept"].record = lambda *_: time.sleep(60)
"""
    value(manager, "a", code)
    assert value(manager, "b", "1") == 1
    assert "the session 'a' is closed without being saved" in caplog.text
    assert manager.run("a", "1").restarted == "anew" and list(store) == ["b"]


@pytest.mark.slow
def test_the_number_of_sessions(manage, opens):
    store = {}
    manager = manage(store=store, max_sessions=2)
    for key in "abca":
        value(manager, key, f"name = {key!r}")
    assert sorted(manager.list()) == ["a", "c"]
    ran = manager.run("b", "name")
    assert (ran.value, ran.restarted) == ("b", "restored")
    with ThreadPoolExecutor(8) as threads:
        ran = threads.map(lambda key: manager.run(key, "import time\ntime.sleep(0.1)\n1"), KEYS)
        assert all(each.value == 1 for each in ran)
    assert len(manager.list()) <= 2

    async def ask():
        return await asyncio.gather(*(manager.arun(key, "2") for key in KEYS))

    assert [ran.value for ran in asyncio.run(ask())] == [2] * len(KEYS)
    assert len(manager.list()) <= 2 and len(manager._of) <= 2


@pytest.mark.slow
def test_one_that_waits_for_room(manage):
    manager = manage(max_sessions=1)
    begun = threading.Event()
    with ThreadPoolExecutor(2) as threads:
        code = "begun()\nwhile True: pass"
        running = threads.submit(manager.run, "a", code, tools={"begun": begun.set})
        begun.wait(20)
        waiting = threads.submit(manager.run, "b", "2")
        assert until(lambda: manager._room.is_wanted)
        assert not waiting.done()
        manager.interrupt("a")
        assert running.result().killed_by == "interrupt"
        assert waiting.result(20).value == 2
    assert manager.list() == ["b"]


@pytest.mark.slow
def test_room_is_not_lost_by_who_is_cancelled(manage, opens):
    manager = manage(max_sessions=1)

    async def ask():
        running = asyncio.create_task(manager.arun("a", "while True: pass"))
        await asyncio.sleep(1)
        for seconds in (0, 0.01, 0.05):
            tasks = [asyncio.create_task(manager.arun(key, "1")) for key in "bcd"]
            await asyncio.sleep(seconds)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return [(await manager.arun(key, "2")).value for key in "bca"]

    assert asyncio.run(asyncio.wait_for(ask(), 60)) == [2, 2, 2]


def victim(manager, key):
    """The worker of a session: its end is that of all processes of it."""
    return manager._of[key].session._process.worker.pid


def kill(manager, key):
    """Kill it. For a moment the processes of the session can still run a step."""
    os.kill(victim(manager, key), signal.SIGKILL)
    assert until(manager._of[key].session._has_ended)


#: Ends the process of a session, by a signal that no policy denies.
END = "import signal, time\nsignal.setitimer(signal.ITIMER_REAL, 0.001)\ntime.sleep(9)"


@pytest.mark.slow
class TestProcessesThatEnd:
    @pytest.fixture
    def place(self):
        return "sandbox"

    def test_in_a_step(self, manage):
        """The names from before it are there."""
        manager = manage()
        value(manager, "a", "x = 1")
        ran = manager.run("a", f"x = 2\n{END}")
        assert "the next step has the names from before this" in ran.error.message
        ran = manager.run("a", "x")
        assert (ran.value, ran.restarted) == (1, None)

    def test_between_steps(self, manage):
        """All of it is gone."""
        manager = manage()
        value(manager, "a", "x = 1")
        kill(manager, "a")
        ran = manager.run("a", "globals().get('x')")
        assert (ran.value, ran.restarted) == (None, "anew")
        assert ran.for_model().startswith("session:\nThe session began anew")
        assert manager.run("a", "1").restarted is None

    def test_what_was_saved_after_the_last_step(self, manage):
        manager = manage(store={}, autosave=True)
        value(manager, "a", "x = 1\nf = lambda: 1")
        value(manager, "a", "x += 1")
        kill(manager, "a")
        ran = asyncio.run(manager.arun("a", "x"))
        assert (ran.value, ran.restarted, ran.lost) == (2, "restored", {"f": "a lambda"})

    def test_names_that_are_larger_than_the_memory_left(self):
        """Saving them would take as much once more."""
        pytest.importorskip("sandlock")
        store = {}
        with (
            Sandbox(limits=Limits(memory="200M")) as sandbox,
            SessionManager(lambda key: sandbox.session(), store=store, autosave=True) as manager,
        ):
            value(manager, "a", "n = 0\nmany = [bytearray(10 << 20) for _ in range(10)]")
            for n in (1, 2, 3):
                ran = manager.run("a", "n += 1\nn")
                assert (ran.value, ran.restarted) == (n, None)
            kill(manager, "a")
            ran = manager.run("a", "n")
            assert (ran.value, [*ran.lost]) == (3, ["many"])
            assert ran.lost["many"].startswith("too large: ")

    def test_saving_that_ends_it(self, manage, caplog):
        """It is not saved any more after the second time: each step would be undone."""
        manager = manage(store={}, autosave=True)
        code = f"""
            n = 0
            import datetime
            class Zone(datetime.tzinfo):
                @property
                def key(self):
                    if n > 1:
                        {"; ".join(END.splitlines())}
                    return "UTC"
            now = datetime.datetime(2020, 1, 1, tzinfo=Zone())
        """
        value(manager, "a", inspect.cleandoc(code))
        found = [manager.run("a", "n += 1\nn") for _ in range(6)]
        told = [(ran.value, ran.restarted) for ran in found]
        undone = (2, "undone")
        assert told == [(1, None), (2, None), undone, undone, (3, None), (4, None)]
        assert "is not saved any more: that ends its process" in caplog.text

    def test_a_step_after_which_saving_ends_it(self, manage):
        """It is undone, and the next ones are saved again."""
        store = {}
        manager = manage(store=store, autosave=True)
        zone = f"""
            import datetime
            class Zone(datetime.tzinfo):
                @property
                def key(self):
                    {"; ".join(END.splitlines())}
            now = datetime.datetime(2020, 1, 1, tzinfo=Zone())
        """
        value(manager, "a", "x = 1")
        value(manager, "a", inspect.cleandoc(zone))
        ran = manager.run("a", "x += 1\nx, 'now' in globals()")
        assert (ran.value, ran.restarted) == ((2, False), "undone")
        kill(manager, "a")
        assert manager.run("a", "x").value == 2

    def test_in_a_step_without_a_state_from_before(self, manage, opens):
        opens.options["undo_depth"] = 0
        manager = manage(store={}, autosave=True)
        value(manager, "a", "x = 1")
        ran = manager.run("a", f"x = 2\n{END}")
        assert "the next step tells what is lost" in ran.error.message
        ran = manager.run("a", "x")
        assert (ran.value, ran.restarted) == (1, "restored")

    def test_others_do_not_notice(self, manage):
        manager = manage()
        for key in KEYS[:4]:
            value(manager, key, f"x = {key!r}")
        stop = threading.Event()

        def kill():
            while not stop.wait(0.2):
                with contextlib.suppress(AttributeError, KeyError, ProcessLookupError):
                    os.kill(victim(manager, KEYS[0]), signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        try:

            def steps(key):
                return [manager.run(key, "x").value for _ in range(20)]

            with ThreadPoolExecutor(4) as threads:
                victims = threads.submit(lambda: [manager.run(KEYS[0], "1") for _ in range(20)])
                told = list(threads.map(steps, KEYS[1:4]))
                assert len(victims.result()) == 20
        finally:
            stop.set()
            killer.join()
        assert told == [[key] * 20 for key in KEYS[1:4]]


class Refusing(dict):
    """A store whose disk is full."""

    is_full = True

    def __setitem__(self, key, data):
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().__setitem__(key, data)


def test_a_store_that_refuses(opens, caplog):
    store = Refusing()
    manager = SessionManager(opens, store=store, max_sessions=1)
    value(manager, "a", "x = 1")
    with pytest.raises(OSError, match="No space"):
        manager.run("b", "1")
    # It is not lost.
    assert value(manager, "a", "x") == 1
    store.is_full = False
    assert value(manager, "b", "1") == 1
    store.is_full = True
    with pytest.raises(OSError, match="No space"):
        manager.close()
    with SessionManager(opens, store=Refusing(), autosave=True) as manager:
        assert value(manager, "a", "2") == 2
        assert "the session 'a' is not saved: [Errno 28]" in caplog.text
        Refusing.is_full = False
    Refusing.is_full = True


def test_a_record_that_is_none(manage):
    store = {"a": b"something else"}
    manager = manage(store=store, max_sessions=1)
    for _ in range(2):
        with pytest.raises(ValueError, match="the record of 'a' is no record of a session"):
            manager.run("a", "1")
    assert value(manager, "b", "1") == 1
    assert store["a"] == b"something else"
    manager.remove("a")
    assert manager.run("a", "1").restarted is None


def test_a_session_that_cannot_be_made(opens):
    def make(key):
        if failing:
            raise SandboxError("no room")
        return opens(key)

    failing = [1]
    with SessionManager(make, max_sessions=1) as manager:
        for _ in range(2):
            with pytest.raises(SandboxError, match="no room"):
                manager.run("a", "1")
            with pytest.raises(SandboxError, match="no room"):
                asyncio.run(manager.arun("a", "1"))
        assert manager._of == {}
        failing.clear()
        assert value(manager, "a", "1") == 1


def test_closing_ends_steps(opens):
    store = {}
    manager = SessionManager(opens, store=store)
    value(manager, "a", "x = 1")
    begun = threading.Event()
    with ThreadPoolExecutor(2) as threads:
        code = "x = 2\nbegun()\nwhile True: pass"
        running = threads.submit(manager.run, "a", code, tools={"begun": begun.set})
        begun.wait(20)
        waiting = threads.submit(manager.run, "a", "x = 3")
        assert until(lambda: manager._of["a"].turns.is_wanted)
        manager.close()
        assert running.result().killed_by == "interrupt"
        with pytest.raises(RuntimeError, match="the manager is closed"):
            waiting.result()
    manager.close()
    assert repr(manager) == "<SessionManager: closed>"
    with SessionManager(opens, store=store) as again:
        assert value(again, "a", "x") == 2


@pytest.mark.slow
def test_closing_while_a_session_is_opened(opens):
    opens.seconds = 0.5
    manager = SessionManager(opens, store={})
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(manager.run, "a", "while True: pass")
        assert until(lambda: opens.keys)
        begun = time.monotonic()
        manager.close()
        assert time.monotonic() - begun < 20
        with pytest.raises(RuntimeError, match="the manager is closed"):
            running.result()


def test_an_async_block(opens):
    async def ask():
        async with SessionManager(opens) as manager:
            async with manager.asession("a") as session:
                stream = session.stream("print(1)")
                told = [output.text async for output in stream]
            assert "".join(told) == "1\n"
            return await manager.arun("a", "3")

    assert asyncio.run(ask()).value == 3


def test_an_answer_of_the_event_loop(tmp_path):
    """The session is opened in another thread, which has no loop."""
    asked = []

    async def ask(denied):
        asked.append(denied.resolved)
        await asyncio.sleep(0)
        return True

    def make(key):
        return Policy(write=[]).session(on_ask=ask)

    async def run():
        async with SessionManager(make) as manager:
            return await manager.arun("a", f"open({str(tmp_path / 'out')!r}, 'w').write('x')")

    ran = asyncio.run(run())
    assert (ran.error, ran.value, asked) == (None, 1, [str(tmp_path / "out")])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_copy_of_the_host_begins_anew():
    manager = SessionManager(lambda key: Policy().session(), idle_seconds=60, max_sessions=1)
    value(manager, "a", "x = 1")

    def work():
        assert manager.run("a", "x").error.kind == "NameError"
        assert manager.list() == ["a"]
        manager.close()

    in_copy(work)
    assert value(manager, "a", "x") == 1
    manager.close()


def test_a_manager_that_is_forgotten():
    code = """
        import gc, threading
        from fastaudit_rs import Policy, SessionManager
        manager = SessionManager(lambda key: Policy().session(), idle_seconds=0.3)
        manager.run("a", "x = 1")
        del manager
        gc.collect()
        import time
        for _ in range(200):
            if threading.active_count() == 1:
                break
            time.sleep(0.05)
        print(threading.enumerate())
    """
    assert printed(code).count("Thread(") == 1


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"make": 3}, TypeError, "make must be a function of the key, not int"),
        ({"make": Policy()}, TypeError, "not Policy: write lambda key: policy.session()"),
        ({"store": "directory"}, TypeError, "store must be a mutable mapping, not str: write Dir"),
        ({"autosave": True}, ValueError, "autosave needs store="),
        ({"idle_seconds": 0}, ValueError, "idle_seconds must be positive, not 0"),
        ({"max_sessions": 0}, ValueError, "max_sessions must be positive, not 0"),
        ({"max_session": 1}, TypeError, "max_sessions"),
    ],
)
def test_wrong_arguments(options, error, says):
    with pytest.raises(error, match=says):
        SessionManager(**{"make": lambda key: None, **options})


def test_a_stream_that_is_left_ends_with_its_turn(manage):
    manager = manage()
    code = """
import time
try:
    while True: print(1)
finally:
    end = time.monotonic() + 0.2
    while time.monotonic() < end: pass
"""

    async def main():
        async with manager.asession("a") as session:
            async for _ in session.stream(code):
                break
        return (await manager.arun("a", "1 + 1")).value

    assert asyncio.run(main()) == 2


def unmanaged(key):
    yield Policy().session()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda key: 3, "make must give a Session, not int$"),
        (lambda key: Policy(), r"not Policy: return its session\(\)"),
        (unmanaged, "not generator: decorate it with @contextlib.contextmanager"),
    ],
)
def test_what_gives_no_session(make, says):
    with SessionManager(make) as manager, pytest.raises(TypeError, match=says):
        manager.run("a", "1")


def test_a_function_that_makes_a_sandbox_alone():
    pytest.importorskip("sandlock")
    sandbox = Sandbox()
    with SessionManager(lambda key: sandbox) as manager:
        with pytest.raises(TypeError, match=r"not Sandbox: .* that yields its session\(\)"):
            manager.run("a", "1")
        with pytest.raises(RuntimeError, match="closed"):
            sandbox.run("1")


def test_wrong_keys():
    with SessionManager(lambda key: Policy().session()) as manager:
        with pytest.raises(TypeError, match=r"key must be a str, not int: write str\(key\)"):
            manager.run(1, "1")
        with pytest.raises(ValueError, match="key must not be empty"):
            manager.run("", "1")
        with pytest.raises(TypeError, match="timeout"):
            manager.run("a", "1", timout=1)


def test_turns_of_several():
    turns = Turns(2)
    first, second, third, fourth = (turns.ask() for _ in range(4))
    assert first.done() and second.done() and not third.done() and turns.is_wanted
    turns.drop(third)
    turns.end()
    assert fourth.done() and not turns.is_wanted
    turns.drop(fourth)
    assert turns.has_taken() and not turns.has_taken()


def test_two_tasks_of_a_loop_that_use_a_plain_with(manage):
    """The second one would wait for the first, which its waiting keeps from going on."""
    manager = manage()
    errors = []

    async def use(is_async):
        try:
            if is_async:
                async with manager.asession("a") as session:
                    assert (await session.arun("1 + 1")).value == 2
                return
            with manager.session("a") as session:
                assert (await session.arun("import time; time.sleep(0.2)")).success
        except RuntimeError as error:
            errors.append(str(error))

    async def main():
        await asyncio.gather(use(False), use(False), use(True), use(True))

    asyncio.run(asyncio.wait_for(main(), 30))
    assert len(errors) == 1 and "sessions.asession(key)" in errors[0]


def test_closing_in_a_loop_whose_task_has_a_session(opens):
    async def use(sessions):
        with sessions.session("a") as session:
            await session.arun("import time\nfor _ in range(600): time.sleep(0.1)")

    async def main():
        with SessionManager(opens) as sessions:
            task = asyncio.create_task(use(sessions))
            await asyncio.sleep(0.3)
        with contextlib.suppress(RuntimeError, SandboxError):
            await task

    begun = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - begun < 30


def test_removing_a_session_that_a_task_of_the_loop_uses(manage):
    store = {}
    manager = manage(store=store, autosave=True)

    async def main():
        await manager.arun("a", "x = 1")
        task = asyncio.create_task(manager.arun("a", "import time\nwhile True: time.sleep(0.01)"))
        await asyncio.sleep(0.3)
        with pytest.raises(RuntimeError, match=r"stop the event loop: .* aremove\(\)"):
            manager.remove("a")
        assert list(store) == manager.list() == ["a"]
        await manager.aremove("a")
        assert store == {} and manager.list() == []
        await asyncio.gather(task, return_exceptions=True)
        manager.remove("a")

    asyncio.run(main())


@pytest.mark.slow
def test_removing_more_sessions_at_once_than_there_are_threads(manage):
    manager = manage()
    keys = [f"{number}" for number in range(MOST + 2)]

    async def main():
        endless = "import time\nwhile True: time.sleep(0.01)"
        tasks = [asyncio.create_task(manager.arun(key, endless)) for key in keys]
        assert await asyncio.to_thread(until, lambda: len(manager.list()) == len(keys))
        await asyncio.gather(*map(manager.aremove, keys))
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert manager.list() == []


def test_one_that_has_all_the_room_and_asks_for_more(manage):
    manager = manage(max_sessions=1)
    with manager.session("a"), pytest.raises(RuntimeError, match=r"max_sessions=1 .* end one"):
        manager.run("b", "1")

    async def main():
        async with manager.asession("a"):
            with pytest.raises(RuntimeError, match=r"max_sessions=1 .* end one"):
                await manager.arun("b", "1")

    asyncio.run(main())
    assert value(manager, "b", "1") == 1


def test_waiting_for_room_that_a_task_of_the_loop_has(manage):
    manager = manage(max_sessions=1)

    async def main():
        task = asyncio.create_task(manager.arun("a", "import time; time.sleep(1)\n3"))
        await asyncio.sleep(0.3)
        with pytest.raises(RuntimeError, match=r"stop the event loop: await arun\(\)"):
            manager.run("b", "1")
        assert (await task).value == 3
        return manager.run("b", "2").value

    assert asyncio.run(main()) == 2
