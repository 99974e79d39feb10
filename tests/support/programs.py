"""Programs that tests run in processes of their own."""

import subprocess
import sys
import textwrap


def run(command, timeout=300, **kwargs):
    """The finished process of a command, which prints text."""
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **kwargs)


def python(*arguments, **kwargs):
    """The finished process of this Python with arguments."""
    return run([sys.executable, *map(str, arguments)], **kwargs)


def ran(code, *args, before=(), options=(), **kwargs):
    """The finished process of Python code, which may be indented, behind a command."""
    code = textwrap.dedent(code)
    return run([*before, sys.executable, *options, "-c", code, *map(str, args)], **kwargs)


#: Before 3.12 a guard warns that calls are not watched.
QUIET = f"-Wignore:Python 3.{sys.version_info.minor} cannot watch calls:RuntimeWarning"


def printed(code, *args, options=(), **kwargs):
    """What Python code prints; it must end well, without a word to standard error."""
    done = ran(code, *args, options=(QUIET, *options), **kwargs)
    assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}: {done.stderr[-2000:]}"
    return done.stdout
