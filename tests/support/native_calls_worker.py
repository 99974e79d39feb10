"""Makes the calls of `native_functions.toml` under a guard, each with what it raised.

Started with the calls as JSON, `{name: code}`, and a directory to work in; prints a line of JSON
for each: its name, the events, and the exception, if any.
"""

import contextvars
import ctypes
import importlib
import io
import json
import os
import ssl
import sys
import textwrap
import threading
import types

from fastaudit_rs import Policy

SEEN = []


def places(directory):
    """Make the things that the code of the calls refers to."""
    names = {"OK": directory + "/ok", "OUT": directory + "/out", "BLOCKED": directory + "/blocked"}
    for name in ("OK", "OUT"):
        os.mkdir(names[name])
    for file in (names["BLOCKED"], names["OK"] + "/file"):
        open(file, "w").close()
    names["FILE"] = os.open(names["OK"] + "/file", os.O_RDWR)
    names["DIRECTORY"] = os.open(names["OUT"], os.O_RDONLY)
    names["TERMINAL"] = os.openpty()[1]
    names["SSL"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    names["CDLL"], names["C_INT"] = ctypes.CDLL(None), ctypes.c_int()
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    names["INTERPRETERS"] = interpreters = importlib.import_module(name)
    names["INTERPRETER"], names["OTHER"] = interpreters.create(), interpreters.create()
    pipe = os.pipe()
    starting = [[b"a"], (b"/missing",), True, pipe, None, None, *[-1] * 6, *pipe]
    starting += [False, False, -1, None, None, None, -1, None]
    fork_exec = importlib.import_module("_posixsubprocess").fork_exec
    return {**names, "FORK_EXEC": lambda: fork_exec(*starting)}


def function(code, names):
    """The code as a function: running it raises no event of its own."""
    module = {"contextvars": contextvars, "io": io, "os": os, "sys": sys, "types": types}
    module.update(names, threading=threading)
    for name in ("_signal", "select"):
        module[name] = importlib.import_module(name)
    exec("def call():\n" + textwrap.indent(code, " "), module)
    return module


def main(calls, directory):
    names = places(directory)
    made = {}
    for name, code in calls.items():
        module = function(code, names)
        module[name.partition(".")[0]] = importlib.import_module(name.partition(".")[0])
        made[name] = module["call"]
    blocked = [names["BLOCKED"], "/etc/passwd", "/etc/group"]
    paths = ssl.get_default_verify_paths()
    blocked += filter(None, [paths.cafile, paths.capath])
    policy = Policy(write=[names["OK"]], network=False, block=blocked)
    guard = policy.guard(monitor_calls=False)
    sys.addaudithook(lambda event, args: SEEN.append(event))
    sys.stdin = open(os.devnull)
    for name, call in made.items():
        print(json.dumps([name]), flush=True)
        if name.startswith("posix.") and "INTERPRETERS" in names:
            # A copy of a process with several does not go on, on Python 3.10.
            names.pop("INTERPRETERS").destroy(names["INTERPRETER"])
        raised = None
        with guard() as active:
            SEEN.clear()
            try:
                call()
            except BaseException as error:
                raised = error
            # The guard's hook comes first: no other is told of what it denies.
            seen = [*SEEN, *(denied.event for denied in active.violations)]
        kinds = [kind.__name__ for kind in type(raised).__mro__] if raised else []
        print(json.dumps([name, seen, kinds, str(raised)]), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2])
