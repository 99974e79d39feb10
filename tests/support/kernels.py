"""A real IPython kernel, for tests: what cells print, show and raise."""

import contextlib
import os
import re
import sys
from dataclasses import dataclass, field
from typing import Any

from jupyter_client.manager import KernelManager

ANSI = re.compile(r"\x1b\[[0-9;]*m")
TIMEOUT = 60


@dataclass
class Ran:
    """The outcome of a cell."""

    status: str = ""
    out: str = ""
    err: str = ""
    #: The traceback as it is shown, without colours.
    error: str = ""
    #: The displayed data, by type.
    data: list[dict[str, Any]] = field(default_factory=list)

    @property
    def value(self):
        """The value of the cell's last expression, as text."""
        return self.data[-1]["text/plain"] if self.data else None


class Kernel:
    """A kernel in a process of its own, of this Python or of another."""

    def __init__(self, cwd, env, python=sys.executable, argv=None):
        self.manager = KernelManager(kernel_name="python3")
        self.manager.kernel_spec.argv[0] = python
        if argv is not None:
            self.manager.kernel_spec.argv = argv
        self.manager.start_kernel(cwd=str(cwd), env=env)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=TIMEOUT)

    def __call__(self, code, stdin=None, **options) -> Ran:
        """Run a cell; `stdin` is what `input()` returns."""
        request = self.client.execute(code, allow_stdin=stdin is not None, **options)
        if stdin is not None:
            self.client.get_stdin_msg(timeout=TIMEOUT)
            self.client.input(stdin)
        return self.finish(request)

    def finish(self, request) -> Ran:
        """Wait for a cell that was sent."""
        ran = Ran()
        while True:
            message = self.client.get_iopub_msg(timeout=TIMEOUT)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            if kind == "stream" and content["name"] == "stdout":
                ran.out += ANSI.sub("", content["text"])
            elif kind == "stream":
                ran.err += ANSI.sub("", content["text"])
            elif kind == "error":
                ran.error += ANSI.sub("", "\n".join(content["traceback"]))
            elif kind in ("execute_result", "display_data", "update_display_data"):
                ran.data.append(content["data"])
        ran.status = self.reply(request)["status"]
        return ran

    def wait_for_output(self, request):
        """Wait until a cell that was sent has printed something; returns it."""
        while True:
            message = self.client.get_iopub_msg(timeout=TIMEOUT)
            is_of_cell = message["parent_header"].get("msg_id") == request
            if is_of_cell and message["msg_type"] == "stream":
                return message["content"]["text"]

    def reply(self, request):
        """The content of the reply to a request on the shell's channel."""
        while True:
            message = self.client.get_shell_msg(timeout=TIMEOUT)
            if message["parent_header"].get("msg_id") == request:
                return message["content"]

    def stop(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def home_of(path):
    """The variables of a user who has never run IPython, with this directory."""
    home = str(path)
    return {
        "HOME": home,
        "IPYTHONDIR": f"{home}/ipython",
        "JUPYTER_RUNTIME_DIR": f"{home}/runtime",
        "MPLCONFIGDIR": f"{home}/matplotlib",
        "PYTHONWARNINGS": "",
    }


@contextlib.contextmanager
def started(cwd, env=None, python=sys.executable, argv=None):
    """A kernel, until the end of the block; `argv` starts another one than IPython's."""
    kernel = Kernel(cwd, env or {**os.environ, **home_of(cwd)}, python, argv)
    try:
        yield kernel
    finally:
        kernel.stop()
