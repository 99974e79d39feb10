"""No call site goes blind: whatever was called there before, native code is seen (3.12+)."""

import atexit
import functools
import itertools
import operator
import sys
import textwrap
import types
import weakref

import numpy as np
import numpy.random
import orjson
import programs
import pytest
from test_calls import call, denied_callee, watch as watch


@pytest.fixture
def seen(watch):
    """`seen(function)`: the native callees that the function calls under a guard, all allowed."""

    def run(function):
        callees = []

        def on_call(caller, callee, *rest):
            callees.append(callee)
            return False

        with watch(on_call=on_call):
            function()
        return callees

    return run


def decorated(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)

    return wrapper


class Meta(type):
    """A metaclass of Python code that leaves calling to `type`."""


class CallingMeta(type):
    """A metaclass whose `__call__` is Python code."""

    def __call__(cls, *args):
        return super().__call__(*args)


class Plain:
    def copy(self):
        return self


class Array(np.ndarray):
    pass


class MetaArray(np.ndarray, metaclass=Meta):
    pass


class CallingMetaArray(np.ndarray, metaclass=CallingMeta):
    pass


class PythonArray(np.ndarray):
    def __new__(cls, *args):
        return super().__new__(cls, *args)


class OwnNew:
    __new__ = orjson.dumps


class MyMap(map):
    pass


def one_site(*calls):
    """A function that makes each call `(callee, *args)` at one call site."""

    def run():
        for callee, *args in calls:
            callee(*args)

    return run


def methods(*receivers):
    def run():
        for receiver in receivers:
            receiver.copy()

    return run


def loaded_once():
    """The method is loaded before the loop, and called in it."""
    for method in (Plain().copy, [].copy, np.arange.__call__, array.copy):
        method(2) if method == np.arange.__call__ else method()


array = np.array([1, 2])


SITES = {
    "loop": (one_site((len, ()), (orjson.dumps, {})), ["orjson.dumps"]),
    "decorator": (one_site((decorated(len), ()), (decorated(orjson.dumps), {})), ["orjson.dumps"]),
    "method of several receivers": (methods([], {}, Plain(), array), ["numpy.ndarray.copy"]),
    "method of a class and of native receivers": (
        methods(Plain(), array, [], array),
        ["numpy.ndarray.copy"] * 2,
    ),
    "method loaded before": (loaded_once, ["numpy.arange", "numpy.ndarray.copy"]),
    "class": (one_site((list,), (Array, 2)), ["numpy.ndarray"]),
    "partial": (one_site((len, ()), (functools.partial(orjson.dumps, 1),)), ["orjson.dumps"]),
    "bound method": (one_site(([].append, 1), (array.tolist,)), ["numpy.ndarray.tolist"]),
    "method-wrapper": (one_site(((1).__add__, 1), (array.__add__, 1)), ["numpy.ndarray.__add__"]),
    "slot wrapper": (
        one_site((int.__add__, 1, 1), (np.ndarray.__add__, array, 1)),
        ["numpy.ndarray.__add__"],
    ),
    "__new__": (
        one_site((object.__new__, Plain), (np.ndarray.__new__, np.ndarray, 2)),
        ["numpy.ndarray.__new__"],
    ),
    "helper": (one_site((call, len, ()), (call, orjson.dumps, 1)), ["orjson.dumps"]),
}


@pytest.mark.original_fails()
@pytest.mark.parametrize(("function", "callees"), SITES.values(), ids=SITES)
def test_a_site_that_called_something_harmless(seen, function, callees):
    assert seen(function) == callees


CONSTRUCTORS = {
    "native": (lambda: np.ndarray(2), "numpy.ndarray"),
    "static": (lambda: np.float64(1), "numpy.float64"),
    "derived": (lambda: Array(2), "numpy.ndarray"),
    "metaclass": (lambda: MetaArray(2), "numpy.ndarray"),
    "metaclass with __call__": (lambda: CallingMetaArray(2), "numpy.ndarray"),
    "type.__call__": (lambda: type.__call__(CallingMetaArray, 2), "numpy.ndarray"),
    "__new__ of a class": (lambda: OwnNew(), "orjson.dumps"),
}


@pytest.mark.original_fails()
@pytest.mark.parametrize(("function", "callee"), CONSTRUCTORS.values(), ids=CONSTRUCTORS)
def test_native_constructors(watch, function, callee):
    with watch():
        assert denied_callee(function) == callee


def test_what_stands_for_another_callable(watch):
    with watch():
        alias = types.GenericAlias(np.ndarray, (int,))
        assert denied_callee(alias, 2) == "numpy.ndarray"
        assert denied_callee(weakref.proxy(orjson.dumps), 1) == "orjson.dumps"
        assert denied_callee(weakref.proxy(call), len, ()) is None


def test_a_metaclass_with_a_call_of_its_own_does_not_hide_the_constructor(seen):
    def run():
        for _ in range(3):
            CallingMetaArray(2)
            type.__call__(CallingMetaArray, 2)

    assert seen(run) == ["numpy.ndarray"] * 6


def test_python_constructors_are_not_native(seen):
    class Derived(Plain, metaclass=CallingMeta):
        def __init__(self, value):
            super().__init__()

    assert seen(lambda: (Derived(1), Plain(), ValueError(), operator.itemgetter(0))) == []
    assert seen(lambda: PythonArray(2)) == ["numpy.ndarray.__new__"]


@pytest.mark.original_fails()
def test_a_class_that_gets_a_native_constructor_later(seen):
    class Changed:
        pass

    def run():
        for new in (object.__new__, orjson.dumps):
            Changed.__new__ = new
            try:  # noqa: SIM105 - only the calls matter
                Changed()
            except TypeError:
                pass

    assert seen(run) == ["orjson.dumps"]


@pytest.mark.original_fails()
def test_cython_functions(watch):
    with watch():
        with pytest.raises(PermissionError, match=r"'numpy\.random\.default_rng'"):
            np.random.default_rng()
        with pytest.raises(PermissionError, match=r"'numpy\.random\.RandomState\.rand'"):
            np.random.rand()


def test_native_bound_methods_called_with_unpacked_arguments(watch, side):
    """Python 3.12.0 to 3.12.2 report no such call: https://github.com/python/cpython/issues/116626."""
    method = types.MethodType(orjson.dumps, 1)
    reported = sys.version_info >= (3, 12, 3) or side == "callee"
    with watch():
        assert denied_callee(method) == ("orjson.dumps" if reported else None)


FIRST_ARGUMENT = {
    "map": lambda f: list(map(f, [1])),
    "filter": lambda f: list(filter(f, [1])),
    "filterfalse": lambda f: list(itertools.filterfalse(f, [1])),
    "takewhile": lambda f: list(itertools.takewhile(f, [1])),
    "dropwhile": lambda f: list(itertools.dropwhile(f, [1])),
    "starmap": lambda f: list(itertools.starmap(f, [(1,)])),
    "reduce": lambda f: functools.reduce(f, [1, None]),
    "partial": lambda f: functools.partial(f),
    "iter": lambda f: next(iter(functools.partial(f, 1), None)),
    "register": lambda f: (atexit.register(f), atexit.unregister(f)),
    "subclass of map": lambda f: list(MyMap(f, [1])),
}


@pytest.mark.original_fails()
@pytest.mark.parametrize("name", FIRST_ARGUMENT)
def test_native_code_handed_to_what_calls_its_first_argument(seen, name, side):
    function = FIRST_ARGUMENT[name]
    # By what is called they are seen when they are called.
    is_called = side == "events" or name not in ("partial", "register")
    assert set(seen(lambda: function(orjson.dumps))) == ({"orjson.dumps"} if is_called else set())


def test_python_code_handed_to_it(seen):
    def python(*args):
        return args

    def run():
        for name, function in FIRST_ARGUMENT.items():
            if name != "iter":
                function(python)
        list(map(len, [()]))
        list(map(str, [1]))
        list(map(Plain, []))
        list(filter(None, [1]))
        functools.reduce(operator.add, [1, 2])

    assert seen(run) == []


def test_what_is_handed_over_is_what_on_call_gets(watch):
    functions = []

    def on_call(caller, callee, function, *rest):
        functions.append(function)
        return False

    with watch(on_call=on_call):
        assert list(map(orjson.dumps, [1])) == [b"1"]
    assert functions == [orjson.dumps]


@pytest.mark.one_side
class TestRetireSites:
    """`retire_sites=True`: fast, and blind as the original is."""

    def test_a_site_that_called_something_harmless_is_blind(self, watch):
        run = one_site((len, ()), (orjson.dumps, {}))
        with watch(retire_sites=True):
            assert denied_callee(run) is None

    def test_a_site_that_called_native_code_first_is_not(self, watch):
        with watch(retire_sites=True):
            for _ in range(2):
                assert denied_callee(lambda: orjson.dumps(1)) == "orjson.dumps"
                assert denied_callee(call, orjson.dumps, 1) == "orjson.dumps"

    def test_another_guard_is_not_blind(self, watch, elsewhere):
        run = one_site((len, ()), (orjson.dumps, {}))
        sound = watch()
        with watch(retire_sites=True):
            assert denied_callee(run) is None
            elsewhere(sound.__enter__)
            for _ in range(2):
                assert denied_callee(run) == "orjson.dumps"
                assert elsewhere(denied_callee, run) == "orjson.dumps"
            elsewhere(sound.__exit__, None, None, None)
            assert denied_callee(run) is None
        with watch():
            assert denied_callee(run) == "orjson.dumps"

    def test_needs_the_monitor(self, mk_audit):
        with pytest.raises(RuntimeError, match="retire_sites requires monitor_calls=True"):
            mk_audit([], monitor_calls=False, retire_sites=True)

    def test_is_a_bool(self, mk_audit):
        with pytest.raises(TypeError, match="retire_sites must be True or False, not 1"):
            mk_audit([], retire_sites=1)


@pytest.mark.one_side
class TestNothingToWatch:
    """Until native code from outside the standard library is loaded, the events stay off."""

    @pytest.fixture
    def run(self, places):
        def run_code(code):
            program = "import sys, threading\nfrom fastaudit_rs import mk_audit\n"
            program += "audit_perms = mk_audit([], monitor_calls=True)\n"
            program += "events = lambda: bool(sys.monitoring.get_events(3))\n"
            program += textwrap.dedent(code)
            return programs.printed(program, cwd=places.ok).split()

        return run_code

    def test_the_standard_library(self, run):
        assert run("""
            with audit_perms():
                import json, decimal, zlib, array, csv, datetime
                json.dumps(decimal.Decimal(1).as_tuple())
                print(events())
        """) == ["False"]

    def test_loaded_before(self, run):
        assert run("""
            import orjson
            with audit_perms():
                print(events())
            print(events())
        """) == ["True", "False"]

    def test_loaded_before_mk_audit(self):
        program = """
            import sys, orjson
            sys.modules.pop("orjson.orjson"), sys.modules.pop("orjson")
            from fastaudit_rs import mk_audit
            with mk_audit([])():
                print(bool(sys.monitoring.get_events(3)))
        """
        assert programs.printed(program) == "True\n"

    def test_loaded_under_the_guard(self, run):
        assert run("""
            with audit_perms():
                print(events())
                import orjson
                print(events())
                try:
                    orjson.dumps(1)
                except PermissionError as error:
                    print("orjson.dumps" in str(error))
        """) == ["False", "True", "True"]

    def test_loaded_by_a_thread_without_a_guard(self, run):
        assert run("""
            with audit_perms():
                pass
            entered, done = threading.Event(), threading.Event()
            def load():
                entered.wait()
                import orjson
                done.set()
            thread = threading.Thread(target=load)
            thread.start()
            with audit_perms():
                entered.set()
                done.wait()
                print(events())
            thread.join()
        """) == ["True"]

    def test_loaded_by_ctypes(self, run):
        assert run("""
            import ctypes, importlib.machinery, importlib.util, os
            [path] = importlib.util.find_spec("orjson").submodule_search_locations
            suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
            [file] = [name for name in os.listdir(path) if name.endswith(suffixes)]
            with audit_perms():
                print(events())
            ctypes.PyDLL(os.path.join(path, file))
            with audit_perms():
                print(events())
        """) == ["False", "True"]


def test_versions_of_classes_that_are_given_again():
    """Python 3.10 does so after this call: what is harmless is told by them."""
    program = """
        import sys
        import numpy
        from fastaudit_rs import Policy
        guard = Policy().guard()
        harmless = [type("Harmless", (), {}) for _ in range(100)]
        with guard():
            for made in harmless:
                made()
        # Since 3.13, and before.
        (getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache)()
        native = [type("Native", (numpy.ndarray,), {}) for _ in range(200)]
        for made in native:
            hasattr(made, "name")
        def is_denied(made):
            try:
                made((1,))
            except PermissionError:
                return True
        with guard():
            print({is_denied(made) for made in native})
    """
    assert programs.printed(textwrap.dedent(program)) == "{True}\n"
