"""``fastaudit-rs run --sandbox``: a program in a process of its own that the kernel confines."""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import replace

from .. import AuditDenied, Policy
from ..programs import directory_of, source_of
from ..results import Result
from ..sandbox.host.sandbox import Sandbox
from ..sandbox.host.setup import absolute
from ..sandbox.limits import Limits
from .bounds import TIMED_OUT, tell_of_timeout
from .endings import tell
from .permissions import ANY

#: The code that starts the program there.
CODE = """\
from fastaudit_rs.programs import prepare
prepare({kind!r}, {program!r}, {source!r})()
"""

#: The exit status for a program that a signal ended, and 128 more than its number.
BY_A_SIGNAL = 128


def run(
    policy: Policy,
    limits: Limits,
    kind: str,
    program: list[str],
    on_ask: Callable[[AuditDenied], object] | None = None,
    ask_up_to: Policy | None = None,
    log: str | None = None,
) -> int:
    """Run a program in a sandbox, and show its output when it has ended.

    Args:
        policy: The policy of the program, `for_sandbox`.
        limits: Its memory and time; the others are as in other sandboxes, but the time has no limit
            by default.
        kind: ``-m``, ``-c``, or nothing for a script.
        program: The module, code or script, and the arguments.
        on_ask: A function that is asked before an operation is denied.
        ask_up_to: The most that its answers may open.
        log: The file for its decisions.

    Returns:
        The exit status.

    Raises:
        OSError: The script cannot be read.
        SandboxError: There are no sandboxes here.
    """
    limits = replace(limits, memory=limits.memory or Limits().memory)
    source = source_of(kind, program)
    given = b""
    if program[0] != "-" and sys.stdin is not None and not sys.stdin.isatty():
        given = sys.stdin.buffer.read()
    code = CODE.format(kind=kind, program=program, source=source)
    if ask_up_to is not None:
        ask_up_to = absolute(ask_up_to, os.getcwd())
    path = [directory_of(kind, program) or os.getcwd()]
    with Sandbox(policy, limits, path=path, on_ask=on_ask, ask_up_to=ask_up_to, log=log) as sandbox:
        tell_in_options(sandbox)
        # The program begins here, and not in the directory of the sandbox.
        sandbox._cwd = os.getcwd()
        result = sandbox.run(code, input=given)
    return _show(result, limits)


def for_sandbox(policy: Policy, options: argparse.Namespace) -> Policy:
    """The policy of options, for a sandbox: its paths are those of this process."""
    if ANY in options.read:
        # A sandbox reads what its policy names.
        policy = policy.replace(read=["/"])
    return absolute(policy, os.getcwd())


def tell_in_options(sandbox: Sandbox, line: str = "") -> None:
    """Have denials of what it runs name options of the command.

    A sandbox's own hints are worded for its host in Python.

    Args:
        sandbox: The sandbox.
        line: The line that the options are added to, if hints are to show it.
    """
    setup = sandbox._setup
    setup.policy = setup.policy._told_in("sandbox options", sandbox.policy, line=line)


def _show(result: Result, limits: Limits) -> int:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(result.stdout)
        sys.stdout.flush()
    sys.stderr.write(result.stderr)
    tell([denied for denied in result.violations if denied.message not in result.stderr])
    if result.timed_out and limits.wall_seconds is not None:
        tell_of_timeout(limits.wall_seconds)
        return TIMED_OUT
    if result.killed_by is not None:
        print(f"fastaudit-rs: ended by the limit on {result.killed_by}", file=sys.stderr)
    return result.returncode if result.returncode >= 0 else BY_A_SIGNAL - result.returncode
