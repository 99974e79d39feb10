"""``fastaudit-rs serve``: a server for a pod, whose clients run code in a sandbox."""

import argparse
import os
import signal
from importlib.util import find_spec

from ..programs import BY_A_SIGNAL
from .mcp_command import address_of
from .options import open_sandbox, sandbox_rules
from .run_command import exit_on_signals, wrong

DESCRIPTION = """\
Serve a sandbox over HTTP: /execute, /upload, /download, /list and /exists as the Python runtime of
Kubernetes' agent-sandbox does, and /sessions/NAME for steps of code that share names.
"""

EPILOG = """\
Without --token-file it serves this machine alone. With it, it serves at any address, and clients
send 'Authorization: Bearer TOKEN'.
"""

#: The characters of a token.
SHORTEST = 16


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C; return the exit status."""
    from .. import SandboxError

    try:
        token = None if options.token_file is None else token_in(options.token_file)
        host, port = address_of(
            options.http, is_open=token is not None, instead="with --token-file it serves there"
        )
        if options.sessions < 1:
            raise ValueError(f"--sessions takes a number from 1, not {options.sessions}")
        rules = sandbox_rules(options)
    except (OSError, ValueError) as error:
        return wrong(error)
    for module in ("starlette", "uvicorn", "python_multipart"):
        if find_spec(module) is None:
            return wrong(f"serve needs {module}: pip install 'fastaudit-rs[serve]'")
    from . import http, pod_server

    try:
        listening = http.listen(host, port)
    except OSError as error:
        return wrong(f"--http {options.http}: {error.strerror or error}")
    exit_on_signals()
    try:
        with listening, open_sandbox(rules, confine=options.confine) as sandbox:
            hosts = http.own_hosts(listening)
            app = pod_server.application(
                sandbox, token=token, hosts=hosts, max_sessions=options.sessions
            )
            http.serve(app, listening, "", options.sessions + pod_server.COMMANDS)
    except SandboxError as error:
        return wrong(f"{error}; --confine prefer goes on with what the kernel can hold")
    except ValueError as error:
        return wrong(error)
    except KeyboardInterrupt:
        return BY_A_SIGNAL + signal.SIGINT
    return 0


def token_in(file: str) -> bytes:
    """The token in a file; a newline at its end is none of it."""
    with open(file, "rb") as content:
        token = content.read(1 << 16).rstrip(b"\r\n")
    if len(token) < SHORTEST or not token.isascii() or not token.decode().isprintable():
        where = os.path.abspath(file)
        raise ValueError(f"--token-file: {where} must have {SHORTEST} characters of ASCII or more")
    return token
