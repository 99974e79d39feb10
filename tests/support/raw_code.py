"""Code without a guard in a sandbox, where the kernel alone says no, run by a host of some user."""

import json
import platform
import textwrap
from typing import Any

import pytest
from repository import ROOT
from users import run_as

#: A host: it runs the code of its first argument, and prints its last line, and that of `after`.
HOST = """
import json, os, resource, subprocess, sys, time
sys.path.insert(0, {support!r})
from sandboxes import LOOSE, of, running
from fastaudit_rs import Limits, Network, Policy, Sandbox
code, given = sys.argv[1:]
before = None
{before}
with Sandbox(LOOSE.replace(network={network}), Limits(wall_seconds=30, {limits})) as sandbox:
    sandbox.write_file("raw.py", code)
    ran = sandbox.run(
        "import subprocess, sys\\n"
        "command = [sys.executable, '-I', 'raw.py', *sys.argv[1:]]\\n"
        "sys.exit(subprocess.run(command).returncode)",
        args=[given.replace("HOST", str(os.getpid()))],
    )
    told = json.loads(ran.stdout.splitlines()[-1]) if ran.stdout else None
    after = None
    {after}
print(json.dumps({{"told": told, "before": before, "after": after, "returncode": ran.returncode,
                   "killed_by": ran.killed_by, "stderr": ran.stderr}}))
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


def raw(
    user: str,
    code: str,
    given: str = "",
    network: str = "False",
    limits: str = "",
    before: str = "",
    after: str = "",
) -> dict[str, Any]:
    """Run raw code in a sandbox of this user, and return what it and its host told.

    Args:
        user: The user of the host.
        code: The code: it tells its `answer`, which is `passed` unless it sets another.
        given: Its argument; in it ``HOST`` stands for the number of the host.
        network: The network of the policy, as an expression.
        limits: The limits, as keyword arguments.
        before: Statements of the host before the run.
        after: Statements of the host after it, while the sandbox is there.
    """
    host = HOST.format(
        support=str(ROOT / "tests/support"),
        network=network,
        limits=limits,
        before=textwrap.dedent(before),
        after=textwrap.indent(textwrap.dedent(after), "    ").strip(),
    )
    told: dict[str, Any] = json.loads(run_as(user, host, program(code), given))
    return told
