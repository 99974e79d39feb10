"""Programs that tests run in processes of their own."""

import os
import subprocess
import sys
import textwrap

#: The times that a program may take longer here: on an emulated machine.
SLOWER = float(os.environ.get("FASTAUDIT_RS_SLOWER", "1"))


def run(command, timeout=300, **kwargs):
    """The finished process of a command, which prints text."""
    options = {"capture_output": True, "text": True, "timeout": timeout * SLOWER, **kwargs}
    return subprocess.run(command, **options)


def python(*arguments, **kwargs):
    """The finished process of this Python with arguments."""
    return run([sys.executable, *map(str, arguments)], **kwargs)


def ran(code, *args, before=(), options=(), **kwargs):
    """The finished process of Python code, which may be indented, behind a command."""
    code = textwrap.dedent(code)
    return run([*before, sys.executable, *options, "-c", code, *map(str, args)], **kwargs)


def printed(code, *args, **kwargs):
    """What Python code prints; it must end well, without a word to standard error."""
    done = ran(code, *args, **kwargs)
    assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}: {done.stderr[-2000:]}"
    return done.stdout
