"""``fastaudit-rs mcp``: a server by which a model runs Python under a policy."""

import argparse
import contextlib
import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import Policy
from ..sandbox.limits import Limits
from .bounds import limits_of
from .permissions import add_options as add_permissions
from .permissions import policy_of

if TYPE_CHECKING:
    # It imports asyncio, which takes longer than the command: this is imported for its options.
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

#: The seconds that a step may take where none are given.
SECONDS = "60"

#: The sessions that there may be at a time over HTTP.
SESSIONS = 16

#: The exit status for a command that Ctrl-C ended.
INTERRUPTED = 130


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    add_permissions(parser)
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        default=SECONDS,
        help=f"end a call's code after this time; {SECONDS} by default",
    )
    parser.add_argument("--memory", metavar="SIZE", help="memory of a sandbox; 2G by default")
    parser.add_argument(
        "--sandbox",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="run code in a process that the kernel confines; or in this process, under a guard",
    )
    parser.add_argument(
        "--directory",
        metavar="DIR",
        help="with --no-sandbox: where code begins; files that it changes there are told",
    )
    parser.add_argument(
        "--http",
        metavar="[HOST:]PORT",
        help="serve at this address of the loopback, for several clients; 0 is any free port",
    )
    parser.add_argument(
        "--sessions",
        metavar="N",
        type=int,
        default=SESSIONS,
        help=f"with --http: the sessions that there may be at a time; {SESSIONS} by default",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until the client leaves, or until Ctrl-C; return the exit status."""
    try:
        address = None if options.http is None else address_of(options.http)
        opens = _opens(options)
    except (OSError, ValueError) as error:
        return _wrong(str(error))
    if importlib.util.find_spec("mcp") is None:
        return _wrong("mcp needs the package mcp: pip install 'fastaudit-rs[mcp]'")
    from . import mcp_serving
    from .mcp_server import server

    made = server(opens)
    try:
        if address is None:
            mcp_serving.serve_stdio(made)
        else:
            mcp_serving.serve_http(made, *address, options.sessions)
    except OSError as error:
        return _wrong(f"--http {options.http}: {error.strerror or error}")
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def address_of(text: str) -> tuple[str, int]:
    """The host and the port of an address of the loopback.

    Args:
        text: As ``"8000"``, ``"localhost:8000"`` or ``"[::1]:8000"``.

    Raises:
        ValueError: The text is no such address.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError(f"--http takes an address such as 8000 or 127.0.0.1:8000, not {text}")
    if host not in ("127.0.0.1", "localhost", "::1"):
        raise ValueError(
            f"--http serves at 127.0.0.1, localhost or [::1], not at {host}: it asks nobody who "
            "they are. A proxy that does can stand before it"
        )
    return host, int(port)


def _opens(options: argparse.Namespace) -> "Callable[[], AbstractContextManager[Session]]":
    """Return the function that opens a client's session.

    Raises:
        OSError: A file or a directory is not there.
        ValueError: An option has a wrong value, or there are no sandboxes here.
    """
    from .. import Sandbox, SandboxError

    policy, limits = policy_of(options), limits_of(options)
    if options.sessions < 1:
        raise ValueError(f"--sessions takes a number from 1, not {options.sessions}")
    if not options.sandbox:
        if options.memory is not None:
            raise ValueError("--memory: the server's own process has no limit of it")
        directory = options.directory
        if directory is not None and not os.path.isdir(directory):
            raise ValueError(f"--directory: there is no directory {directory}")
        return functools.partial(policy.session, directory=directory, timeout=limits.wall_seconds)
    if options.directory is not None:
        raise ValueError("--directory: a sandbox has a directory of its own")
    limits = replace(limits, memory=limits.memory or Limits().memory)
    from .sandboxed import for_sandbox

    policy = for_sandbox(policy, options)
    try:
        Sandbox(policy, limits).close()
    except SandboxError as error:
        raise ValueError(f"{error}; --no-sandbox runs code in this process") from None
    return functools.partial(_sandboxed, policy, limits)


@contextlib.contextmanager
def _sandboxed(policy: Policy, limits: Limits) -> "Iterator[Session]":
    from .. import Sandbox
    from .sandboxed import tell_in_options

    with Sandbox(policy, limits) as sandbox:
        tell_in_options(sandbox)
        with sandbox.session() as session:
            yield session


def _wrong(message: str) -> int:
    print(f"fastaudit-rs: {message}", file=sys.stderr)
    return 2
