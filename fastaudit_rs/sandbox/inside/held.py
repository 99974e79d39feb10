"""What a sandbox's process puts on itself: limits, the lack of privileges, and its job."""

import os
import resource
import signal
import sys
from typing import Any

from ... import Policy
from ..._native import _Children
from ..wire import Job, KernelPart


def hold(children: _Children, policy: Policy, held: KernelPart) -> None:
    """Put them on this process, and on those that it starts, for good."""
    for number, most in held["limits"].items():
        _, greatest = resource.getrlimit(number)
        if greatest != resource.RLIM_INFINITY:
            most = min(most, greatest)
        resource.setrlimit(number, (most, most))
    if held["confined"]:
        children.confine(policy, held["memory_files"])


def begin(job: Job) -> dict[str, Any]:
    """Make this process the one of a run, or of a session; return the names of its `__main__`.

    It gets the limits that its worker does not have.
    """
    if job["cpu_seconds"] is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (job["cpu_seconds"], job["cpu_seconds"] + 1))
    if job["disk"] is not None:
        # The signal ends the process: Python ignores it otherwise.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["disk"], job["disk"]))
    module = type(sys)("__main__")
    names = vars(module)
    names["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    sys.argv = [job["file"], *job["args"]]
    sys.path[:0] = [os.getcwd(), *job["path"]]
    return names
