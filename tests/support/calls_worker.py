"""Calls native code of many kinds under a guard and tells what `on_call` was asked, as JSON.

Run as `python calls_worker.py CASE`, with fastaudit or with this package in its place: `CASE` is
`names`, or the name of a function below whose answer is wanted.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
import threading

import lxml.etree as etree
import numpy as np
import orjson
import regex
from Cython import Utils
from fastaudit import mk_audit
from fontTools.cu2qu import cu2qu
from markupsafe import _speedups as native


def wrapping(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


class Callable:
    """An instance that Python code is behind."""

    def __call__(self, *args):
        return args


class OfPython(list):
    def append(self, item):
        super().append(item)


# The callees, by a name for each.
CALLED = {
    "a function": lambda: native._escape_inner("x"),
    "by a variable": lambda: (lambda f: f("x"))(native._escape_inner),
    "partial": lambda: functools.partial(native._escape_inner, "x")(),
    "nested partial": lambda: functools.partial(functools.partial(native._escape_inner), "x")(),
    "wrapped": lambda: wrapping(native._escape_inner)("x"),
    "with arguments": lambda: native._escape_inner(*["x"]),
    "by its __call__": lambda: native._escape_inner.__call__("x"),
    "a Cython function": lambda: Utils.normalise_float_repr("1.0"),
    "another": lambda: cu2qu.curve_to_quadratic([(0, 0), (1, 1), (2, 2), (3, 3)], 1.0),
    "lxml reading": lambda: etree.fromstring("<a/>").find("b"),
    "lxml writing": lambda: etree.ElementTree(etree.fromstring("<a/>")).write("/dev/null"),
    "lxml to a file": lambda: etree.xmlfile("a.xml"),
    "safe functions": lambda: orjson.loads(orjson.dumps([np.arange(3).sum().item()])),
    "safe methods": lambda: regex.compile("a").match("a").group(),
    "the standard library": lambda: [len("a"), json.dumps({}), threading.get_ident()],
    "Python code": lambda: [Callable()(1), OfPython().append(1), functools.lru_cache(len)("a")],
}


def raised_by(call, *args):
    """The exception that a call raises, or `None`."""
    try:
        call(*args)
    except Exception as error:
        return error
    return None


def names():
    """For each of these, the callees that the host was asked of."""
    asked = []

    def on_call(caller, callee, fn, code, off, data, calls):
        asked.append(callee)
        return False

    found = {}
    with mk_audit([tempfile.mkdtemp()], on_call=on_call)():
        for name, call in CALLED.items():
            asked.clear()
            error = raised_by(call)
            found[name] = [*asked, type(error).__name__] if error else [*asked]
    return found


def denied_names():
    """The same without `on_call`: the first line of each message."""
    found = {}
    with mk_audit([tempfile.mkdtemp()])():
        for name, call in CALLED.items():
            error = raised_by(call)
            is_denial = isinstance(error, PermissionError)
            told = str(error).split("\n")[0] if is_denial else type(error).__name__
            found[name] = told if error else None
    return found


def outcome(function, *args):
    error = raised_by(function, *args)
    assert error is None or isinstance(error, PermissionError)
    return "denied" if error else "ran"


def after_a_safe_call():
    """A safe function that is remembered is no excuse for others: the outcome of each call."""
    found = []
    with mk_audit([])():
        for _ in range(3):
            found.append(outcome(orjson.dumps, 1))
            found.append(outcome(functools.reduce, orjson.dumps, [1]))
            found.append(outcome(functools.reduce, native._escape_inner, ["x", "y"]))
            found.append(outcome(native._escape_inner, "x"))
    if mk_audit.__module__.startswith("fastaudit_rs"):
        import fastaudit_rs

        # Rules that know of no safe modules, alone and beside those that do.
        with fastaudit_rs.mk_audit([])():
            found.append(outcome(orjson.dumps, 1))
        with mk_audit([])():
            found.append(outcome(orjson.dumps, 1))
        found.append(outcome(orjson.dumps, 1))
    return found


def one_site():
    """A call site that a harmless callee comes to first: what becomes of each call."""
    found = []
    with mk_audit([])():
        for function in (len, str.upper, Callable(), orjson.dumps, native._escape_inner):
            try:
                function("x")
                found.append("ran")
            except PermissionError:
                found.append("denied")
    return found


def after_a_disable():
    """A site that `on_call` switches off is off under this guard, and not under the next."""
    found = []

    def on_call(caller, callee, fn, code, off, data, calls):
        found.append(callee)
        return sys.monitoring.DISABLE

    for _ in range(2):
        with mk_audit([], on_call=on_call)():
            for _ in range(2):
                native._escape_inner("x")
    return found


def first_import():
    """True if a first import passes, which loads native code."""
    passes = {}
    environment = {**os.environ, "MPLCONFIGDIR": tempfile.mkdtemp()}
    for module in ("ctypes", "numpy", "pandas", "matplotlib.pyplot", "asyncio"):
        program = f"""
import sys
from fastaudit import mk_audit
with mk_audit([])():
    import {module}
"""
        command = [sys.executable, *sys.argv[2:], "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        passes[module] = done.returncode == 0 or done.stderr.strip().splitlines()[-4:]
    return passes


def ctypes_after_import():
    """The acts of ctypes are denied once it is imported."""
    denied = []
    with mk_audit([])():
        import ctypes

        for action in (lambda: ctypes.CDLL("libm.so.6"), lambda: ctypes.string_at(1)):
            try:
                action()
            except PermissionError as error:
                denied.append(str(error).split(" blocked")[0])
        ctypes.create_string_buffer(4)
    return denied


if __name__ == "__main__":
    print(json.dumps([mk_audit.__module__, globals()[sys.argv[1]]()]))
