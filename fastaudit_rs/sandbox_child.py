"""What runs in the process of a sandbox: the code, under its policy.

Started by `sandbox.py` in a process that the kernel confines already. Standard input begins with
the job; the rest of it is the program's.
"""

import ast
import json
import os
import pickle
import sys
import traceback
import types
from dataclasses import dataclass
from typing import Any

from . import AuditDenied, Policy
from .permissions import MONITORING
from .programs import DENIED, own_traceback

#: How many denials are told.
TOLD = 1000


@dataclass
class Job:
    """What is to be run."""

    policy: Policy
    code: str
    file: str
    args: tuple[str, ...]
    #: Whether the value of the last expression is wanted.
    value: bool
    cpu_seconds: int | None
    #: The file where it tells what was denied.
    report: str


def main() -> None:
    """Run the job on standard input, and end with its status."""
    job = _read()
    report = os.open(job.report, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    if job.cpu_seconds is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (job.cpu_seconds, job.cpu_seconds + 1))
    told = 0

    def tell(denied: AuditDenied) -> None:
        nonlocal told
        told += 1
        if told <= TOLD:
            _write(report, {"denied": denied.to_dict()})

    module = types.ModuleType("__main__")
    vars(module).update(__builtins__=__builtins__, __file__=job.file)
    sys.modules["__main__"] = module
    sys.argv = [job.file, *job.args]
    sys.path.insert(0, os.getcwd())
    job.policy.install(monitor_calls=MONITORING, on_denied=tell)
    status = 0
    try:
        value = _run(job, vars(module))
        if job.value:
            _write(report, {"value": _plain(value)})
    except SystemExit as end:
        if isinstance(end.code, int) or end.code is None:
            status = end.code or 0
        else:
            print(end.code, file=sys.stderr)
            status = 1
    except BaseException as error:
        error.__traceback__ = own_traceback(error, (__file__,))
        traceback.print_exception(error)
        status = DENIED if isinstance(error, AuditDenied) else 1
    sys.exit(status)


def _read() -> Job:
    size = int.from_bytes(_exactly(8), "big")
    job = pickle.loads(_exactly(size))
    assert isinstance(job, Job)
    return job


def _exactly(count: int) -> bytes:
    """So many bytes of standard input, and not one more."""
    parts = b""
    while len(parts) < count:
        part = os.read(0, count - len(parts))
        if not part:
            raise EOFError("there is no job on standard input")
        parts += part
    return parts


def _run(job: Job, names: dict[str, Any]) -> object:
    """Run the code; the value of its last expression, if that is wanted."""
    tree = ast.parse(job.code, job.file)
    last = tree.body[-1] if tree.body else None
    if job.value and isinstance(last, ast.Expr):
        tree.body.pop()
    exec(compile(tree, job.file, "exec"), names)
    if job.value and isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), job.file, "eval"), names)
    return None


def _plain(value: object) -> object:
    """The value if JSON can hold it, else its `repr()`."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _write(report: int, line: dict[str, object]) -> None:
    os.write(report, json.dumps(line).encode() + b"\n")
