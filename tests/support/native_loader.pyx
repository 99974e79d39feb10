# cython: language_level=3, binding=False
"""Native code that loads an object and calls a function of it."""

import os

cdef extern from * nogil:
    """
    #include <dlfcn.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <math.h>

    static int load_and_call(const char *object, const char *path, double number) {
        void *loaded = dlopen(object, RTLD_NOW | RTLD_LOCAL);
        int (*make)(const char *) = loaded ? dlsym(loaded, "make") : 0;
        errno = 0;
        return make && cos(number) <= 1 && make(path) >= 0 ? 0 : make ? errno : -1;
    }
    """
    int load_and_call(const char *object, const char *path, double number)


def make(object, path, number):
    """Make a file by the function `make` of an object; return 0, or the error."""
    return load_and_call(os.fsencode(object), os.fsencode(path), number)
