"""Code without a guard in a sandbox, where the kernel alone says no."""

import json
import platform
import subprocess
import sys
import tempfile
from typing import Any, NamedTuple

import pytest

from fastaudit_rs import Sandbox
from fastaudit_rs.results import Result

#: Guarded code that runs raw code.
RUN = """
import subprocess, sys
status = subprocess.run([sys.executable, "-I", "raw.py", *args]).returncode
"""

#: For raw code that makes system calls by their numbers.
by_number = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the numbers are those of x86-64"
)

#: The beginning of raw code: system calls by their numbers, and a list of the ones that passed.
SYSTEM_CALLS = """
import ctypes, json, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    sized = [each if isinstance(each, ctypes._SimpleCData | ctypes.Array) else ctypes.c_long(each)
             for each in arguments]
    return libc.syscall(ctypes.c_long(number), *sized)
def sent(number, to, where, flags=0):
    # By sendto, sendmsg or sendmmsg, to an address.
    name = ctypes.create_string_buffer(where, len(where))
    data = ctypes.create_string_buffer(b"leaked")
    if number == 44:
        return call(44, to, data, 6, flags, name, len(where))
    part = (ctypes.c_ulong * 2)(ctypes.addressof(data), 6)
    head = (ctypes.c_ulong * 8)(ctypes.addressof(name), len(where), ctypes.addressof(part), 1)
    return call(46, to, head, flags) if number == 46 else call(307, to, head, 1, flags)
answer = passed = []
def attempt(name, act):
    try:
        done = act()
        if done is not False and done != -1:
            passed.append(name)
    except OSError:
        pass
"""


def program(code: str) -> str:
    """Raw code between its beginning and its end, which prints ``answer``."""
    return f"{SYSTEM_CALLS}{code}\nprint(json.dumps(answer), flush=True)\n"


class Raw(NamedTuple):
    """What raw code told, its run, and the sandbox that it ran in."""

    told: Any
    ran: Result
    sandbox: Sandbox


def raw_in(sandbox: Sandbox, code: str, *args: object, in_session: bool = False) -> Raw:
    """Run raw code in a sandbox, and end as it does. It tells nothing if it was ended before.

    A step of a session ends well whatever it does.
    """
    sandbox.write_file("raw.py", program(code))
    variables = {"args": list(map(str, args))}
    if in_session:
        with sandbox.session(undo_depth=0) as session:
            ran = session.run(RUN, variables=variables)
    else:
        ran = sandbox.run(f"{RUN}sys.exit(status)", variables=variables)
    return Raw(json.loads(ran.stdout.splitlines()[-1]) if ran.stdout else None, ran, sandbox)


def told_outside(code: str, *args: object) -> Any:
    """What raw code tells without a sandbox, in a directory of its own."""
    command = [sys.executable, "-I", "-c", program(code), *map(str, args)]
    with tempfile.TemporaryDirectory() as cwd:
        return json.loads(subprocess.run(command, cwd=cwd, check=True, capture_output=True).stdout)
