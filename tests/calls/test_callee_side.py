"""`calls="callee"`: native code tells of its own calls, and is what it was (3.12+)."""

import functools
import gc
import inspect
import operator
import pickle
import sys
import weakref

import numpy as np
import orjson
import programs
import pytest
from test_call_sites import seen as seen, watch as watch

from fastaudit_rs import AuditDenied, Policy, mk_audit

pytestmark = pytest.mark.one_side("callee")
has_events = pytest.mark.skipif(sys.version_info < (3, 12), reason="no sys.monitoring before 3.12")

array = np.arange(6)


#: Each kind of native callable.
CALLABLES = {
    "function": orjson.dumps,
    "method of a class": np.ndarray.item,
    "bound method": array.item,
    "method of a class itself": np.ndarray.__class_getitem__,
    "slot": np.ndarray.__add__,
    "bound slot": array.__add__,
    "function of numpy": np.add,
    "class": np.float64,
    "__new__": np.ndarray.__new__,
    "Cython function": np.random.default_rng,
    "bound Cython function": np.random.rand,
}


def facts(function):
    """What can be told of a callable."""
    try:
        signature = str(inspect.signature(function))
    except ValueError as error:
        signature = str(error)
    names = ("__name__", "__qualname__", "__module__", "__doc__", "__text_signature__", "__self__")
    found = [repr(getattr(function, name, None)) for name in names]
    return [repr(function), signature, hash(function), type(function), id(function), *found]


def pickled(function):
    try:
        return pickle.dumps(function)
    except Exception as error:
        return repr(error)


class TestWhatIsCalled:
    @pytest.mark.parametrize("name", CALLABLES)
    def test_is_what_it_was(self, name, seen):
        program = """
            import sys
            sys.path[:] = {path!r}
            import test_callee_side as tests
            from fastaudit_rs import mk_audit
            function = tests.CALLABLES[{name!r}]
            again = getattr(tests.array, "item")
            before = tests.facts(function), tests.pickled(function), again == tests.array.item
            with mk_audit([], on_call=lambda *_: False, calls="callee")():
                tests.facts(function)
            after = tests.facts(function), tests.pickled(function), again == tests.array.item
            assert before == after, (before, after)
        """
        programs.printed(program.format(path=sys.path, name=name))

    def test_a_method_that_was_bound_before_is_equal_to_one_bound_after(self, seen):
        before = array.item
        seen(lambda: before(0))
        assert (before == array.item, hash(before) == hash(array.item)) == (True, True)

    def test_errors_are_its_own(self, seen):
        def run():
            with pytest.raises(TypeError, match="takes no keyword arguments|keyword") as raised:
                array.item(wrong=1)
            assert raised.value.__traceback__.tb_next is None
            with pytest.raises(orjson.JSONDecodeError):
                orjson.loads("{")

        seen(run)

    def test_keywords_and_unpacked_arguments(self, seen):
        def run():
            assert orjson.dumps({"b": 1, "a": 2}, option=orjson.OPT_SORT_KEYS) == b'{"a":2,"b":1}'
            assert np.sum(*[[1, 2]], axis=0) == 3
            assert np.array([1], dtype="f8").dtype == float
            assert np.random.default_rng(seed=1).random() == np.random.default_rng(1).random()
            assert np.frombuffer(b"\1", dtype="u1")[0] == 1

        seen(run)


class TestWhatIsSeen:
    def test_each_call_by_native_code_of_the_standard_library(self, seen):
        assert seen(lambda: list(map(np.sin, [1, 2]))) == ["numpy.sin"] * 2
        assert seen(lambda: sorted([2, 1], key=np.negative)) == ["numpy.negative"] * 2
        assert seen(lambda: operator.methodcaller("item", 0)(array)) == ["numpy.ndarray.item"]
        assert seen(lambda: functools.partial(orjson.dumps, 1)()) == ["orjson.dumps"]

    def test_what_native_code_calls_of_itself_is_one_call(self, seen):
        assert seen(lambda: np.array(["1"]).astype(float)) == [
            "numpy.array",
            "numpy.ndarray.astype",
        ]

    def test_python_code_that_it_calls_is_code_of_its_own(self, seen):
        def inner(value):
            return orjson.dumps(value) and 1

        assert seen(lambda: np.frompyfunc(inner, 1, 1)(3)) == [
            "numpy.frompyfunc",
            "numpy.inner (vectorized)",
            "orjson.dumps",
        ]

    def test_what_python_code_calls_after_it_was_called(self, seen):
        def run():
            np.frompyfunc(lambda value: value, 1, 1)(3)
            orjson.dumps(1)

        assert seen(run)[-1] == "orjson.dumps"

    def test_after_an_exception(self, seen):
        def run():
            with pytest.raises(ZeroDivisionError):
                np.frompyfunc(lambda value: 1 / 0, 1, 1)(3)
            orjson.dumps(1)

        assert seen(run)[-1] == "orjson.dumps"

    def test_in_generators_and_coroutines(self, seen):
        def generator():
            while True:
                yield orjson.dumps(1)

        async def coroutine():
            return orjson.dumps(1)

        def run():
            made = generator()
            next(made), next(made)
            with pytest.raises(StopIteration):
                coroutine().send(None)

        assert seen(run) == ["orjson.dumps"] * 3

    def test_functions_that_it_makes(self, seen):
        def run():
            for _ in range(2000):
                np.frompyfunc(len, 1, 1)([])

        assert len(seen(run)) == 4000

    def test_functions_that_are_freed(self, seen):
        made = np.frompyfunc(len, 1, 1)
        seen(lambda: made([]))
        gone = []
        for _ in range(1000):
            functions = [array.item, np.frompyfunc(len, 1, 1), np.ndarray.__new__]
            gone.append(weakref.ref(functions[0]))
            assert functions[0](1) == 1
        del functions
        gc.collect()
        assert [one for one in gone if one() is not None] == []

    def test_modules_that_are_loaded_under_the_guard(self):
        program = """
            from fastaudit_rs import mk_audit
            calls = []
            on_call = lambda caller, callee, *rest: (calls.append(callee), False)[1]
            allow = lambda *event: True
            with mk_audit(["/"], allow, on_call, calls="callee")():
                import orjson
                orjson.dumps(1)
                import numpy
                calls.clear()
                numpy.add(1, 1), numpy.arange(3).item(0), numpy.float64(1)
                numpy.random.default_rng
            print(calls)
        """
        printed = programs.printed(program)
        assert "'numpy.add', 'numpy.arange', 'numpy.ndarray.item', 'numpy.float64'" in printed

    def test_classes_of_python_code_that_are_made_later(self, seen):
        def run():
            class Meta(type):
                pass

            class Derived(np.ndarray, metaclass=Meta):
                pass

            Derived(2).item(0)
            Meta.__call__(Derived, 2)

        seen(lambda: None)
        assert seen(run) == ["numpy.ndarray", "numpy.ndarray.item", "numpy.ndarray"]

    def test_stacks_that_switch(self):
        pytest.importorskip("greenlet")
        program = """
            import greenlet, orjson
            from fastaudit_rs import mk_audit
            calls = []
            on_call = lambda caller, callee, *rest: (calls.append(callee), False)[1]

            def one():
                for _ in range(50):
                    orjson.dumps(1)
                    second.switch()

            def two():
                for _ in range(50):
                    orjson.loads("1")
                    first.switch()

            with mk_audit([], on_call=on_call, calls="callee")():
                first, second = greenlet.greenlet(one), greenlet.greenlet(two)
                first.switch()
            print(calls.count("orjson.dumps"), calls.count("orjson.loads"))
        """
        assert programs.printed(program) == "50 50\n"


class TestGuards:
    def test_denials(self, places):
        with mk_audit([places.ok], calls="callee")():
            for function in (lambda: orjson.dumps(1), lambda: list(map(orjson.dumps, [1]))):
                with pytest.raises(AuditDenied) as raised:
                    function()
                assert raised.value.event == "fastaudit.call"
                assert raised.value.event_args[1] == "orjson.dumps"
        assert orjson.dumps(1) == b"1"

    @has_events
    def test_disable_lets_the_call_pass_and_asks_again(self, places):
        asked = []

        def on_call(*call):
            asked.append(call)
            return sys.monitoring.DISABLE

        with mk_audit([places.ok], on_call=on_call, calls="callee")():
            for _ in range(2):
                orjson.dumps(1)
        assert len(asked) == 2

    @has_events
    def test_one_of_each_kind(self, places, elsewhere):
        def guard(side, asked):
            on_call = lambda caller, callee, *rest: (asked.append(callee), False)[1]  # noqa: E731
            return mk_audit([places.ok], on_call=on_call, calls=side)()

        there, here = [], []
        other = guard("events", there)
        elsewhere(other.__enter__)
        with guard("callee", here):
            orjson.dumps(1)
            elsewhere(orjson.loads, "1")
        elsewhere(orjson.loads, "1")
        elsewhere(other.__exit__, None, None, None)
        assert (there, here) == (["orjson.loads"] * 2, ["orjson.dumps"])

    @has_events
    def test_no_events(self, places):
        with mk_audit([places.ok], calls="callee")() as guard:
            assert sys.monitoring.get_events(3) == 0
        assert guard is not None

    def test_threads(self, places):
        program = """
            import threading
            import numpy, orjson
            from fastaudit_rs import Policy

            def work(denied):
                for number in range(3000):
                    try:
                        orjson.dumps([number])
                    except PermissionError:
                        denied.append(number)
                    numpy.add(number, 1)

            policy = Policy(native=["numpy"], threads="inherit")
            denied = []
            with policy.guard(calls="callee")():
                threads = [threading.Thread(target=work, args=(denied,)) for _ in range(4)]
                for thread in threads: thread.start()
                for thread in threads: thread.join()
            print(len(denied))
        """
        assert programs.printed(program) == "12000\n"

    def test_a_thread_that_the_interpreter_ends_in_a_call(self):
        """Before 3.14 CPython ends a daemon thread by unwinding its stack."""
        program = """
            import threading, time
            import numpy
            from fastaudit_rs import Policy
            policy = Policy(native=True, threads="inherit")
            started = threading.Event()

            def sleep(value):
                started.set()
                time.sleep(0.2)
                return value

            with policy.guard(calls="callee", on_call=lambda *_: False)():
                call = numpy.frompyfunc(sleep, 1, 1)
                thread = threading.Thread(target=call, args=(1,), daemon=True)
                thread.start()
                started.wait()
            print("end")
        """
        assert programs.printed(program) == "end\n"

    def test_workers_of_a_pool(self, tmp_path):
        program = """
            import multiprocessing, sys
            import orjson
            from fastaudit_rs import Policy, v02

            def dumps(_):
                try:
                    return orjson.dumps(1)
                except PermissionError:
                    return v02.audit_state()["tool_id"]

            if __name__ == "__main__":
                policy = Policy(native=["numpy"], threads="inherit", commands=[sys.executable])
                with policy.guard(calls="callee")():
                    with multiprocessing.get_context("spawn").Pool(1) as pool:
                        print(pool.map(dumps, [1]))
        """
        path = tmp_path / "program.py"
        path.write_text(inspect.cleandoc(program))
        done = programs.run([sys.executable, path])
        assert (done.stdout, done.returncode) == ("[None]\n", 0), done.stderr


class TestArguments:
    @pytest.mark.parametrize("make", [lambda **given: mk_audit([], **given), Policy().guard])
    def test_a_wrong_one(self, make):
        with pytest.raises(ValueError, match="calls must be 'events' or 'callee', not 'callees'"):
            make(calls="callees")

    def test_a_wrong_variable(self, monkeypatch):
        monkeypatch.setenv("FASTAUDIT_RS_CALLS", "on")
        wanted = "FASTAUDIT_RS_CALLS must be 'events' or 'callee', not 'on'"
        with pytest.raises(ValueError, match=wanted):
            mk_audit([])

    def test_without_call_sites(self):
        with pytest.raises(ValueError, match="retire_sites needs calls='events'"):
            mk_audit([], calls="callee", retire_sites=True)
