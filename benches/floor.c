/* What an audit hook and a call monitor cost that do nothing: the floor of the benchmarks. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

static int hook(const char *event, PyObject *args, void *data) { return 0; }

static PyObject *add_hook(PyObject *self, PyObject *unused) {
    if (PySys_AddAuditHook(hook, NULL) < 0) return NULL;
    Py_RETURN_NONE;
}

/* The one system call that tells where a path without links leads. */
static PyObject *resolve(PyObject *self, PyObject *path) {
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
    const char *name = PyUnicode_AsUTF8(path);
    if (!name) return NULL;
    long fd = syscall(SYS_openat2, AT_FDCWD, name, &how, sizeof how);
    if (fd < 0) return PyErr_SetFromErrno(PyExc_OSError);
    close(fd);
    Py_RETURN_NONE;
}

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
} Callback;

static PyObject *on_call(PyObject *self, PyObject *const *args, size_t nargs, PyObject *names) {
    Py_RETURN_NONE;
}

static PyTypeObject CallbackType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "floor.Callback",
    .tp_basicsize = sizeof(Callback),
    .tp_vectorcall_offset = offsetof(Callback, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
};

static PyMethodDef methods[] = {
    {"add_hook", add_hook, METH_NOARGS, NULL},
    {"resolve", resolve, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "floor", .m_methods = methods};

PyMODINIT_FUNC PyInit_floor(void) {
    if (PyType_Ready(&CallbackType) < 0) return NULL;
    PyObject *floor = PyModule_Create(&module);
    Callback *callback = floor ? PyObject_New(Callback, &CallbackType) : NULL;
    if (!callback) return NULL;
    callback->vectorcall = on_call;
    if (PyModule_AddObject(floor, "on_call", (PyObject *)callback) < 0) return NULL;
    return floor;
}
