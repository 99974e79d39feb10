# cython: language_level=3, binding=True
"""Native code that calls back into Python, and that Python code calls, in many ways."""
from cpython.bytes cimport PyBytes_FromStringAndSize


cdef class Node:
    cdef public object value
    cdef list children

    def __cinit__(self, value):
        self.value = value
        self.children = []

    def add(self, child):
        self.children.append(child)
        return self

    def __iter__(self):
        yield self.value
        for child in self.children:
            yield from child

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.value = self.value + 1

    @property
    def size(self):
        return 1 + sum(child.size for child in self.children)

    cpdef object apply(self, function):
        return function(self.value)


cdef double total(double[:] values) noexcept nogil:
    cdef double result = 0
    cdef Py_ssize_t i
    for i in range(values.shape[0]):
        result += values[i]
    return result


def summed(values):
    import array
    cdef double[:] view = array.array("d", values)
    cdef double result
    with nogil:
        result = total(view)
    return result


def guarded(function, *args, **keywords):
    try:
        return function(*args, **keywords)
    finally:
        Node(0).add(Node(1))


def generated(count):
    for number in range(count):
        yield Node(number).apply(lambda value: value * 2)


async def awaited(value):
    return Node(value).size


def workload():
    """Calls from Python code, which CALL events show, are made by `injected_calls`."""
    import injected_calls

    return injected_calls.run(Node, summed, guarded, generated, awaited)
