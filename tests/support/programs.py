"""Programs that tests run in processes of their own."""

import subprocess
import sys
import textwrap


def ran(code, *args, before=(), options=(), timeout=60, **kwargs):
    """The finished process of Python code, which may be indented, behind a command."""
    command = [*before, sys.executable, *options, "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **kwargs)


#: Before 3.12 a guard warns that calls are not watched.
QUIET = f"-Wignore:Python 3.{sys.version_info.minor} cannot watch calls:RuntimeWarning"


def printed(code, *args, options=(), **kwargs):
    """What Python code prints; it must end well, without a word to standard error."""
    done = ran(code, *args, options=(QUIET, *options), **kwargs)
    assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}: {done.stderr[-2000:]}"
    return done.stdout
