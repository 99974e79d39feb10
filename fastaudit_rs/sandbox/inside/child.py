"""A process of a sandbox that runs the code, under its policy."""

import _io
import _pickle as pickle
import atexit
import binascii
import contextlib
import gc
import importlib
import json
import linecache
import os
import resource
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

from ... import AuditDenied, AuditLog, Policy
from ..._native import _Child, _govern
from ...programs import (
    DENIED,
    RUNNERS,
    exit_status,
    explain_semaphores,
    line_of,
    own_traceback,
    parts,
)
from ...sessions.forms import TEXT, class_name, message, told as last_line
from ..wire import DENIALS, REPORT, Job

if TYPE_CHECKING:
    from ...sessions.shown import Shown

#: PyCF_ALLOW_TOP_LEVEL_AWAIT and CO_COROUTINE, whose modules take long to import.
_AWAIT, _COROUTINE = 0x2000, 0x80

#: The bytes of the report that are kept for saying that there is no value.
ERROR = 1 << 12


def run(
    child: _Child, policy: Policy, most: Policy | None, job: Job, descriptors: list[int]
) -> NoReturn:
    """Run a job, and end with its status.

    The kernel holds `most`, whatever the host answers. The descriptors are standard input, output
    and error, the one for its report, and where it has them those for its questions and its log.
    """
    status = 1
    try:
        log = _log(descriptors.pop()) if job.logs else None
        streams, (report, *asked) = descriptors[:3], descriptors[3:]
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        if job.session:
            from .session import serve

            status = serve(child, _begin(job), policy, most, job, report, log)
        else:
            status = program(policy, job, report, *asked, most=most, log=log)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        child.end(status)


def _begin(job: Job) -> dict[str, Any]:
    """Set the limits and the `__main__` of a run or a session; return the names of that."""
    if job.cpu_seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (job.cpu_seconds, job.cpu_seconds + 1))
    if job.disk is not None:
        # The signal ends the process: Python ignores it otherwise.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (job.disk, job.disk))
    module = type(sys)("__main__")
    names = vars(module)
    names["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    sys.argv = [job.file, *job.args]
    sys.path[:0] = [os.getcwd(), *job.path]
    _reseed()
    return names


def program(
    policy: Policy,
    job: Job,
    report: int,
    asked: int | None = None,
    *,
    most: Policy | None = None,
    log: AuditLog | None = None,
) -> int:
    """Run a job from its beginning to its end; return its exit status."""
    os.set_inheritable(report, False)
    names = _begin(job)
    names["__file__"] = job.file
    told = _Report(report)

    def tell(denied: AuditDenied) -> None:
        told.denials += 1
        if told.denials <= DENIALS:
            told.write({"denied": denied.to_dict()}, of_copies=True)

    if job.cwd is not None:
        os.chdir(job.cwd)
    ask = None
    if asked is not None:
        from .channel import HostChannel
        from .tools import HostTool, asking

        channel = HostChannel(asked)
        ask = asking(channel, most) if job.asks else None
        names.update((one["name"], HostTool(channel, one)) for one in job.tools)
    _remember_lines(job)
    _import_ahead(job)
    policy.install(on_denied=tell, on_ask=ask, log=log)
    status, shown = 0, _shown(names) if job.value else None
    value, began = None, time.monotonic()
    try:
        try:
            if job.command is not None:
                from .command import start

                status = start(job.command)
            else:
                value = _run(job, names)
        finally:
            told.write({"ran": (began, time.monotonic())})
        if shown is not None:
            shown.add(value)
            shown.figures()
            told.write_display(shown.end())
            told.write_value(value)
    except SystemExit as end:
        status = exit_status(end.code)
    except BaseException as error:
        # Only its type is trusted: attributes of the code's exceptions can be anything.
        status = DENIED if issubclass(type(error), AuditDenied) else 1
        formatted = _formatted(error, () if job.cwd is None else (job.file,))
        if shown is not None:
            with contextlib.suppress(BaseException):
                shown.figures()
                told.write_display(shown.end())
        told.write_error(error, formatted, job.file)
        with contextlib.suppress(BaseException):
            sys.stderr.write(formatted)
    value = None
    _end_program(names)
    if log is not None:
        log.flush()
    return status


def in_container() -> NoReturn:
    """Run the job in the directory that is the argument, and end with its status."""
    place = sys.argv[1]
    with open(f"{place}/job", "rb") as file:
        policy, governing, job = pickle.load(file)
    for each in governing:
        _govern(each)
    given = os.open(f"{place}/input", os.O_RDONLY)
    os.dup2(given, 0)
    os.close(given)
    report = os.open(f"{place}/report", os.O_WRONLY | os.O_APPEND)
    sys.exit(program(policy, job, report))


def _run(job: Job, names: dict[str, Any]) -> object:
    """Run the code; return the value of its last expression, if that is wanted."""
    if job.variables:
        from ...sessions.values import unpack

        names.update(unpack(job.variables, own=True))
    wanted = job.value
    compiled = parts(job.code, job.file, flags=_AWAIT, wanted=lambda _: wanted)
    if any(part.co_flags & _COROUTINE for part in compiled):
        from ...sessions.step import Loop, awaited

        loop = Loop()
        try:
            value = loop.run(awaited(compiled, names))
        finally:
            loop.close()
        return value if wanted else None
    value = None
    for part in compiled:
        value = eval(part, names)
    return value


def _formatted(error: BaseException, starter: tuple[str, ...]) -> str:
    """The traceback as Python prints it, without the files that run the code."""
    try:
        error.__traceback__ = own_traceback(error, (__file__, *RUNNERS, *_runners(), *starter))
        explain_semaphores(error)
        return "".join(traceback.format_exception(error))
    except BaseException:
        return f"{last_line(error)}\n"


def _runners() -> list[str]:
    """The files that run code which awaits something at its top level, and another program."""
    loop = sys.modules.get("asyncio.base_events")
    step = sys.modules.get(f"{__name__.partition('.sandbox')[0]}.sessions.step")
    command = sys.modules.get(f"{__package__}.command")
    starters = [] if command is None else command.STARTERS
    return [str(module.__file__) for module in (loop, step) if module is not None] + [*starters]


def _import_ahead(job: Job) -> None:
    """Import what running the job takes: it is no import of the code, which its policy may deny."""
    needs = {
        ".command": job.command is not None,
        "...sessions.shown": job.value,
        "...sessions.step": "await" in job.code,
        "...sessions.values": bool(job.variables),
    }
    for name in filter(needs.get, needs):
        importlib.import_module(name, __package__)


def _remember_lines(job: Job) -> None:
    """Have tracebacks show lines of the code, whether or not its file can be read here."""
    lines = job.code.splitlines(keepends=True)
    linecache.cache[job.file] = (len(job.code), None, lines, job.file)


def _shown(names: dict[str, Any]) -> "Shown":
    from ...sessions.shown import Shown

    shown = Shown()
    shown.begin()
    names["display"] = shown.display
    return shown


def _log(descriptor: int) -> AuditLog:
    log = AuditLog._of_guest(descriptor)
    os.close(descriptor)
    return log


class _Report:
    """A run's report on itself, as long as the host reads it.

    Of the processes that it copies itself to, only denials are told.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._process = os.getpid()
        self._room = REPORT
        #: The number of denials, also of those that are not told.
        self.denials = 0

    def write(self, line: dict[str, object], *, of_copies: bool = False) -> int:
        """Write a line if there is room for it and an error; return its length if not."""
        data = json.dumps(line).encode() + b"\n"
        if len(data) > self._room - ERROR:
            return len(data)
        self._room -= len(data)
        self._put(data, of_copies)
        return 0

    def _put(self, data: bytes, of_copies: bool = False) -> None:
        if of_copies or os.getpid() == self._process:
            # The code may have closed it, as a daemon closes all.
            with contextlib.suppress(OSError):
                os.write(self._descriptor, data)

    def write_error(self, error: BaseException, formatted: str, file: str) -> None:
        found = {
            "kind": class_name(type(error)),
            "message": message(error),
            "traceback": formatted[:TEXT],
            "line": line_of(error, file),
        }
        self.write({"error": found})

    def write_display(self, shown: list[dict[str, str | bytes]]) -> None:
        """Write what the code has shown, as far as there is room."""
        for most in (len(shown), 0) if shown else ():
            found = [
                {
                    mime: data if isinstance(data, str) else [_base64(data)]
                    for mime, data in thing.items()
                }
                for thing in shown[:most] or [{"text/plain": "(left out: too large)"}]
            ]
            if not self.write({"display": found}):
                return

    def write_value(self, value: object) -> None:
        """Write the value if JSON can hold it, else its `repr()`, else why it cannot be told."""
        try:
            try:
                too_long = self.write({"value": value})
            except (TypeError, ValueError, RecursionError):
                too_long = self.write({"value": repr(value)})
            error = ""
            if too_long:
                error = f"too large: {too_long / (1 << 20):.1f} MB of JSON, of at most 16 MB"
        except BaseException as failed:
            error = last_line(failed)
        if error:
            self._put(json.dumps({"value_error": error[: ERROR // 16]}).encode() + b"\n")


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _reseed() -> None:
    """Make each run draw its own random numbers: `random` reseeds itself."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()


def _end_program(names: dict[str, Any]) -> None:
    """Do the work of the interpreter's end, as far as a program can tell.

    Wait for threads, call functions registered with `atexit`, release the program's objects, and
    flush its files and streams.
    """
    wait_for_threads = vars(threading)["_shutdown"]
    for step in (wait_for_threads, atexit._run_exitfuncs, _flush, names.clear, gc.collect, _flush):
        try:
            step()
        except BaseException as error:
            traceback.print_exception(error)


def _flush() -> None:
    """Flush files of the program, which the worker did not have."""
    files = [found for found in gc.get_objects() if issubclass(type(found), _io._IOBase)]
    streams: list[Any] = [getattr(sys, name, None) for name in ("stdout", "stderr")]
    for file in (*files, *streams):
        with contextlib.suppress(Exception):
            if not file.closed:
                file.flush()
