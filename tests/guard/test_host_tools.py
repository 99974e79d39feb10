"""Tools: functions of the host that guarded code calls, and that run with the host's rights."""

import asyncio
import contextlib
import enum
import gc
import inspect
import json
import logging
import pickle
import pydoc
import threading
import weakref

import programs
import pytest

from fastaudit_rs import AuditDenied, Policy, Tool, ToolError, mk_audit


@pytest.fixture
def policy(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    return Policy(write=[tmp_path / "in"], threads="inherit")


@pytest.fixture
def third(tmp_path, policy):
    """A policy that lets a directory of its own be written."""
    (tmp_path / "third").mkdir()
    return Policy(write=[tmp_path / "third"])


@pytest.fixture
def out(tmp_path, policy):
    """A directory that guarded code may not write to."""
    return tmp_path / "out"


def write(path, text="x"):
    """Write a text."""
    with open(path, "w") as file:
        return file.write(text)


def echo(*args, **kwargs):
    return [args, kwargs]


def denied(path):
    """True if writing is denied here."""
    try:
        write(path)
    except AuditDenied:
        return True
    return False


def run(source, **names):
    """Run code of the guest, and return its names."""
    exec(source, names)
    return names


class TestRights:
    def test_a_tool_writes_where_its_caller_may_not(self, policy, out):
        save = policy.tool(write)
        with policy.guard()():
            assert save(str(out / "a"), "text") == 4
            assert denied(out / "b")
        assert [path.name for path in out.iterdir()] == ["a"]
        assert (out / "a").read_text() == "text"

    def test_as_a_decorator(self, policy, out):
        @policy.tool
        def one(path):
            return write(path)

        @policy.tool(name="second")
        def two(path):
            return write(path)

        @policy.tool()
        def three(path):
            return write(path)

        @mk_audit([]).tool
        def four(path):
            return write(path)

        with policy.guard()():
            assert [tool(str(out / "a")) for tool in (one, two, three, four)] == [1] * 4
        assert two.__name__ == "second"

    def test_without_a_guard_it_is_called_with_data_as_well(self, policy, out):
        save = policy.tool(write)
        assert save(str(out / "a")) == 1
        assert save(out / "a") == 1
        with pytest.raises(TypeError, match=r"path is an object of range, .*: pass list\(path\)"):
            save(range(3))

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
    def test_the_guard_is_back_after_an_exception(self, policy, out, error):
        @policy.tool
        def fail():
            raise error("no")

        with policy.guard()():
            with pytest.raises(error):
                fail()
            assert denied(out / "a")

    def test_under_another_policy(self, policy, third, tmp_path, out):
        save = policy.tool(write, policy=third)
        with policy.guard()():
            assert save(str(tmp_path / "third/a")) == 1
            with pytest.raises(AuditDenied) as caught:
                save(str(out / "a"))
            # The caller's own rights are not those of the tool.
            with pytest.raises(AuditDenied):
                save(str(tmp_path / "in/a"))
            assert denied(tmp_path / "third/b")
        assert caught.value.path == str(out / "a")
        assert str(third.write[0]) in str(caught.value)
        with pytest.raises(AuditDenied):
            save(str(out / "a"))

    def test_a_guard_that_the_tool_enters(self, policy, third, tmp_path, out):
        @policy.tool
        def both(path, other):
            with third.guard()():
                first = denied(path), denied(other)
            return [first, denied(path), denied(other)]

        with policy.guard()():
            found = both(str(out / "a"), str(tmp_path / "third/a"))
            assert found == [(True, False), False, False]
            assert denied(out / "b")

    def test_an_installed_policy_is_not_lifted(self, tmp_path):
        source = """
import sys, fastaudit_rs as f
from fastaudit_rs import Policy
policy = Policy(write=[sys.argv[1] + "/in"])
@policy.tool
def save(path): open(path, "w").close()
Policy(write=[sys.argv[1] + "/in", sys.argv[1] + "/third"]).install()
with policy.guard()():
    save(sys.argv[1] + "/third/a")
    try: save(sys.argv[1] + "/out")
    except f.AuditDenied: print("denied")
"""
        (tmp_path / "in").mkdir()
        (tmp_path / "third").mkdir()
        assert programs.printed(source, tmp_path) == "denied\n"
        assert (tmp_path / "third/a").exists()

    def test_a_tool_calls_a_tool(self, policy, out):
        inner = policy.tool(write, name="inner")

        @policy.tool
        def outer(path):
            inner(path + "1")
            write(path + "2")

        with policy.guard()():
            outer(str(out / "a"))
            assert denied(out / "b")
        assert sorted(path.name for path in out.iterdir()) == ["a1", "a2"]

    def test_guarded_code_makes_no_tools(self, policy, out):
        with policy.guard()(), pytest.raises(AuditDenied, match=r"audit_perms\.set_config"):
            policy.tool(write)

    @pytest.mark.parametrize("given", [3, "f", str])
    def test_only_functions_are_tools(self, policy, given):
        with pytest.raises(TypeError, match="function must be a function"):
            policy.tool(given)

    def test_generators_are_no_tools(self, policy):
        def plain():
            yield 1

        async def asynchronous():
            yield 1

        for function in (plain, asynchronous):
            with pytest.raises(TypeError, match="return a list"):
                policy.tool(function)


class TestThreads:
    def test_a_thread_has_the_rights_until_the_tool_returns(self, policy, out):
        go, done, found = threading.Event(), threading.Event(), []

        @policy.tool
        def start(path):
            begun = threading.Event()

            def work():
                found.append(denied(path))
                begun.set()
                go.wait(10)
                found.append(denied(path))
                done.set()

            threading.Thread(target=work).start()
            begun.wait(10)

        with policy.guard()():
            start(str(out / "a"))
        go.set()
        assert done.wait(10)
        assert found == [False, True]

    def test_a_job_of_an_executor_likewise(self, policy, out):
        from concurrent.futures import ThreadPoolExecutor

        go, begun = threading.Event(), threading.Event()
        jobs = []

        with ThreadPoolExecutor(1) as executor:

            def work(path):
                first = denied(path)
                begun.set()
                go.wait(10)
                return first, denied(path)

            @policy.tool
            def start(path):
                jobs.append(executor.submit(work, path))
                begun.wait(10)

            with policy.guard()():
                start(str(out / "a"))
            go.set()
            assert jobs[0].result(10) == (False, True)
            # The thread is no one's.
            assert not executor.submit(denied, out / "b").result(10)

    def test_a_context_that_was_kept(self, policy, out):
        import contextvars

        kept = []
        keep = policy.tool(lambda: kept.append(contextvars.copy_context()))
        with policy.guard()():
            keep()
        assert kept[0].run(denied, out / "a")

    def test_a_generator_that_was_kept(self, policy, out):
        def steps():
            while True:
                yield denied(out / "a")

        kept = steps()
        step = policy.tool(lambda: next(kept))
        with policy.guard()():
            assert not step()
            assert next(kept)


class TestData:
    DATA = (None, True, 1, 10**40, 1.5, "a\ud800", b"\0", [1, [2]], (1, (2,)), {1: {"a": [b""]}})

    @pytest.mark.parametrize("value", DATA, ids=repr)
    def test_data_arrive_as_they_are(self, policy, value):
        tool = policy.tool(echo)
        with policy.guard()():
            assert tool(value, key=value) == [(value,), {"key": value}]

    def test_they_are_copied(self, policy):
        kept = []

        @policy.tool
        def keep(value):
            kept.append(value)
            return value

        mine = {"a": [1]}
        with policy.guard()():
            back = keep(mine)
            mine["a"].append(2)
            back["a"].append(3)
        assert kept == [{"a": [1]}]

    def test_instances_of_subclasses_become_plain(self, policy):
        class Text(str):
            def __str__(self):
                raise AssertionError

            __fspath__ = __eq__ = __hash__ = __len__ = __getitem__ = __repr__ = __str__

        class Number(int):
            def __int__(self):
                raise AssertionError

            __index__ = __eq__ = __hash__ = __add__ = __repr__ = __int__

        class Mapping(dict):
            def keys(self):
                raise AssertionError

            items = values = __iter__ = __getitem__ = __len__ = keys

        class Items(list):
            def __iter__(self):
                raise AssertionError

            __len__ = __getitem__ = __iter__

        class Colour(enum.IntEnum):
            RED = 3

        tool = policy.tool(lambda *args: [(type(arg).__name__, arg) for arg in args])
        given = [Text("a"), Number(10**30), Mapping(a=Number(1)), Items([Text("b")]), Colour.RED]
        with policy.guard()():
            found = tool(*given)
        assert found == [
            ("str", "a"),
            ("int", 10**30),
            ("dict", {"a": 1}),
            ("list", ["b"]),
            ("int", 3),
        ]

    def test_numbers_of_numpy(self, policy):
        numpy = pytest.importorskip("numpy")
        tool = policy.tool(lambda number: type(number).__name__)
        number, array = numpy.float64(1.5), numpy.zeros(3)
        with policy.guard()():
            assert tool(number) == "float"
            with pytest.raises(AuditDenied, match="numpy"):
                tool(array)
        with Policy(native=["numpy"]).guard()():
            assert tool(array) == "ndarray"

    @pytest.mark.parametrize(
        ("value", "told"),
        [
            ({}.keys(), r"value is an object of dict_keys, .*: pass list\(value\)"),
            (memoryview(b""), r"value is an object of memoryview, .*: pass bytes\(value\)"),
            ([{"a": object()}], r"value\[0\]\['a'\] is an object of object, .*: pass data, dates"),
            (lambda: 1, "value is an object of function, .*: pass data"),
            (type, "value is an object of type"),
        ],
    )
    def test_other_objects_are_errors(self, policy, value, told):
        tool = policy.tool(lambda value: value, name="save")
        with policy.guard()(), pytest.raises(TypeError, match=f"tool 'save': {told}"):
            tool(value)

    def test_nothing_of_an_object_is_called(self, policy):
        called = []

        class Spy:
            def __getattr__(self, name):
                called.append(name)
                raise AttributeError(name)

            def __repr__(self):
                called.append("repr")
                return ""

            __str__ = __fspath__ = __index__ = __bytes__ = __bool__ = __repr__

        tool = policy.tool(echo)
        with policy.guard()():
            for given in (Spy(), [Spy()], {"a": Spy()}):
                with pytest.raises(TypeError, match=r"args\[0\].* is an object of .*Spy"):
                    tool(given)
                with pytest.raises(TypeError, match="key.* is an object of .*Spy"):
                    tool(key=given)
        assert called == []

    @pytest.mark.parametrize(
        ("value", "told"),
        [
            ("x" * (16 << 20) + "x", "more than 16 MB"),
            ([b"x" * (4 << 20)] * 5, "more than 16 MB"),
            ([None] * (1 << 21), "more than 1,048,576 values"),
            ([[None] * 1024] * 1025, "more than 1,048,576 values"),
            (1 << (8 * (17 << 20)), "more than 16 MB"),
        ],
        ids=range(5),
    )
    def test_too_much(self, policy, value, told):
        tool = policy.tool(lambda value: None)
        with policy.guard()(), pytest.raises(ValueError, match=told):
            tool(value)

    def test_too_deep_and_endless(self, policy):
        deep, endless, mapping = [], [], {}
        for _ in range(150):
            deep = [deep]
        endless.append((endless,))
        mapping["a"] = [mapping]
        tool = policy.tool(lambda value: None)
        with policy.guard()():
            with pytest.raises(ValueError, match="nested more than 100 deep"):
                tool(deep)
            for value in (endless, mapping):
                with pytest.raises(ValueError, match="holds itself"):
                    tool(value)

    def test_results_are_data(self, policy):
        tool = policy.tool(lambda: iter([1]), name="numbers")
        with (
            policy.guard()(),
            pytest.raises(TypeError, match="tool 'numbers': its result is an object of list_iter"),
        ):
            tool()

    def test_raw(self, policy):
        class Thing:
            pass

        thing, other = Thing(), Thing()
        tool = policy.tool(lambda value, key: (value, key, other), raw=True)
        with policy.guard()():
            assert tool(thing, key=thing) == (thing, thing, other)

    def test_wrong_calls(self, policy):
        tool = policy.tool(write)
        with policy.guard()(), pytest.raises(TypeError, match="unexpected keyword argument 'b'"):
            tool("a", b=1)


class HTTPError(Exception):
    """An error that is not Python's own."""


class TestErrors:
    @pytest.mark.parametrize(
        "error",
        [
            ValueError("a", 1),
            KeyError("a"),
            StopIteration(3),
            UnicodeDecodeError("utf-8", b"a", 0, 1, "no"),
            TimeoutError(),
        ],
        ids=repr,
    )
    def test_pythons_own_are_made_anew(self, policy, error):
        error.secret = object()

        def fail():
            raise error from ZeroDivisionError()

        tool = policy.tool(fail)
        with policy.guard()(), pytest.raises(type(error)) as caught:
            tool()
        assert caught.value is not error
        assert caught.value.args == error.args
        assert caught.value.__cause__ is None
        assert not hasattr(caught.value, "secret")
        assert [entry.name for entry in caught.traceback] == [
            "test_pythons_own_are_made_anew",
        ]

    def test_an_error_of_the_system(self, policy, out):
        tool = policy.tool(write)
        with policy.guard()(), pytest.raises(FileNotFoundError) as caught:
            tool(str(out / "no/a"))
        assert caught.value.filename == str(out / "no/a")

    def test_others_become_data(self, policy, caplog):
        """The log of the host has the real one."""

        @policy.tool(name="fetch")
        def fail():
            raise HTTPError("404 Not Found")

        with (
            caplog.at_level(logging.DEBUG, "fastaudit_rs.tools"),
            policy.guard()(),
            pytest.raises(ToolError, match="^HTTPError: 404 Not Found$") as caught,
        ):
            fail()
        [record] = caplog.records
        assert record.getMessage() == "tool fetch raised"
        assert record.exc_info[0] is HTTPError and record.exc_info[2] is not None
        error = caught.value
        assert (error.tool, error.kind) == ("fetch", f"{__name__}.HTTPError")
        assert error.__context__ is error.__cause__ is None
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.tool, again.kind) == (str(error), error.tool, error.kind)

        @policy.tool
        def with_an_object():
            raise ValueError(object())

        with policy.guard()(), pytest.raises(ToolError, match="^ValueError: <object") as caught:
            with_an_object()
        assert caught.value.kind == "ValueError"

    def test_raw_ones_have_no_frames_of_the_host(self, policy):
        error = HTTPError()

        @policy.tool(raw=True)
        def fail():
            raise error

        with policy.guard()(), pytest.raises(HTTPError) as caught:
            fail()
        assert caught.value is error
        assert len(caught.traceback) == 1


class TestAsync:
    def test_it_is_awaited(self, policy, out):
        @policy.tool
        async def save(path, text):
            write(path + "1", text)
            await asyncio.sleep(0.001)
            return write(path + "2", text)

        async def main():
            found = await save(str(out / "a"), "text")
            more = await asyncio.gather(save(str(out / "b"), ""), save(str(out / "c"), "x"))
            task = asyncio.create_task(save(str(out / "d"), "x"))
            return found, more, await task, denied(out / "e")

        with policy.guard()():
            assert asyncio.run(main()) == (4, [0, 1], 1, True)
        assert len(list(out.iterdir())) == 8

    def test_between_its_steps_the_guard_is_in_force(self, policy, out):
        @policy.tool
        async def slow(path):
            for _ in range(5):
                await asyncio.sleep(0)
                write(path)

        async def main():
            task = asyncio.ensure_future(slow(str(out / "a")))
            found = []
            while not task.done():
                found.append(denied(out / "b"))
                await asyncio.sleep(0)
            return found

        with policy.guard()():
            found = asyncio.run(main())
        assert len(found) > 3
        assert all(found)

    def test_a_guard_that_it_enters_rests_with_it(self, policy, third, out):
        @policy.tool
        async def slow(path):
            with third.guard()():
                await asyncio.sleep(0)
                first = denied(path)
                await asyncio.sleep(0)
            return first, denied(path)

        async def main():
            return await slow(str(out / "a")), denied(out / "b")

        with policy.guard()():
            assert asyncio.run(main()) == ((True, False), True)

    def test_arguments_are_taken_at_the_call(self, policy):
        @policy.tool
        async def echo(value):
            return value

        async def main():
            value = [1]
            call = echo(value)
            value.append(2)
            with pytest.raises(TypeError, match="value is an object of range"):
                echo(range(1))
            return await call

        with policy.guard()():
            assert asyncio.run(main()) == [1]

    def test_cancelling_reaches_the_function(self, policy, out):
        @policy.tool
        async def slow(path):
            try:
                await asyncio.sleep(10)
            finally:
                write(path)

        async def main():
            task = asyncio.ensure_future(slow(str(out / "a")))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(slow(str(out / "b")), 0.01)
            return denied(out / "c")

        with policy.guard()():
            assert asyncio.run(main())
        assert sorted(path.name for path in out.iterdir()) == ["a", "b"]

    @pytest.mark.slow
    def test_closing_reaches_it_too(self, policy, out):
        @policy.tool
        async def slow(path):
            try:
                await asyncio.sleep(10)
            finally:
                write(path)

        with policy.guard()():
            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)

            async def begin(path):
                call = slow(path)
                call.send(None)
                return call

            call = loop.run_until_complete(begin(str(out / "a")))
            call.close()
            with pytest.raises(RuntimeError, match="awaited already"):
                call.send(None)
            call.close()
            call = loop.run_until_complete(begin(str(out / "b")))
            del call
            gc.collect()
            loop.close()
        assert sorted(path.name for path in out.iterdir()) == ["a", "b"]

    def test_a_task_has_the_rights_until_the_tool_returns(self, policy, out):
        found = []

        @policy.tool
        async def start(path):
            async def work():
                found.append(denied(path))
                await asyncio.sleep(0.02)
                found.append(denied(path))

            tasks.append(asyncio.ensure_future(work()))
            await asyncio.sleep(0.001)

        tasks = []

        async def main():
            await start(str(out / "a"))
            await tasks[0]

        with policy.guard()():
            asyncio.run(main())
        assert found == [False, True]

    def test_errors(self, policy):
        @policy.tool(name="fetch")
        async def fail():
            await asyncio.sleep(0)
            raise HTTPError("no")

        with policy.guard()(), pytest.raises(ToolError, match="HTTPError: no"):
            asyncio.run(fail_in_a_loop(fail))


async def fail_in_a_loop(fail):
    await fail()


OTHER = object()


class TestLooks:
    def test_it_tells_about_the_function(self, policy):
        @policy.tool
        def save(path: str, text: "list[str]", *more, flag=True, other=OTHER, **rest) -> int:
            """Save a text."""

        assert repr(save) == "<tool save(path, text, *more, flag, other, **rest)>"
        assert (save.__name__, save.__doc__) == ("save", "Save a text.")
        signature = inspect.signature(save)
        assert str(signature) == (
            "(path: 'str', text: 'list[str]', *more, flag=True, other=Ellipsis, **rest) -> 'int'"
        )
        assert "Save a text." in pydoc.render_doc(save)
        assert isinstance(save, Tool)

    def test_nothing_of_it_leads_to_the_function(self, policy):
        @policy.tool
        def secret(path):
            """Text."""

        def reached(found, depth):
            yield found
            if depth and not isinstance(found, (str, int, type)):
                for name in dir(found):
                    with contextlib.suppress(AttributeError, TypeError):
                        yield from reached(getattr(found, name), depth - 1)

        function = next(
            found
            for found in gc.get_objects()
            if inspect.isfunction(found) and found.__name__ == "secret"
        )
        assert function not in gc.get_referents(secret)
        assert all(found is not function for found in reached(secret, 2))
        assert not hasattr(secret, "__wrapped__")

    def test_it_is_immutable_and_final(self, policy):
        tool = policy.tool(write)
        for change in ("tool.x = 1", "tool.__call__ = print", "Tool.x = 1", "tool.__name__ = 'b'"):
            with pytest.raises((AttributeError, TypeError)):
                run(change, tool=tool, Tool=Tool)
        with pytest.raises(TypeError):
            type("Other", (Tool,), {})
        with pytest.raises(TypeError):
            Tool()
        with pytest.raises(TypeError):
            pickle.dumps(tool)

    @pytest.mark.slow
    def test_the_function_goes_with_the_tool(self, policy):
        def function():
            pass

        tool = policy.tool(function)
        gone = weakref.ref(function)
        with policy.guard()():
            tool()
        del tool, function
        gc.collect()
        assert gone() is None


class TestCodeOfTheGuest:
    """Code that came into being under the guard stays guarded in the course of a tool."""

    def test_a_callback(self, policy, out):
        call = policy.tool(lambda function, *args: function(*args), raw=True)
        with policy.guard()():
            guest = run("def f(path): open(path, 'w').close()")
            with pytest.raises(AuditDenied):
                call(guest["f"], str(out / "a"))
            # Functions of the host's own are the host's.
            call(write, str(out / "b"))
        assert [path.name for path in out.iterdir()] == ["b"]

    def test_a_callback_that_calls_a_tool(self, policy, out):
        save = policy.tool(write)
        call = policy.tool(lambda function, *args: function(*args), raw=True)
        with policy.guard()():
            guest = run(
                "def f(path):\n"
                "    save(path)\n"
                "    try: open(path + '2', 'w').close()\n"
                "    except PermissionError: return 'denied'",
                save=save,
            )
            assert call(guest["f"], str(out / "a")) == "denied"
        assert [path.name for path in out.iterdir()] == ["a"]

    def test_an_agent_that_a_tool_runs(self, policy, third, tmp_path):
        call = third.tool(lambda function: function(), raw=True, name="call")

        @policy.tool
        def agent(allowed, other):
            names = {"call": call, "allowed": allowed, "other": other, "found": []}
            with third.guard()():
                exec(
                    "def f(): open(other, 'w').close()\n"
                    "open(allowed, 'w').close()\n"
                    "for way in (f, lambda: call(f)):\n"
                    "    try: way()\n"
                    "    except PermissionError: found.append('denied')\n",
                    names,
                )
            return names["found"]

        with policy.guard()():
            found = agent(str(tmp_path / "third/a"), str(tmp_path / "other"))
            assert found == ["denied", "denied"]
        assert (tmp_path / "third/a").exists()
        assert not (tmp_path / "other").exists()


class TestReports:
    def test_a_recording_has_the_operations_of_tools(self, policy, out):
        save = policy.tool(write, name="save")
        with policy.observe()() as recording:
            save(str(out / "a"))
            save(str(out / "a"))
            write(out / "b")
        found = {effect.path: effect for effect in recording.effects if effect.effect == "write"}
        by_tool, own = found[str(out / "a")], found[str(out / "b")]
        assert (by_tool.tool, by_tool.verdict, by_tool.count) == ("save", "allowed", 2)
        assert (own.tool, own.verdict) == (None, "write")
        told = [effect.get("tool") for effect in json.loads(recording.to_json())["effects"]]
        assert sorted(told, key=str) == [None, "save"]
        # A policy for the guest need not allow them.
        assert str(out / "a") not in repr(recording.suggest())

    def test_a_denial_names_the_tool(self, policy, out):
        third = Policy()
        save = policy.tool(write, name="save", policy=third)
        with policy.guard()():
            with pytest.raises(AuditDenied) as caught:
                save(str(out / "a"))
            with pytest.raises(AuditDenied) as own:
                write(out / "a")
        assert caught.value.tool == "save"
        assert caught.value.to_dict()["tool"] == "save"
        assert pickle.loads(pickle.dumps(caught.value)).tool == "save"
        assert own.value.tool is None


class TestBeside:
    def test_native_code_that_a_tool_calls(self, policy):
        numpy = pytest.importorskip("numpy")
        total = policy.tool(lambda items: numpy.array(items).sum(), name="total")
        call = policy.tool(lambda function: function(), raw=True, name="call")
        with policy.guard()():
            assert total([1.5, 2.0]) == 3.5
            with pytest.raises(AuditDenied):
                numpy.zeros(3)
            # Code of the guest calls none by way of a tool.
            guest = run("def f(): return zeros(3)", zeros=numpy.zeros)
            with pytest.raises(AuditDenied):
                call(guest["f"])

    def test_tracked_calls(self, policy, out):
        from fastaudit_rs.calls import active_calls, track_call

        found = []

        @track_call
        async def work(path):
            found.append([call.fn.__name__ for call in active_calls()])
            return write(path)

        save = policy.tool(work, name="save")

        async def main():
            return await save(str(out / "a"))

        with policy.guard()():
            assert asyncio.run(main()) == 1
        assert found == [["work"]]


def test_a_tool_before_the_first_guard():
    """It works, and a policy can be asked then, too."""
    code = """
from fastaudit_rs import Policy
policy = Policy()
print(policy.tool(lambda a: a + 1)(1))
print(policy.explain("os.mkdir", "/srv/x", 0, -1).allowed)
"""
    assert programs.printed(code) == "2\nFalse\n"
