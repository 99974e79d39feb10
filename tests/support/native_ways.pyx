# cython: language_level=3, binding=False
"""Native code that notes when it runs, to be reached in each way that Python has."""

acted = []


def act(*args, **keywords):
    acted.append("act")
    return args[0] if args else None


cdef class Native:
    def method(self, *args):
        acted.append("method")
        return 1

    def write(self, *args):
        acted.append("write")
        return len(args[0])

    @classmethod
    def of_class(cls):
        acted.append("of_class")

    @staticmethod
    def static():
        acted.append("static")

    @property
    def size(self):
        acted.append("get")
        return 1

    @size.setter
    def size(self, value):
        acted.append("set")

    @size.deleter
    def size(self):
        acted.append("delete")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        acted.append("__getattr__")
        return 1

    def __call__(self, *args):
        acted.append("__call__")

    def __enter__(self):
        acted.append("__enter__")
        return self

    def __exit__(self, *error):
        acted.append("__exit__")

    def __iter__(self):
        acted.append("__iter__")
        return iter([1, 2])

    def __len__(self):
        acted.append("__len__")
        return 1

    def __bool__(self):
        acted.append("__bool__")
        return True

    def __hash__(self):
        acted.append("__hash__")
        return 1

    def __eq__(self, other):
        acted.append("__eq__")
        return True

    def __lt__(self, other):
        acted.append("__lt__")
        return True

    def __contains__(self, item):
        acted.append("__contains__")
        return True

    def __str__(self):
        acted.append("__str__")
        return "native"

    def __repr__(self):
        acted.append("__repr__")
        return "native"

    def __format__(self, spec):
        acted.append("__format__")
        return "native"

    def __bytes__(self):
        acted.append("__bytes__")
        return b"native"

    def __fspath__(self):
        acted.append("__fspath__")
        return "native"

    def __index__(self):
        acted.append("__index__")
        return 1

    def __float__(self):
        acted.append("__float__")
        return 1.0

    def __add__(self, other):
        acted.append("__add__")
        return 1

    def __iadd__(self, other):
        acted.append("__iadd__")
        return self

    def __neg__(self):
        acted.append("__neg__")
        return 1

    def __getitem__(self, key):
        acted.append("__getitem__")
        return 1

    def __setitem__(self, key, value):
        acted.append("__setitem__")

    def __delitem__(self, key):
        acted.append("__delitem__")

    def __await__(self):
        acted.append("__await__")
        return iter(())

    def __aiter__(self):
        acted.append("__aiter__")
        raise ValueError

    def __reduce__(self):
        acted.append("__reduce__")
        return Native, ()

    def __copy__(self):
        acted.append("__copy__")
        return self


cdef class Iterator:
    def __iter__(self):
        return self

    def __next__(self):
        acted.append("__next__")
        raise StopIteration


cdef class Descriptor:
    def __get__(self, instance, owner):
        acted.append("__get__")
        return 1

    def __set__(self, instance, value):
        acted.append("__set__")

    def __set_name__(self, owner, name):
        acted.append("__set_name__")


cdef class Ended:
    def __dealloc__(self):
        acted.append("__dealloc__")


cdef class Made:
    def __init__(self, *args, **keywords):
        acted.append("__init__")


def error_new(cls, *args):
    acted.append("__new__")
    return Exception.__new__(cls)


class Error(Exception):
    __new__ = error_new


def init_subclass(cls, **keywords):
    acted.append("__init_subclass__")


def class_getitem(cls, item):
    acted.append("__class_getitem__")


class Base:
    __init_subclass__ = classmethod(init_subclass)
    __class_getitem__ = classmethod(class_getitem)
