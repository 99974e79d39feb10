"""Nothing that guarded code finds of the guard can be changed so that it no longer guards."""

import copy
import copyreg
import gc
import pickle
import re
import sys
import textwrap

import programs
import pytest
from repository import ROOT

import fastaudit_rs
from fastaudit_rs import _native

SOURCE = ROOT / "src" / "python"
# Made by fastaudit_rs in one or the other way, and found where guarded code can look.
CLASSES = sorted(
    (made for made in vars(_native).values() if isinstance(made, type)),
    key=lambda made: made.__name__,
)
HOST = """
import _imp, gc, importlib.util, itertools, os, sys, types
from fastaudit_rs import AuditDenied, Policy, mk_audit
OK, OUT = sys.argv[1:]
perms = mk_audit([OK])
def is_denied(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except AuditDenied:
        return True
    return False
def is_guarded():
    return is_denied(open, OUT + "/probe", "w")
def spec_of(real, name):
    spec = importlib.util.find_spec(real)
    if spec.origin == "built-in":
        spec.name = name
        return spec
    return importlib.util.spec_from_file_location(name, spec.origin)
def load(real, name):
    module = importlib.util.module_from_spec(spec_of(real, name))
    module.__spec__.loader.exec_module(module)
    return module
# It says another name each time that it is asked.
class Spec:
    submodule_search_locations = loader = cached = None
    parent = ""
    def __init__(self, real, *names):
        self.origin = importlib.util.find_spec(real).origin
        self.names = list(names)
    @property
    def name(self):
        return self.names.pop(0) if len(self.names) > 1 else self.names[0]
"""


@pytest.fixture
def host(places):
    """`host(code)`: runs a host with the code in a process of its own, which must end well."""

    def run(code):
        done = programs.ran(HOST + textwrap.dedent(code), places.ok, places.out)
        assert done.returncode == 0, (done.returncode, done.stderr)

    return run


def named(classes):
    return pytest.mark.parametrize("of", classes, ids=lambda of: of.__name__)


def hidden():
    """Classes that no module has: those of objects that are found while a guard is in force."""
    with fastaudit_rs.mk_audit(["."])():
        found = {type(one) for one in gc.get_objects()}
    ours = {one for one in found if one.__module__ == "fastaudit_rs._native"}
    # Others are there in one process of the tests and not in another.
    ours = {one for one in ours if one.__name__ == "_Active"}
    return sorted(ours - set(CLASSES), key=lambda made: made.__name__)


class TestClasses:
    @named([*CLASSES, *hidden(), fastaudit_rs.AuditDenied])
    def test_no_attribute_can_be_set_or_deleted(self, of):
        for name in ("__enter__", "__exit__", "__call__", "__new__", "violations", "added"):
            with pytest.raises(TypeError, match="immutable type"):
                setattr(of, name, None)
            with pytest.raises(TypeError, match="immutable type"):
                type.__setattr__(of, name, None)
            with pytest.raises(TypeError, match="immutable type"):
                delattr(of, name)
        for name in ("__bases__", "__name__", "__qualname__", "__module__"):
            with pytest.raises(TypeError, match="immutable type"):
                type.__dict__[name].__set__(of, getattr(of, name))

    @named([*CLASSES, *hidden()])
    def test_no_instance_is_made_but_by_the_class(self, of):
        for base in (object, type, Exception):
            with pytest.raises(TypeError):
                base.__new__(of)
        with pytest.raises(TypeError):
            copyreg.__newobj__(of, object(), object())
        with pytest.raises(TypeError):
            copyreg._reconstructor(of, object, None)

    @named([of for of in [*CLASSES, *hidden()] if of.__name__ != "_CallTracker"])
    def test_none_is_a_base_or_the_class_of_another(self, of):
        with pytest.raises(TypeError, match="not an acceptable base type"):
            type("Derived", (of,), {})

        class Other:
            pass

        with pytest.raises(TypeError):
            Other().__class__ = of
        with pytest.raises(TypeError):
            fastaudit_rs.mk_audit(["."])().__class__ = Other

    def test_objects_are_neither_copied_nor_pickled(self, mk_audit, places):
        perms = mk_audit([places.ok])
        with perms() as guard:
            for one in (perms, guard):
                for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                    with pytest.raises(TypeError):
                        pickle.loads(pickle.dumps(one, protocol))
                for function in (copy.copy, copy.deepcopy):
                    with pytest.raises(TypeError):
                        function(one)
                with pytest.raises(AttributeError):
                    one.__setstate__({})

    def test_each_is_sealed(self):
        sources = [path.read_text() for path in SOURCE.rglob("*.rs")]
        made = re.findall(
            r"#\[pyclass\(([^]]*)\)\]\s*(?:#\[[^]]*\]\s*)*pub struct (\w+)", "\n".join(sources)
        )
        count = sum(len(re.findall(r"^#\[pyclass\b", text, re.MULTILINE)) for text in sources)
        assert len(made) == count > 20
        sealed = (SOURCE / "mod.rs").read_text()
        for options, name in made:
            assert "immutable_type" in options, name
            assert f"::{name}>()" in sealed, name


BY = {
    "the collector": "gc.get_referents(of.__dict__)[0]",
    "the collector, by the class": (
        "[one for one in gc.get_referents(of) if type(one) is dict][0]"
    ),
    "an operand": "of.__dict__ == type('X', (), {'__eq__': lambda self, other: other})()",
    "an operator": "of.__dict__ | type('X', (), {'__ror__': lambda self, other: other})()",
}


class TestDictionaries:
    """The dictionary of a class is had by tricks, and put right again."""

    @pytest.mark.parametrize("by", BY)
    def test_methods_put_there(self, host, by):
        host(f"""
            before = perms()
            with perms() as guard:
                for of in (type(guard), type(perms), Policy):
                    attributes = {BY[by]}
                    for name in ("__enter__", "__exit__", "guard"):
                        attributes[name] = lambda self, *args: self
                sys._clear_type_cache()
            assert not is_guarded()
            for guard in (before, perms(), Policy(write=[OK]).guard()()):
                with guard:
                    assert is_guarded()
                assert not is_guarded()
            """)

    def test_methods_taken_away(self, host):
        host("""
            with perms() as guard:
                gc.get_referents(type(guard).__dict__)[0].clear()
                assert is_guarded()
            with perms():
                assert is_guarded()
            assert perms().violations == []
            """)

    def test_what_is_put_there_in_a_thread_that_stays_under_its_guard(self, host):
        host("""
            import threading
            done, end = threading.Event(), threading.Event()
            def work():
                with perms() as guard:
                    attributes = gc.get_referents(type(guard).__dict__)[0]
                    attributes["__enter__"] = attributes["__exit__"] = lambda *args: None
                    done.set()
                    end.wait()
            thread = threading.Thread(target=work)
            thread.start()
            done.wait()
            with perms():
                assert is_guarded()
            end.set()
            thread.join()
            """)

    def test_an_abstract_method(self, host):
        host("""
            with perms() as guard:
                for of in (type(guard), Policy):
                    type.__dict__["__abstractmethods__"].__set__(of, ["x"])
            with perms():
                assert is_guarded()
            Policy(write=[OK])
            """)


class TestLoadedAgain:
    """Modules of the standard library that are loaded a second time, or under another name."""

    @pytest.mark.parametrize("name", ["x.readline", "a.b.readline"])
    def test_functions(self, host, name):
        pytest.importorskip("readline")
        host(f"""
with perms():
    module = load("readline", {name!r})
    assert is_denied(module.write_history_file, OUT + "/history")
    assert is_denied(module.append_history_file, 0, OUT + "/history")
    # Loaded by name for the first time.
    import readline
    assert is_denied(readline.write_history_file, OUT + "/history")
""")

    @pytest.mark.skipif(
        "_posixsubprocess" in sys.builtin_module_names,
        reason="a part of the interpreter has one name",
    )
    def test_a_program_is_started(self, host):
        host("""
with perms():
    module = load("_posixsubprocess", "x._posixsubprocess")
    read, write = os.pipe()
    group = [-1] if sys.version_info >= (3, 11) else []
    vfork = [True] if (3, 11) <= sys.version_info < (3, 14) else []
    start = [b"true"], [b"/bin/true"], True, (write,), None, None, *[-1] * 6, read, write
    end = *group, None, None, None, -1, None, *vfork
    assert is_denied(module.fork_exec, *start, False, False, *end)
""")

    def test_a_name_that_changes_as_it_is_loaded(self, host):
        pytest.importorskip("readline")
        host("""
with perms():
    # How often it is asked for the name differs.
    for real, times in itertools.product(("readline", "_sqlite3"), range(1, 5)):
        try:
            module = _imp.create_dynamic(Spec(real, *["x." + real] * times, "other"))
        except ImportError:
            continue
        module.__name__ = "other"
        _imp.exec_dynamic(module)
        if real == "readline":
            assert is_denied(module.write_history_file, OUT + "/history")
        else:
            database = module.connect(":memory:")
            assert is_denied(database.execute, "attach ? as x", (OUT + "/database",))
""")

    def test_built_in_modules(self, host):
        host("""
with perms():
    for names in (("posix",), ("posix", "other")):
        module = _imp.create_builtin(Spec("posix", *names))
        assert is_denied(module.mkfifo, OUT + "/fifo")
        assert is_denied(module._exit, 0)
    loading = _imp.create_builtin(Spec("_imp", "_imp", "other"))
    if "readline" in sys.builtin_module_names or importlib.util.find_spec("readline"):
        module = loading.create_dynamic(Spec("readline", *["x.readline"] * 4))
        assert is_denied(module.write_history_file, OUT + "/history")
""")

    def test_a_quota_counts_by_them_too(self, host):
        host("""
with Policy(write=[OK], max_bytes=10).guard()():
    for names in (("posix",), ("posix", "other")):
        module = _imp.create_builtin(Spec("posix", *names))
        file = os.open(OK + "/file", os.O_CREAT | os.O_WRONLY)
        assert is_denied(module.write, file, b"x" * 11)
""")

    def test_a_module_forgotten_and_imported_again(self, host):
        pytest.importorskip("readline")
        host("""
import importlib
with perms():
    for name in ("readline", "time", "_posixsubprocess"):
        importlib.import_module(name)
        importlib.reload(sys.modules.pop(name) and importlib.import_module(name))
    assert is_denied(sys.modules["readline"].write_history_file, OUT + "/history")
    assert is_denied(sys.modules["time"].clock_settime_ns, 0, 0)
""")


WAYS = {
    "f.__call__": "f.__call__(*args)",
    "the class": "type(f).__call__(f, *args)",
    "the wrapper": "vars(type(f))['__call__'].__get__(f)(*args)",
    "twice": "f.__call__.__call__(*args)",
    "partial": "__import__('functools').partial(f, *args)()",
    "partial of the slot": "__import__('functools').partial(f.__call__, *args)()",
    "map": "list(map(f.__call__, *([arg] for arg in args))) if args else f.__call__()",
    "keywords": "f.__call__(*args, **{})",
    "methodcaller": "__import__('operator').methodcaller('__call__', *args)(f)",
}


class TestSlots:
    """A native function that is called by the slot of its class, or otherwise than by its name."""

    @pytest.mark.parametrize("way", WAYS)
    def test_its_event_is_raised(self, host, way):
        host(f"""
import faulthandler, time
with perms():
    for f, args in (
        (faulthandler._sigsegv, ()),
        (getattr(time, "clock_settime_ns", None), (time.CLOCK_REALTIME, time.time_ns())),
        (os.mkfifo, (OUT + "/fifo",)),
        (os._exit, (0,)),
    ):
        if f is not None:
            assert is_denied(lambda: {WAYS[way]}), f
""")

    @pytest.mark.parametrize("way", WAYS)
    def test_what_is_registered_is_guarded(self, host, way):
        host(f"""
import atexit
answers = []
def later():
    answers.append(is_guarded())
with perms():
    f, args = atexit.register, (later,)
    {WAYS[way]}
atexit._run_exitfuncs()
assert answers == [True], answers
""")

    def test_errors_are_as_they_were(self):
        import time

        for function in (time.clock_settime_ns, time.clock_settime_ns.__call__):
            with pytest.raises(TypeError, match=r"clock_settime_ns\(\) takes no keyword arguments"):
                function(clock=1)
            with pytest.raises(TypeError):
                function()

    def test_no_call_keeps_a_reference(self, host):
        host("""
            import atexit, sys
            with perms():
                before = sys.getrefcount(atexit.register)
                for _ in range(1000):
                    atexit.register(len, ())
                assert sys.getrefcount(atexit.register) < before + 10
                atexit.unregister(len)
            """)

    def test_the_functions_as_they_were_are_found_by_nobody(self, host):
        host("""
            import _thread, socket
            perms = Policy(write=[OK], max_bytes=10).guard()
            with perms():
                found = [
                    one for one in gc.get_objects() if type(one) is types.BuiltinFunctionType
                ]
                known = [os.write, os.pwrite, os.truncate, _thread.start_new_thread]
                known += [socket.getaddrinfo]
                monitoring = getattr(sys, "monitoring", None)
                if monitoring is not None:
                    known += [monitoring.register_callback, monitoring.free_tool_id]
                for function in known:
                    alike = [
                        one
                        for one in found
                        if one is not function
                        and one.__name__ == function.__name__
                        and one.__module__ == function.__module__
                    ]
                    assert alike == [], alike
            """)


@pytest.mark.parametrize(
    "put",
    [
        "sys.meta_path.insert(0, types.SimpleNamespace(find_spec=theirs.write_text))",
        "sys.path_hooks.insert(0, theirs.write_text); sys.path.insert(0, 'text')",
        "sys.meta_path.insert(0, types.SimpleNamespace(find_spec=by(exec_module=theirs.unlink)))",
        "sys.meta_path.insert(0, types.SimpleNamespace(find_spec=by(create_module=theirs.touch)))",
    ],
)
def test_the_import_system_is_made_to_call_something_else(host, put):
    host(f"""
        import importlib.machinery, pathlib
        theirs = pathlib.Path(OUT, "theirs")
        theirs.write_text("theirs")
        os.utime(theirs, (1, 1))
        def by(**functions):
            loader = types.SimpleNamespace(exec_module=None, create_module=lambda spec: None)
            vars(loader).update(functions)
            spec = importlib.machinery.ModuleSpec("gone", loader)
            return lambda *args: spec
        for perms in (Policy.preset("workspace"), Policy(write=[OK], import_allow=["*"])):
            with perms.guard()():
                before = sys.meta_path[:], sys.path_hooks[:], sys.path[:]
                {put}
                try:
                    import gone
                except Exception:
                    pass
                sys.meta_path[:], sys.path_hooks[:], sys.path[:] = before
                sys.path_importer_cache.clear()
            assert theirs.read_text() == "theirs"
            assert theirs.stat().st_mtime == 1
        """)
