"""The notes on code that denials make, beside those of others (`co_extra`)."""

import sys

import programs
import pytest

NOTED = """
import ctypes, os
from fastaudit_rs import Policy

calls = []
free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(calls.append)
name = "PyUnstable_Eval_RequestCodeExtraIndex"
ctypes.pythonapi[name if hasattr(ctypes.pythonapi, name) else "_PyEval_RequestCodeExtraIndex"](free)

def denied():
    space = {"os": os}
    exec("def make():\\n try: os.mkdir('/no/new')\\n except PermissionError: return True", space)
    with Policy(write=[]).guard(monitor_calls=False)():
        assert space["make"]()
    return space["make"]

denied()
assert calls == []
kept = denied()
"""


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="of CPython")
def test_the_free_function_of_another_is_not_called():
    """Not at the end of the process either, when there is no such function any more."""
    assert programs.printed(NOTED) == ""
