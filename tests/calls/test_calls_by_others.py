"""Native code that is called by native code of the standard library, and instances that say of no
module that they are of it."""

import collections
import functools
import operator
import subprocess

import pytest

from fastaudit_rs import AuditDenied, Policy

orjson = pytest.importorskip("orjson")
msgpack = pytest.importorskip("msgpack")
dumps = orjson.dumps


class Twice:
    """A method in Python code, beside a native one."""

    dump = staticmethod(dumps)

    def plain(self, *args, **kwargs):
        return 1


STOPPED = {
    "slot": lambda: dumps.__call__(1),
    "slot of the type": lambda: type(dumps).__call__(dumps, 1),
    "slot of a slot": lambda: dumps.__call__.__call__(1),
    "slot of a slot of a slot": lambda: dumps.__call__.__call__.__call__(1),
    "slot of a partial": lambda: functools.partial(dumps, 1).__call__(),
    "slot of a partial's type": lambda: functools.partial.__call__(functools.partial(dumps, 1)),
    "slot of a bound method": lambda: msgpack.Packer().pack.__call__(1),
    "slot of a class": lambda: type.__call__(msgpack.Packer),
    "methodcaller of a module": lambda: operator.methodcaller("dumps", 1)(orjson),
    "methodcaller by name": lambda: operator.methodcaller("dumps", option=None)(orjson),
    "methodcaller of a class": lambda: operator.methodcaller("dump", 1)(Twice),
    "methodcaller of an instance": lambda: operator.methodcaller("dump", 1)(Twice()),
    "defaultdict": lambda: collections.defaultdict(dumps)[1],
    "cmp_to_key": lambda: sorted([1, 2], key=functools.cmp_to_key(dumps)),
}
if hasattr(operator, "call"):
    STOPPED["operator.call"] = lambda: operator.call(dumps, 1)
    STOPPED["operator.call of a partial"] = lambda: operator.call(functools.partial(dumps, 1))

PASSING = {
    "slot": lambda: len.__call__([]),
    "slot of the type": lambda: type(len).__call__(len, []),
    "slot of Python code": lambda: Twice().plain.__call__(1),
    "slot of a class": lambda: int.__call__(),
    "metaclass": lambda: type.__call__(int, "1"),
    "methodcaller": lambda: operator.methodcaller("upper")("a"),
    "methodcaller with names": lambda: operator.methodcaller("plain", a=1)(Twice()),
    "methodcaller of a module": lambda: operator.methodcaller("getpid")(__import__("os")),
    "defaultdict": lambda: collections.defaultdict(list)[1],
    "defaultdict without a factory": lambda: collections.defaultdict(None, {1: 2})[1],
    "cmp_to_key": lambda: sorted([2, 1], key=functools.cmp_to_key(lambda a, b: a - b)),
}
if hasattr(operator, "call"):
    PASSING["operator.call"] = lambda: operator.call(len, [])


@pytest.fixture
def watched(places):
    """A guard that watches calls, of a policy or of `mk_audit`."""
    return Policy(write=[places.ok], native=False).guard()


@pytest.mark.parametrize("way", STOPPED)
def test_native_code_of_others(watched, way):
    with watched(), pytest.raises(AuditDenied) as caught:
        STOPPED[way]()
    assert caught.value.event == "fastaudit.call"


@pytest.mark.parametrize("way", PASSING)
def test_the_standard_library_and_python_code(watched, way):
    for _ in range(3):
        with watched():
            PASSING[way]()


def test_one_caller_for_many(watched):
    """A harmless method says nothing of the next."""
    call = operator.methodcaller("dumps", 1)

    class Harmless:
        def dumps(self, given):
            return given

    with watched():
        for target in (Harmless(), Harmless()):
            call(target)
        list(map(call, [Harmless()]))
        with pytest.raises(AuditDenied):
            call(orjson)


STATIC = """
#include <Python.h>
static PyObject *call(PyObject *self, PyObject *args, PyObject *kwargs) { Py_RETURN_NONE; }
static PyTypeObject Static = {
    PyVarObject_HEAD_INIT(NULL, 0) .tp_name = "staticnative.Static",
    .tp_basicsize = sizeof(PyObject), .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_call = call, .tp_new = PyType_GenericNew};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "staticnative", NULL, -1};
PyMODINIT_FUNC PyInit_staticnative(void) {
    PyObject *module = PyModule_Create(&definition);
    if (PyType_Ready(&Static) < 0) return NULL;
    PyModule_AddObject(module, "Static", Py_NewRef((PyObject *)&Static));
    return module;
}
"""


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    """A module with a static class whose instances can be called."""
    import importlib.util
    import shutil
    import sysconfig

    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no compiler")
    directory = tmp_path_factory.mktemp("static")
    (directory / "static.c").write_text(STATIC)
    library = directory / "staticnative.so"
    include = sysconfig.get_paths()["include"]
    command = [compiler, "-shared", "-fPIC", f"-I{include}", directory / "static.c", "-o", library]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no headers of Python")
    spec = importlib.util.spec_from_file_location("staticnative", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_instances_of_static_classes(watched, static):
    class Mine(static.Static):
        pass

    made = [static.Static(), Mine()]
    assert not hasattr(made[0], "__module__")
    for instance in made:
        with watched():
            for call in (
                lambda given=instance: given(),
                lambda given=instance: given.__call__(),
                lambda given=instance: functools.partial(given)(),
                lambda given=instance: list(map(given, [1])),
            ):
                with pytest.raises(AuditDenied) as caught:
                    call()
                assert caught.value.event == "fastaudit.call"
    assert "staticnative" in str(caught.value)


def test_lxml(watched):
    etree = pytest.importorskip("lxml.etree")
    tree = etree.fromstring("<a><b/></a>")
    path = etree.XPath("//b")
    with watched(), pytest.raises(AuditDenied, match=r"lxml\.etree"):
        path(tree)
