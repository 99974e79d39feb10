"""Names that `on_call` is told of native code that was called before, and is not asked again."""

import functools
import sys
import types

import at_once
import numpy as np
import orjson
import pytest

AGAIN = 4


@pytest.fixture
def told(mk_audit, places):
    """`told(f, …)`: what the host is told while `f` is called several times, without repeats."""

    def told(function, *args, times=AGAIN):
        asked = []
        make = mk_audit([places.ok], on_call=lambda *call: asked.append(call[:3]) or False)
        with make():
            for _ in range(times):
                function(*args)
        assert len(asked) % times == 0
        each = len(asked) // times
        assert asked[:each] * times == asked
        return [(caller, callee) for caller, callee, _ in asked[:each]]

    return told


ARRAY = np.arange(4)


class Sub(np.ndarray):
    """A Python class with the native methods of another."""


SUB = ARRAY.view(Sub)

CALLS = {
    "a function": (lambda: orjson.dumps(1), "orjson.dumps"),
    "a method": (lambda: ARRAY.copy(), "numpy.ndarray.copy"),
    "a bound method": (lambda copy=ARRAY.copy: copy(), "numpy.ndarray.copy"),
    "one bound to a subclass": (lambda copy=SUB.copy: copy(), "numpy.Sub.copy"),
    "a class": (lambda: np.dtype("i8"), "numpy.dtype"),
    "a class of scalars": (lambda: np.int64(3), "numpy.int64"),
    "an instance": (lambda: np.negative(ARRAY), "numpy.negative"),
    "a bound method of an instance": (
        lambda reduce=np.add.reduce: reduce(ARRAY),
        "numpy.ufunc.reduce",
    ),
    "a partial": (functools.partial(orjson.dumps, 1), "orjson.dumps"),
    "by a function that calls its first": (lambda: list(map(orjson.dumps, [1])), "orjson.dumps"),
}


@pytest.mark.parametrize("kind", CALLS)
def test_the_name_stays_the_same(told, kind):
    function, callee = CALLS[kind]
    first = told(function)
    # Under another guard, and after others were named.
    assert told(function) == first
    assert callee in {named for _, named in first}


def test_receivers_of_one_method_have_names_of_their_own(told):
    array, sub = ARRAY.copy, ARRAY.view(Sub).copy
    for _ in range(3):
        assert [callee for _, callee in told(array)] == ["numpy.ndarray.copy"]
        assert [callee for _, callee in told(sub)] == ["numpy.Sub.copy"]


def test_the_object_is_the_one_that_is_called(mk_audit, places):
    functions = []
    receivers = [np.arange(n) for n in range(5)]
    guard = mk_audit([places.ok], on_call=lambda *call: functions.append(call[2]) or False)
    methods = [receiver.copy for receiver in receivers]
    with guard():
        for method in methods:
            method()
    assert len(functions) == len(receivers)
    assert all(mine is its for mine, its in zip(functions, methods, strict=True))


def test_a_function_keeps_the_name_that_it_had(told):
    function = np.random.default_rng
    plain = told(function)
    assert plain[0][1] == "numpy.random.default_rng"
    name = function.__qualname__
    function.__qualname__ = "harmless"
    try:
        assert told(function) == plain
    finally:
        function.__qualname__ = name


def test_a_class_that_was_changed_is_looked_at_again(told):
    class Made(np.ndarray):
        pass

    # It has its name for good, as it would in a module.
    module = types.ModuleType("made_for_this")
    module.Made, Made.__module__, Made.__qualname__ = Made, "made_for_this", "Made"
    sys.modules["made_for_this"] = module
    try:
        assert [callee for _, callee in told(lambda: Made(2))] == ["numpy.ndarray"]
        Made.__new__ = lambda cls, *_: object()
        assert told(lambda: Made(2)) == []
        del Made.__new__
        assert [callee for _, callee in told(lambda: Made(2))] == ["numpy.ndarray"]
    finally:
        del sys.modules["made_for_this"]


def test_callers_are_told_by_the_module_that_they_run_in(told):
    code = compile("orjson.dumps(1)", "<text>", "exec")
    for module in ("one", "two", "one"):
        names = {"orjson": orjson, "__name__": module}
        assert told(exec, code, names) == [(f"{module}.<module>", "orjson.dumps")]
    names = {"orjson": orjson}
    exec("def f(): orjson.dumps(1)", names)
    function = names["f"]
    for module in ("one", "two", None):
        names.pop("__name__", None)
        if module:
            names["__name__"] = module
        assert told(function) == [(f"{module}.f", "orjson.dumps")]


def test_a_caller_of_another_name_is_told_by_it(told):
    def function():
        orjson.dumps(1)

    # Before 3.11 code has no qualified name.
    field = "co_qualname" if sys.version_info >= (3, 11) else "co_name"
    plain = told(function)
    function.__code__ = function.__code__.replace(**{field: "renamed"})
    assert plain != told(function) == [(f"{__name__}.renamed", "orjson.dumps")]
    long = "x" * 100_000
    function.__code__ = function.__code__.replace(**{field: long})
    assert told(function) == [(f"{__name__}.{long}", "orjson.dumps")]


def test_names_that_are_no_plain_strings(told):
    class Text(str):
        __slots__ = ()

        def __str__(self):
            raise AssertionError("it was asked")

        __eq__ = __hash__ = __add__ = __str__

    names = {"orjson": orjson, "__name__": Text("mine")}
    assert told(exec, "orjson.dumps(1)", names) == [("mine.<module>", "orjson.dumps")]


def test_many_callers_and_callees_share_the_places(told):
    source = "\n".join(
        f"def f{n}(): orjson.dumps({n}); array.sum(); int64({n})" for n in range(600)
    )
    names = {"orjson": orjson, "array": ARRAY, "int64": np.int64, "__name__": "many"}
    exec(source, names)
    for _ in range(2):
        for number in range(600):
            callers = {caller for caller, _ in told(names[f"f{number}"], times=1)}
            assert f"many.f{number}" in callers


def test_threads_are_told_alike(mk_audit, places):
    asked = []
    guard = mk_audit([places.ok], on_call=lambda *call: asked.append(call[:2]) or False)

    def work():
        with guard():
            for _ in range(200):
                orjson.dumps(1)

    at_once.run(*[work] * 4)
    assert len(asked) == 800
    assert len(set(asked)) == 1
    assert asked[0][1] == "orjson.dumps"


def test_quiet_functions_that_share_a_place_stay_quiet(told):
    functions = [
        function
        for module in (sys.modules[name] for name in ("math", "operator", "builtins"))
        for name, function in sorted(vars(module).items())
        if isinstance(function, types.BuiltinFunctionType) and not name.startswith("_")
    ]
    assert len(functions) > 100

    def look():
        for function in functions:
            if function.__name__ in ("exit", "input", "breakpoint", "print", "help"):
                continue
            try:
                function(1)
            except Exception:
                continue

    assert told(look) == []
