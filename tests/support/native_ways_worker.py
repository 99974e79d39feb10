"""Reaches native code in the ways of `native_ways.toml`, under a guard that allows none.

Started with the ways as JSON, `{name: [code, before]}`; prints a line of JSON for each: its name,
whether the guard stopped it, what ran, and the exception, if any.
"""

import atexit
import bisect
import builtins
import collections
import concurrent.futures
import contextvars
import copy
import csv
import functools
import gc
import itertools
import json
import operator
import os
import pickle
import re
import signal
import sqlite3
import sys
import textwrap
import time
import types
import weakref
from xml.parsers import expat

import native_ways

from fastaudit_rs import AuditDenied, Policy

MODULES = (
    atexit,
    bisect,
    builtins,
    collections,
    concurrent,
    contextvars,
    copy,
    csv,
    functools,
    gc,
    json,
)
MODULES += (itertools, operator, os, pickle, re, signal, sqlite3, sys, time, types, weakref)


def main(ways):
    names = {module.__name__: module for module in MODULES}
    names.update(vars(native_ways), expat=expat, IMPORT=builtins.__import__)
    guard = Policy(write=[os.getcwd()], threads="inherit").guard()
    for name, (code, before) in ways.items():
        module = {**names, "n": native_ways.Native()}
        exec(before, module)
        exec("def way():\n" + textwrap.indent(code, " "), module)
        way, raised, stopped = module["way"], None, False
        native_ways.acted.clear()
        with guard() as active:
            try:
                way()
            except AuditDenied as error:
                stopped = error.event == "fastaudit.call"
                raised = error
            except BaseException as error:
                raised = error
            stopped = stopped or any(d.event == "fastaudit.call" for d in active.violations)
        acted = list(native_ways.acted)
        print(json.dumps([name, stopped, acted, repr(raised)[:200]]), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
