"""``fastaudit-rs mcp``: a server by which a model runs Python under a policy."""

import argparse
import contextlib
import functools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from .. import Policy
from ..programs import BY_A_SIGNAL
from .options import ANY, limits_of, open_sandbox, policy_of, sandbox_rules
from .run_command import exit_on_signals, wrong

if TYPE_CHECKING:
    # It imports asyncio, which takes longer than the command: this is imported for its options.
    from ..sandbox.limits import Limits
    from ..sessions.base import Session

DESCRIPTION = """\
Serve a tool, run_python, by the Model Context Protocol: on standard input and output, or over HTTP.
Each client has a session of its own, in which names last from call to call.
"""

EPILOG = """\
The code is a model's, which may follow a text that it has read. So it runs in a sandbox: the kernel
holds the policy, and the code has a directory of its own. --no-sandbox runs it in the server's
process under a guard, for code that may err but means no harm; it may read everything then, and
writes nothing but what --write names.
"""


def run(options: argparse.Namespace) -> int:
    """Serve until the client leaves, or until Ctrl-C; return the exit status."""
    try:
        address = None if options.http is None else address_of(options.http)
        opens, rules = _opens(options)
    except (OSError, ValueError) as error:
        return wrong(error)
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        return wrong("mcp needs the package mcp: pip install 'fastaudit-rs[mcp]'")
    from . import mcp_server

    exit_on_signals()
    most = None if address is None else options.sessions
    made = mcp_server.server(opens, rules=rules, max_sessions=most)
    try:
        if address is None:
            mcp_server.serve_stdio(made)
        else:
            mcp_server.serve_http(made, *address, options.sessions)
    except OSError as error:
        head = "" if address is None else f"--http {options.http}: "
        return wrong(f"{head}{error.strerror or error}")
    except KeyboardInterrupt:
        return BY_A_SIGNAL + signal.SIGINT
    return 0


def address_of(
    text: str, *, is_open: bool = False, instead: str = "a proxy that does can stand before it"
) -> tuple[str, int]:
    """The host and the port of an address: ``"8000"`` or ``"localhost:8000"``.

    Unless `is_open` it is one of the loopback; `instead` says what a host can do otherwise.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError(f"--http takes an address such as 8000 or 127.0.0.1:8000, not {text}")
    if not is_open and host not in ("127.0.0.1", "localhost", "::1"):
        raise ValueError(
            f"--http serves at 127.0.0.1, localhost or [::1], not at {host}: it asks nobody who "
            f"they are; {instead}"
        )
    return host, int(port)


def _opens(
    options: argparse.Namespace,
) -> "tuple[Callable[[], AbstractContextManager[Session]], str]":
    """Return the function that opens a client's session, and what its code may do."""
    from .. import SandboxError
    from .._rules import rules_for_model

    if options.sessions < 1:
        raise ValueError(f"--sessions takes a number from 1, not {options.sessions}")
    directory = options.directory and os.path.expanduser(options.directory)
    for path in options.read:
        if path != ANY and not os.path.exists(os.path.expanduser(path)):
            raise ValueError(f"--read {path}: there is no such file or directory")
    if not options.sandbox:
        policy, limits = policy_of(options), limits_of(options)
        if options.memory is not None:
            raise ValueError("--memory: the server's own process has no limit of it")
        if directory is not None and not os.path.isdir(directory):
            raise ValueError(f"--directory: there is no directory {directory}")
        seconds = limits.wall_seconds
        told = rules_for_model(
            policy, directory=os.path.abspath(directory or os.curdir), seconds=seconds
        )
        return functools.partial(policy.session, directory=directory, timeout=seconds), told
    rules = sandbox_rules(options)
    if directory is not None:
        raise ValueError("--directory: a sandbox has a directory of its own")
    try:
        open_sandbox(rules).close()
    except SandboxError as error:
        raise ValueError(f"{error}; --no-sandbox runs code in this process") from None
    policy, limits = rules
    told = rules_for_model(
        policy, is_sandbox=True, seconds=limits.wall_seconds, memory=limits.memory
    )
    return functools.partial(_sandboxed, rules), told


@contextlib.contextmanager
def _sandboxed(rules: tuple[Policy, "Limits"]) -> "Iterator[Session]":
    with open_sandbox(rules) as sandbox, sandbox.session() as session:
        yield session
