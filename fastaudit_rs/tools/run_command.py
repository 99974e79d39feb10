"""``fastaudit-rs run``: a program in this process, or in a sandbox, and how it ends."""

import argparse
import atexit
import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from .. import AuditDenied, Policy
from ..programs import (
    BY_A_SIGNAL,
    DENIED,
    RUNNERS,
    TIMED_OUT,
    directory_of,
    own_traceback,
    prepare,
    source_of,
)
from .denials import denial_in, in_one_line, lines
from .options import limits_of, open_sandbox, policy_of, sandbox_rules

if TYPE_CHECKING:
    from ..approvals import Answer
    from ..results import Result
    from ..sandbox.limits import Limits

#: The time for a program that took too long to end by itself, in seconds.
PATIENCE = 1.0

#: The address space beyond its own that a program needs at least, in bytes.
SPARE = 64 << 20

#: The most seconds that a timer is asked for: ten years.
LONGEST = 3e8

#: Signals that are passed on to the program.
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

#: The number of lines for denials that the program swallowed, and of denials kept for them.
MOST, KEPT = 5, 1000

#: The code that starts the program in a sandbox.
CODE = """\
from fastaudit_rs.programs import prepare
prepare({kind!r}, {program!r}, {source!r})()
"""


def run(options: argparse.Namespace) -> int:
    if options.tmp is not None:
        options.tmp = os.path.expanduser(options.tmp)
        options.write = [*options.write, options.tmp]
    try:
        if options.tmp is not None and not os.path.isdir(options.tmp):
            raise ValueError(f"--tmp: there is no directory {options.tmp}")
        if options.sandbox:
            return _run_in_sandbox(options)
        policy, limits = _reading_itself(policy_of(options), options), None
        if options.timeout is not None or options.memory is not None:
            limits = limits_of(options)
            _check_memory(limits)
        if options.approvable is not None:
            raise ValueError("--approvable needs --sandbox: elsewhere an answer opens what it says")
        program = prepare(options.kind, options.program)
    except (OSError, ValueError) as error:
        return wrong(error)
    if limits is not None and limits.wall_seconds is not None:
        _run_until(limits.wall_seconds)
    if limits is not None and limits.memory is not None:
        _bound(int(limits.memory))
    if options.tmp is not None:
        _name_temporary_directory(options.tmp)
    if policy.imports is not True:
        # The interpreter shows the error at the end with it.
        import traceback  # noqa: F401
    ending = Ending()
    person = _person(options) if options.ask else None
    # The process is the program's alone, so that the policy holds until its end.
    with warnings.catch_warnings(record=True) as warned:
        try:
            on_ask = _on_ask(options, person)
            policy.install(on_denied=ending.note, on_ask=on_ask, log=options.log)
        except (OSError, ValueError) as error:
            return wrong(error)
    for warning in warned:
        print(str(warning.message).replace("fastaudit_rs", "fastaudit-rs", 1), file=sys.stderr)
    return exit_status(program, ending)


def _reading_itself(policy: Policy, options: argparse.Namespace) -> Policy:
    """Let a program read its own file, as a process does that a pool of it spawns."""
    if policy.read is None or options.kind in ("-c", "-m") or options.program[0] == "-":
        return policy
    return policy.replace(read=[*policy.read, options.program[0]])._told_in("options")


def wrong(error: Exception | str) -> int:
    """Say why nothing was run; return the exit status."""
    print(f"fastaudit-rs: {error}", file=sys.stderr)
    return 2


def exit_on_signals() -> None:
    """Have the signals of a supervisor and a closed terminal end this command by `SystemExit`.

    It removes its directories then.
    """
    process = os.getpid()

    def end(number: int, frame: object) -> None:
        if os.getpid() == process:
            raise SystemExit(BY_A_SIGNAL + number)
        # Code made a copy of this process, which ends as elsewhere.
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        # `nohup` has it ignore one.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


def exit_status(program: Callable[[], object], ending: "Ending | None" = None) -> int:
    """Run the program; `SystemExit` and `KeyboardInterrupt` pass."""
    try:
        program()
    except SystemExit:
        raise
    except KeyboardInterrupt as error:
        _show_later(own_traceback(error, (__file__, *RUNNERS)))
        raise
    except BaseException as error:
        error.__traceback__ = own_traceback(error, (__file__, *RUNNERS))
        if ending is None:
            _show(error)
        else:
            # A traceback shows lines of files that the program itself may not read.
            ending.error, ending.listens = error, False
            _show(error)
            ending.listens = True
        return DENIED if isinstance(error, AuditDenied) else 1
    return 0


def _show_later(own: TracebackType | None) -> None:
    """Have the interpreter print the error that ends it without the frames of this command."""
    hook = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
        error.__traceback__ = own
        hook(kind, error, own)

    sys.excepthook = show


def _show(error: BaseException) -> None:
    """Print the error as the interpreter would; the program may have its own way."""
    import traceback

    try:
        # Since 3.13 it has colours on a terminal; before, it does not know the lines of `-c`.
        if sys.excepthook is sys.__excepthook__ and sys.version_info < (3, 13):
            traceback.print_exception(error)
        else:
            sys.excepthook(type(error), error, error.__traceback__)
    except Exception:
        traceback.print_exception(error)


def _on_ask(
    options: argparse.Namespace, person: "Callable[[AuditDenied], Answer] | None"
) -> Callable[[AuditDenied], object] | None:
    """Return the ``on_ask`` of these options, with its module only where somebody is asked."""
    if person is None and options.approvals is None:
        return None
    from . import asking

    return asking.on_ask(options, person)


def _person(options: argparse.Namespace) -> "Callable[[AuditDenied], Answer] | None":
    """Return the question to whoever sits at the terminal; ``None`` if there is none."""
    from . import asking

    try:
        return asking.Terminal(options.approvals)
    except OSError as error:
        reason = error.strerror or error
        print(
            f"fastaudit-rs: --ask: nobody is asked, there is no terminal: {reason}", file=sys.stderr
        )
        return None


class Ending:
    """Reports the denials of a program that the error at its end does not show."""

    def __init__(self) -> None:
        """Report after the functions that the program registers with `atexit`, which run before."""
        self.denials: list[AuditDenied] = []
        self.error: BaseException | None = None
        #: True if denials are the program's.
        self.listens = True
        self._process = os.getpid()
        atexit.register(self.tell)

    def note(self, denied: AuditDenied) -> None:
        if self.listens and len(self.denials) < KEPT:
            # The raised exception has a traceback, which would keep the program's objects alive.
            self.denials.append(denied._denial.exception())

    def tell(self) -> None:
        """Report them, in a line each. A copy of the process reports nothing."""
        if os.getpid() != self._process:
            return
        with contextlib.suppress(AttributeError, OSError, ValueError):
            sys.stdout.flush()
        _tell(self.denials, self.error)
        self.error = None


def _tell(denials: Sequence[AuditDenied], error: BaseException | None = None) -> None:
    """Report denials that an error does not show. One that caused it has a line, for its hint."""
    denied = denial_in(error)
    told = [] if denied is None or denied is error else [f"denied: {in_one_line(denied)}"]
    own = (each for each in denials if not _is_bytecode(each))
    told += lines(own, error, most=MOST, head="denied: ")
    with contextlib.suppress(AttributeError, OSError, ValueError):
        for line in told:
            print(f"fastaudit-rs: {line}", file=sys.stderr)


def _is_bytecode(denied: AuditDenied) -> bool:
    """Tell whether an import was denied its cache. It does as well without."""
    return "__pycache__" in (denied.path or "").split(os.sep)


def _check_memory(limits: "Limits") -> None:
    """Raise `ValueError` if a limit leaves no address space for a program: proc_pid_statm(5)."""
    with open("/proc/self/statm") as file:
        least = int(file.read().split()[0]) * os.sysconf("SC_PAGESIZE") + SPARE
    if limits.memory is not None and int(limits.memory) < least:
        raise ValueError(f"--memory is too small: a program needs {least >> 20}M here at least")


def _bound(size: int) -> None:
    """Bound the memory of this process, and of its children, in bytes."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        size = min(size, hard)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _name_temporary_directory(path: str) -> None:
    import tempfile

    os.environ["TMPDIR"] = tempfile.tempdir = os.path.abspath(path)


def _run_until(seconds: float) -> None:
    """Go on in a copy of this process; the process itself waits, and exits as the copy does.

    After this time it ends the copy, whatever it is doing.
    """
    # A signal that comes meanwhile waits, and is passed on.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    child = os.fork()
    if child:
        _pass_on(child)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if child == 0:
        return
    # The second one, if the first does not end it.
    ends = [signal.SIGTERM, signal.SIGKILL]

    def end(number: int, frame: object) -> None:
        if len(ends) == 2:
            _tell_of_timeout(seconds)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, ends.pop(0))

    signal.signal(signal.SIGALRM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.setitimer(signal.ITIMER_REAL, min(seconds, LONGEST))
    _, status = os.waitpid(child, 0)
    if len(ends) < 2:
        os._exit(TIMED_OUT)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        # The parent of this process sees the outcome of the program.
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else BY_A_SIGNAL - code)


def _tell_of_timeout(seconds: float) -> None:
    print(f"fastaudit-rs: ended after {seconds:g} s (--timeout)", file=sys.stderr, flush=True)


def _pass_on(child: int) -> None:
    """Pass signals on from now. A terminal sends its keys' signals to both."""

    def pass_on(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)


def _run_in_sandbox(options: argparse.Namespace) -> int:
    """Run a program in a sandbox, and show its output when it has ended."""
    from .. import SandboxError
    from ..sandbox.host.policies import absolute

    exit_on_signals()
    rules, approvable = sandbox_rules(options), _approvable(options)
    if options.tmp is not None:
        raise ValueError("--tmp: a sandbox has a directory of its own for temporary files")
    on_ask = _person(options) if options.ask else None
    kind, program, here = options.kind, options.program, os.getcwd()
    try:
        source = source_of(kind, program)
        given = b""
        if program[0] != "-" and sys.stdin is not None and not sys.stdin.isatty():
            given = sys.stdin.buffer.read()
        with open_sandbox(
            rules,
            path=[directory_of(kind, program) or here],
            on_ask=on_ask,
            approvable=None if approvable is None else absolute(approvable, here),
            log=options.log,
        ) as sandbox:
            # The program begins here, and not in the directory of the sandbox.
            sandbox._cwd = here
            code = CODE.format(kind=kind, program=program, source=source)
            result = sandbox.run(code, stdin=given)
        return _show_result(result, rules[1])
    except SandboxError as error:
        return wrong(error)
    except KeyboardInterrupt:
        # The frames are ours, not the program's.
        print("fastaudit-rs: interrupted", file=sys.stderr)
        return BY_A_SIGNAL + signal.SIGINT


def _approvable(options: argparse.Namespace) -> Policy | None:
    """Return the most that answers may open in a sandbox; ``None`` if it is not to ask."""
    if options.approvals is not None:
        raise ValueError(
            "--approvals does not reach into a sandbox: the program words the questions there, and "
            "the file would keep its words"
        )
    if not options.ask:
        if options.approvable is not None:
            raise ValueError("--approvable needs --ask")
        return None
    if options.approvable is None:
        raise ValueError(
            "--ask --sandbox needs --approvable FILE: the kernel holds the policy whatever is "
            "answered, unless a policy in FILE says how much answers may open"
        )
    return Policy.from_toml(options.approvable)


def _show_text(text: str, stream: TextIO) -> None:
    """Show output of the program, with escapes for characters that the stream cannot have."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _show_result(result: "Result", limits: "Limits") -> int:
    with contextlib.suppress(BrokenPipeError):
        _show_text(result.stdout, sys.stdout)
        sys.stdout.flush()
    _show_text(result.stderr, sys.stderr)
    _tell([denied for denied in result.violations if denied.message not in result.stderr])
    if result.timed_out and limits.wall_seconds is not None:
        _tell_of_timeout(limits.wall_seconds)
        return TIMED_OUT
    if result.killed_by is not None:
        print(f"fastaudit-rs: ended by the limit on {result.killed_by}", file=sys.stderr)
    return result.returncode if result.returncode >= 0 else BY_A_SIGNAL - result.returncode
