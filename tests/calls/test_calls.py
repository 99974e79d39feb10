"""Call monitoring: which calls raise `fastaudit.call`, and what `on_call` may do (3.12+)."""

import collections
import contextvars
import datetime
import functools
import gc
import operator
import re
import sys
import traceback
import weakref

import numpy as np
import orjson
import pytest


@pytest.fixture
def watch(mk_audit, places):
    """`watch(on_call=…)`: a guard with call monitoring."""

    def make(**options):
        return mk_audit([places.ok], **options)()

    return make


def denied_callee(function, *args):
    """The callee that a call of `function` was denied for, `None` if it ran."""
    try:
        function(*args)
    except PermissionError as error:
        return re.fullmatch(
            r"Audit: fastaudit\.call blocked in sandbox with args: \('[^']*', '([^']*)'\)",
            error.args[0],
        )[1]
    return None


def call(function, *args, **kwargs):
    """One call site."""
    return function(*args, **kwargs)


@functools.lru_cache
def cached(value):
    return value


class Python:
    """Callables of many kinds, all of them Python code."""

    def __call__(self):
        return "called"

    def method(self):
        return "method"

    @classmethod
    def class_method(cls):
        return "class method"

    @staticmethod
    def static_method():
        return "static method"

    @property
    def property(self):
        return "property"

    @functools.cached_property
    def cached_property(self):
        return "cached property"

    @functools.singledispatchmethod
    def dispatched(self, value):
        return "dispatched"

    partial = functools.partialmethod(method)


def test_native_calls_are_denied(watch):
    with watch(), pytest.raises(PermissionError) as denial:
        orjson.dumps({})
    name = f"{__name__}.test_native_calls_are_denied"
    assert denial.value.args[0] == (
        f"Audit: fastaudit.call blocked in sandbox with args: ({name!r}, 'orjson.dumps')"
    )
    assert [frame.name for frame in traceback.extract_tb(denial.value.__traceback__)] == [
        "test_native_calls_are_denied"
    ]
    assert orjson.dumps({}) == b"{}"


@pytest.mark.parametrize(
    ("function", "callee"),
    [
        (lambda: np.arange(3), "numpy.arange"),
        (lambda: np.array([1]), "numpy.array"),
        (lambda: np.add(1, 2), "numpy.add"),
        (lambda: np.sum([1]), "numpy.sum"),
        (lambda: array.sum(), "numpy.ndarray.sum"),
        (lambda: call(array.sum), "numpy.ndarray.sum"),
        (lambda: call(np.ndarray.sum, array), "numpy.ndarray.sum"),
        (lambda: call(orjson.dumps, **keywords), "orjson.dumps"),
    ],
)
def test_names_of_native_callees(watch, function, callee):
    with watch():
        assert denied_callee(function) == callee


array = np.array([1, 2])
keywords = {"default": None}
instance = Python()


class MyList(list):
    pass


class MyDate(datetime.date):
    pass


class MyPartial(functools.partial):
    pass


QUIET = {
    "function": lambda: call(lambda: 1),
    "class": lambda: Python(),
    "exception": lambda: ValueError("x"),
    "namedtuple": lambda: collections.namedtuple("P", "x y")(1, 2),
    "callable instance": lambda: instance(),
    "method": lambda: instance.method(),
    "bound method": lambda: call(instance.method),
    "class method": lambda: Python.class_method(),
    "static method": lambda: Python.static_method(),
    "cached property": lambda: (instance.property, instance.cached_property),
    "partialmethod": lambda: instance.partial(),
    "singledispatchmethod": lambda: instance.dispatched(1),
    "partial": lambda: call(functools.partial(call, call, len), ()),
    "builtin": lambda: call(len, ()),
    "method of a builtin": lambda: [].append(1),
    "bound method of a builtin": lambda: call([].append, 1),
    "unbound method of a builtin": lambda: call(list.append, [], 1),
    "method wrapper": lambda: call((1).__add__, 1),
    "super().__init__": lambda: type("Derived", (Python,), {})(),
    "stdlib": lambda: (operator.itemgetter(0)([1]), re.compile("a").match("a")),
    "weakref": lambda: weakref.ref(instance)(),
    "partial of lru_cache": lambda: call(functools.partial(cached, 1)),
    "__call__": lambda: call(call.__call__, len, ()),
    "inherited class method": lambda: call(MyDate.today),
    "subclass of partial": lambda: call(MyPartial(len, ())),
    "static __call__": lambda: type("C", (), {"__call__": staticmethod(lambda: 1)})()(),
}


@pytest.mark.parametrize("kind", QUIET)
def test_python_and_stdlib_calls_are_not_native_calls(watch, kind):
    with watch():
        QUIET[kind]()


@pytest.mark.original_fails()
@pytest.mark.parametrize(
    "function",
    [
        lambda: cached(1),
        lambda: type("C", (), {"m": functools.lru_cache(lambda self: 1)})().m(),
        lambda: call(Python.__dict__["static_method"]),
        lambda: call(MyList().append, 1),
    ],
    ids=["lru_cache", "lru_cache as a method", "staticmethod object", "inherited method"],
)
def test_python_calls_through_native_wrappers(watch, function):
    with watch():
        function()


@pytest.mark.original_fails()
@pytest.mark.parametrize(
    "function",
    [
        functools.partial(orjson.dumps, 1),
        MyPartial(orjson.dumps, 1),
        functools.partial(functools.partial(orjson.dumps), 1),
        orjson.dumps.__call__,
        functools.partial(orjson.dumps, 1).__call__,
    ],
    ids=["partial", "subclass", "nested", "method wrapper", "method wrapper of a partial"],
)
def test_native_calls_through_wrappers_are_native_calls(watch, function):
    arguments = (
        () if isinstance(getattr(function, "__self__", function), functools.partial) else ({},)
    )
    with watch():
        assert denied_callee(call, function, *arguments) == "orjson.dumps"


@pytest.mark.original_fails()
@pytest.mark.parametrize("module", ["builtins", "json", "fastaudit_rs"])
def test_a_native_function_is_of_the_module_that_its_code_is_in(watch, monkeypatch, module):
    """Whatever it says itself, which Python code can set."""
    partial = functools.partial(orjson.dumps, 1)
    with watch():
        monkeypatch.setattr(orjson.dumps, "__module__", module)
        assert denied_callee(orjson.dumps, 1) == "orjson.dumps"
        assert denied_callee(partial) == "orjson.dumps"
        # A function of the standard library may say so too.
        monkeypatch.setattr(operator.add, "__module__", module)
        assert operator.add(1, 2) == 3


def test_a_harmless_first_callee_does_not_blind_the_call_site(watch):
    denied = []
    with watch():
        for function in (len, orjson.dumps, call, orjson.dumps):
            try:
                function(()) if function is not call else function(len, ())
            except PermissionError:
                denied.append(function)
    assert denied == [orjson.dumps, orjson.dumps]


class TestOnCall:
    def test_what_it_gets(self, watch):
        calls = []

        def on_call(*args):
            calls.append(args)
            return False

        with watch(on_call=on_call, data="data"):
            call(orjson.dumps, {})
        [(caller, callee, function, code, offset, data)] = calls
        assert caller == f"{__name__}.call"
        assert callee == "orjson.dumps"
        assert function is orjson.dumps
        assert code is call.__code__
        assert 0 < offset < len(code.co_code)
        assert data == "data"

    def test_false_suppresses_the_event(self, watch):
        with watch(on_call=lambda *args: False):
            assert [orjson.dumps(1) for _ in range(3)] == [b"1"] * 3

    @pytest.mark.parametrize("answer", [None, True, 0, "", []])
    def test_other_answers_do_not(self, watch, answer):
        with watch(on_call=lambda *args: answer):
            assert denied_callee(orjson_dumps) == "orjson.dumps"

    @pytest.mark.one_side
    def test_disable_suppresses_it_for_the_call_site(self, watch):
        calls = []

        def on_call(*args):
            calls.append(args)
            return sys.monitoring.DISABLE

        guard = watch(on_call=on_call)
        with guard:
            for _ in range(5):
                orjson_dumps()
        assert len(calls) == 1

    @pytest.mark.one_side
    def test_disable_ends_with_the_guard(self, watch):
        with watch(on_call=lambda *args: sys.monitoring.DISABLE):
            for _ in range(3):
                orjson_dumps()
        with watch():
            assert denied_callee(orjson_dumps) == "orjson.dumps"

    @pytest.mark.original_fails()
    @pytest.mark.one_side
    def test_disable_does_not_blind_another_guard_in_force(self, watch):
        strict = contextvars.copy_context()
        guard = watch()
        strict.run(guard.__enter__)
        with watch(on_call=lambda *args: sys.monitoring.DISABLE):
            for _ in range(3):
                orjson_dumps()
            assert strict.run(denied_callee, orjson_dumps) == "orjson.dumps"
        strict.run(guard.__exit__, None, None, None)

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    def test_what_it_raises_comes_through(self, watch, error):
        def on_call(*args):
            raise error("from the host")

        with watch(on_call=on_call), pytest.raises(error, match="from the host"):
            orjson_dumps()

    @pytest.mark.original_fails()
    @pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
    def test_an_awaitable_answer_is_an_error(self, watch):
        async def answer():
            return False

        with watch(on_call=lambda *args: answer()):
            with pytest.raises(TypeError, match="on_call must return a plain value"):
                orjson_dumps()

    def test_it_is_asked_only_for_native_calls(self, watch):
        callees = []

        def on_call(caller, callee, *rest):
            callees.append(callee)
            return False

        with watch(on_call=on_call):
            for kind in QUIET.values():
                kind()
            orjson_dumps()
        assert callees == ["orjson.dumps"]


def orjson_dumps():
    return orjson.dumps(1)


def test_native_calls_of_before_deny_are_the_hosts_own(watch):
    def before_deny(event, args, frame, message, data):
        return orjson.loads(orjson.dumps(event == "fastaudit.call"))

    with watch(before_deny=before_deny):
        assert orjson_dumps() == b"1"


def test_before_deny_may_allow_the_event(watch):
    events = []

    def before_deny(event, args, *rest):
        events.append((event, *args))
        return True

    with watch(before_deny=before_deny):
        assert orjson_dumps() == b"1"
    assert events == [("fastaudit.call", f"{__name__}.orjson_dumps", "orjson.dumps")]


def test_a_guard_without_monitoring_lets_native_calls_pass(mk_audit, places, watch):
    with mk_audit([places.ok], monitor_calls=False)():
        assert orjson_dumps() == b"1"


@pytest.mark.original_fails()
@pytest.mark.slow
@pytest.mark.one_side
class TestEvents:
    """The CALL events of the tool id are on while a guard needs them, and at no other time."""

    @pytest.fixture(autouse=True)
    def clean(self):
        gc.collect()

    def events(self):
        return sys.monitoring.get_events(3)

    def test_off_outside_guards(self, watch):
        guard = watch()
        assert self.events() == 0
        with guard:
            assert self.events() == sys.monitoring.events.CALL
        assert self.events() == 0

    def test_on_while_any_context_has_the_guard(self, watch):
        guard = watch()
        with guard:
            context = contextvars.copy_context()
        assert self.events() == sys.monitoring.events.CALL
        assert context.run(denied_callee, orjson_dumps) == "orjson.dumps"
        assert denied_callee(orjson_dumps) is None
        del context
        gc.collect()
        assert self.events() == 0

    def test_other_tools_keep_theirs(self, watch):
        sys.monitoring.use_tool_id(4, "other")
        try:
            sys.monitoring.set_events(4, sys.monitoring.events.LINE)
            with watch():
                pass
            assert sys.monitoring.get_events(4) == sys.monitoring.events.LINE
            assert self.events() == 0
        finally:
            sys.monitoring.free_tool_id(4)
