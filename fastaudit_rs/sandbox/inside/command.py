"""A program that the host has a sandbox run, as its code would start it: under its policy."""

import os
import subprocess
import sys

from ..wire import Command

#: The statuses of a shell for a program that is not there, and for one that cannot be started.
MISSING, UNUSABLE = 127, 126

#: The files that start it, which tracebacks leave out.
STARTERS = (__file__, subprocess.__file__)


def start(command: Command, given: bytes | None = None) -> int:
    """Run it to its end; return its status as a shell tells it: 128 and a signal that ended it."""
    words = command.words
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    try:
        done = subprocess.run(
            words,
            shell=isinstance(words, str),
            cwd=command.cwd,
            env={**os.environ, **command.env} if command.env else None,
            input=given,
            check=False,
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        # A denial of the policy is one too.
        if type(error) not in (FileNotFoundError, NotADirectoryError, PermissionError):
            raise
        print(f"{error.strerror}: {error.filename!r}", file=sys.stderr)
        return UNUSABLE if type(error) is PermissionError else MISSING
    return done.returncode if done.returncode >= 0 else 128 - done.returncode
