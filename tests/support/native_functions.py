"""The native functions and classes of the standard library, as each Python has them.

Printed as JSON: `{module: [name, …]}`. A class is named by its name, a method as `Class.method`.
Special methods are left out: each is called by an operation that has a name here, or by none.
"""

import contextlib
import importlib
import json
import os
import sys
import sysconfig
import types
import warnings

#: The beginnings of the names of modules that test CPython itself.
OF_TESTS = ("_test", "_xxtest", "xx", "_ctypes_test")

METHODS = (
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.BuiltinFunctionType,
    staticmethod,
)


def modules():
    """The names of the modules that are written in C."""
    names = set(sys.builtin_module_names)
    places = {os.path.join(sysconfig.get_path("stdlib"), "lib-dynload")}
    places.update(place for place in sys.path if place.endswith("lib-dynload"))
    for place in filter(os.path.isdir, places):
        names.update(file.split(".")[0] for file in os.listdir(place))
    return sorted(name for name in names if not name.startswith(OF_TESTS))


def in_module(name):
    """Name the functions of a module; none where it cannot be imported here."""
    found = set()
    with contextlib.suppress(ImportError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for key, value in vars(importlib.import_module(name)).items():
            if key == "__loader__":
                continue
            if isinstance(value, types.BuiltinFunctionType):
                found.add(key)
            elif isinstance(value, type) and not is_plain(value, name):
                found.add(value.__name__)
                found.update(
                    f"{value.__name__}.{method}"
                    for method, function in vars(value).items()
                    if isinstance(function, METHODS) and not is_special(method)
                )
    return sorted(key for key in found if not is_special(key))


def is_plain(value, module):
    """Tell whether a class is an exception, a record, or one of another module's."""
    return issubclass(value, (BaseException, tuple)) or (value.__module__ == "builtins") != (
        module == "builtins"
    )


def is_special(name):
    return name.startswith("__") and name.endswith("__")


if __name__ == "__main__":
    print(json.dumps({name: in_module(name) for name in modules()}))
