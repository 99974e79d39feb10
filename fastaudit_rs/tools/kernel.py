"""A kernel for Jupyter whose cells run under a policy from the start: ``fastaudit-rs kernel``.

The guard judges the code of cells, as ``%audit on`` does. Landlock confines the whole process
behind it, with what the kernel itself needs: its ports, and IPython's files.
"""

import argparse
import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import AuditPerms
from .options import AUDIT, line_of, magic_parser, policy_of
from .run_command import wrong

if TYPE_CHECKING:
    from .notebook import Permissions

DESCRIPTION = """\
Install a kernel for Jupyter whose cells run under a policy from the start. A cell cannot end it.
"""

EPILOG = """\
Without options cells can read everything, and write, reach and start nothing. The policy in FILE is
read as a kernel starts, and relative directories are below the notebook's. Where the system has
Landlock, it holds the policy for native code and programs too.
"""

#: What a kernel's process runs: the modules that it imports are none of the notebook's directory.
START = f"import sys; sys.path[:] = filter(None, sys.path); from {__name__} import main; main()"


def install(options: argparse.Namespace) -> int:
    """Install the kernel; return the exit status."""
    name = options.name
    try:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
            raise ValueError(f"--name takes letters, digits, '.', '_' and '-', not {name!r}")
        if options.policy is not None:
            options.policy = os.path.abspath(options.policy)
        policy_of(options)
    except (OSError, ValueError) as error:
        return wrong(error)
    import json
    import tempfile
    from importlib.util import find_spec

    if find_spec("ipykernel") is None:
        return wrong("kernel needs ipykernel: pip install ipykernel")
    from jupyter_client.kernelspec import KernelSpecManager

    prefix = sys.prefix if options.sys_prefix else options.prefix
    shown = options.display_name or f"Python ({name})"
    # The line that installs it, but for the options of cells: hints add to it.
    line = ["fastaudit-rs", "kernel", "install", "--name", name]
    if options.display_name:
        line += ["--display-name", shown]
    if prefix is not None:
        line += ["--sys-prefix"] if options.sys_prefix else ["--prefix", os.path.abspath(prefix)]
    spec = {
        "argv": [
            *(sys.executable, "-c", START),
            *("-f", "{connection_file}", "--line", shlex.join(line)),
            *shlex.split(line_of("", options)),
        ],
        "display_name": shown,
        "language": "python",
        "metadata": {"debugger": False},
    }
    try:
        with tempfile.TemporaryDirectory() as made:
            with open(os.path.join(made, "kernel.json"), "w", encoding="utf-8") as file:
                json.dump(spec, file, indent=1)
            where = KernelSpecManager().install_kernel_spec(
                made, name, user=prefix is None, prefix=prefix
            )
    except OSError as error:
        return wrong(error)
    print(f"Installed the kernel {shown!r} in {where}; restart those that run")
    return 0


def main(words: Sequence[str] | None = None) -> None:
    """Run the kernel of a connection file, which Jupyter wrote, until it is shut down."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-f", required=True, dest="file")
    parser.add_argument("--line", required=True)
    own, options = parser.parse_known_args(words)
    from . import notebook

    parsed = magic_parser(AUDIT, own.line).parse_args(options)
    permissions = notebook.Permissions(own.line, parsed)
    why = _confine(permissions, own.file)
    held = "the guard and the kernel's Landlock" if why is None else f"the guard alone: {why}"
    print(f"fastaudit-rs: cells run under a policy, held by {held}", file=sys.stderr)

    from ipykernel.kernelapp import IPKernelApp
    from traitlets.config import Config

    config = Config()
    # The file of the history of all notebooks could not be written.
    config.HistoryManager.hist_file = ":memory:"
    app: Any = IPKernelApp.instance(config=config)
    app.initialize(["-f", own.file])
    # Its own is files that could not be written, where `%cd` keeps directories.
    app.shell.db = _Database()
    notebook.load_ipython_extension(app.shell)
    notebook.hold(app.shell, permissions)
    app.start()


class _Database(dict[str, Any]):
    """What IPython keeps of a session, for this one alone."""

    def keys(self, pattern: str = "*") -> Any:
        import fnmatch

        return fnmatch.filter(list(self), pattern)


def _confine(permissions: "Permissions", file: str) -> str | None:
    """Confine the process; return the reason why it is not."""
    import json
    import tempfile

    from IPython.core.profiledir import ProfileDir
    from IPython.paths import get_ipython_dir

    from ..confined import confinement

    with open(file, encoding="utf-8") as text:
        connection = json.load(text)
    policy, ports = permissions.policy, []
    if policy.write is not None:
        policy = policy.replace(write=[*map(_existing, policy.write)])
    if connection.get("transport", "tcp") == "tcp":
        # And any port that is free: programs of cells send their output there.
        ports = [0, *(port for name, port in connection.items() if name.endswith("_port"))]
    elif policy.write is not None:
        policy = policy.replace(write=[*policy.write, os.path.dirname(connection["ip"])])
    # `tempfile` tries the directory that it finds, and IPython makes its own, while they can.
    tempfile.gettempdir()
    ProfileDir.create_profile_dir_by_name(get_ipython_dir(), "default")
    places = [get_ipython_dir(), file]
    try:
        assert isinstance(permissions.make, AuditPerms)
        directory = permissions.make._temporary_directory()
        confinement(policy, directory, sys.path, places, ports).enter_process()
    except (OSError, RuntimeError) as error:
        return str(error)
    return None


def _existing(place: str) -> str:
    """Return the place, or the directory that it will be made in: Landlock knows what is there.

    The guard holds the place itself.
    """
    place = os.path.abspath(place)
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    return place
