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

#: For raw code with machine code in it, and other ways to call that only one processor has.
on_x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="it is code for x86-64")

#: The beginning of raw code: system calls by their numbers on x86-64, and a list of the ones that
#: passed. On arm64 they are those of the same names, or the ones that took their place there:
#: syscalls(2).
SYSTEM_CALLS = """
import ctypes, json, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
ARM64 = {
    1: 64, 9: 222, 12: 214, 16: 29, 25: 216, 29: 194, 32: 23, 41: 198, 42: 203, 44: 206, 46: 211,
    53: 199, 56: 220, 59: 221, 61: 260, 62: 129, 68: 186, 72: 25, 76: 45, 91: 52, 101: 117,
    112: 157, 129: 138, 141: 140, 142: 118, 144: 119, 160: 164, 188: 5, 189: 6, 197: 14, 198: 15,
    200: 130, 203: 122, 206: 0, 222: 107, 223: 110, 234: 131, 240: 180, 241: 181, 242: 182,
    243: 183, 244: 184, 245: 185, 247: 95, 251: 30, 254: 27, 257: 56, 259: 33, 260: 54, 263: 35,
    264: 38, 265: 37, 268: 53, 272: 97, 280: 88, 283: 85, 290: 19, 291: 20, 292: 24, 293: 59,
    294: 26, 300: 262, 301: 263, 302: 261, 307: 269, 308: 268, 310: 270, 314: 274, 316: 276,
    319: 279, 322: 281, 332: 291}
# Calls that are no more, with what other calls took their place.
NEWER = {
    2: lambda path, flags, mode=0: (56, -100, path, flags, mode),
    22: lambda ends: (59, ends, 0),
    33: lambda old, new: (24, old, new, 0),
    57: lambda: (220, 17, 0, 0, 0, 0),
    82: lambda old, new: (276, -100, old, -100, new, 0),
    83: lambda path, mode: (34, -100, path, mode),
    84: lambda path: (35, -100, path, 0x200),
    85: lambda path, mode: (56, -100, path, 0o1101, mode),
    86: lambda old, new: (37, -100, old, -100, new, 0),
    87: lambda path: (35, -100, path, 0),
    88: lambda to, path: (36, to, -100, path),
    90: lambda path, mode: (53, -100, path, mode),
    92: lambda path, user, group: (54, -100, path, user, group, 0),
    94: lambda path, user, group: (54, -100, path, user, group, 0x100),
    133: lambda path, mode, device: (33, -100, path, mode, device),
    253: lambda: (26, 0)}
def call(number, *arguments):
    if os.uname().machine == "aarch64":
        newer = NEWER.get(number)
        if newer is not None:
            number, *arguments = newer(*arguments)
        elif number < 424:
            # From there on they are the same everywhere.
            number = ARM64[number]
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
