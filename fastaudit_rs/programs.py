"""Programs that are run under a policy."""

import _ast
import contextlib
import errno
import linecache
import os
import re
import sys
import types
from collections.abc import Callable, Collection, Sequence
from types import CodeType, TracebackType
from typing import Any, NamedTuple

#: The exit status for a denial that nobody caught: ``EX_NOPERM`` of sysexits.h(3).
DENIED = 77

#: The exit status for a program that took too long: that of timeout(1).
TIMED_OUT = 124

#: The exit status for a program that a signal ended, and the number of the signal more.
BY_A_SIGNAL = 128

#: The file of the code that runs a program.
RUNNERS = (__file__, os.path.join(os.path.dirname(os.__file__), "runpy.py"), "<frozen runpy>")

#: The module whose locks are semaphores with names.
_SEMAPHORES = os.path.join("multiprocessing", "synchronize.py")

#: Options of the interpreter that runs the program; with a value if a group of it exists.
_OF_INTERPRETER = re.compile(r"-(?=.)[uO]*(?:[WX](.*))?", re.DOTALL)


class CommandLine(NamedTuple):
    """The arguments of a command that runs a program."""

    own: list[str]
    interpreter: list[str]
    #: ``-m``, ``-c``, or nothing before a script.
    kind: str
    #: The module, code or script, and the program's arguments.
    program: list[str]


def split(arguments: Sequence[str], with_value: Collection[str]) -> CommandLine:
    """Separate the options of a command from the program that follows them.

    As for the ``python`` command, all that follows ``-m MODULE``, ``-c CODE`` or a script belongs
    to the program.

    Examples:
        >>> split(["--write", ".", "-m", "venv", "--help"], {"--write"})
        CommandLine(own=['--write', '.'], interpreter=[], kind='-m', program=['venv', '--help'])
    """
    own: list[str] = []
    interpreter: list[str] = []
    kind, program = "", []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            program = rest
            break
        if word == "-" or not word.startswith("-"):
            program = [word, *rest]
            break
        if word[:2] in ("-m", "-c") and (len(word) > 2 or rest):
            kind = word[:2]
            program = [word[2:], *rest] if len(word) > 2 else rest
            break
        of_interpreter = _OF_INTERPRETER.fullmatch(word)
        options = own if of_interpreter is None else interpreter
        options.append(word)
        takes = word in with_value if of_interpreter is None else of_interpreter[1] == ""
        if takes and rest:
            options.append(rest.pop(0))
    return CommandLine(own, interpreter, kind, program)


def start_again(interpreter: Sequence[str], arguments: Sequence[str]) -> None:
    """Replace this interpreter by another, with these options.

    The start of this one stays: its own options, and the command that it runs.
    """
    entry = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv[1:])]
    os.execv(sys.executable, [sys.executable, *interpreter, *entry, *arguments])


def source_of(kind: str, program: list[str]) -> str | bytes:
    """The code of a program; empty for a module."""
    if kind == "-m":
        return ""
    if kind == "-c":
        return program[0]
    if program[0] == "-":
        return sys.stdin.read()
    if os.path.isdir(program[0]):
        # Its `__main__.py` is run.
        return ""
    with open(program[0], "rb") as file:
        return file.read()


def directory_of(kind: str, program: list[str]) -> str:
    """Return where Python first looks for modules of a program; empty for the current directory."""
    if kind == "-m":
        return os.getcwd()
    return (
        "" if kind == "-c" or program[0] == "-" else os.path.dirname(os.path.realpath(program[0]))
    )


def prepare(
    kind: str, program: list[str], source: str | bytes | None = None
) -> Callable[[], object]:
    """Make a program ready to be run as ``__main__``, with its arguments in ``sys.argv``."""
    code = source_of(kind, program) if source is None else source
    target, *arguments = program
    is_safe = getattr(sys.flags, "safe_path", sys.flags.isolated)
    if is_whole := kind == "" and (os.path.isdir(target) or _is_archive(code)):
        # Its own modules are looked for in it, whatever directory is the current one then.
        sys.path[: not is_safe] = [os.path.abspath(target)]
    elif not is_safe:
        # Modules are looked for there, and no longer where the interpreter found this command.
        sys.path[0] = directory_of(kind, program)
    sys.argv = program if kind != "-c" else ["-c", *arguments]
    if kind == "-m" or is_whole:
        import runpy

        sys.modules["__main__"] = types.ModuleType("__main__")
        name = target if kind == "-m" else "__main__"
        return lambda: runpy._run_module_as_main(name, kind == "-m")  # type: ignore[attr-defined]
    if kind == "-c":
        # Tracebacks show its lines, and not those of other code from text.
        lines = str(code).splitlines(keepends=True)
        linecache.cache["<string>"] = (len(code), None, lines, "<string>")
        return _main_module(code, "<string>")
    if target == "-":
        return _main_module(code, "<stdin>")
    path = os.path.abspath(target)
    if _is_compiled(code):
        import runpy

        return lambda: runpy.run_path(target, run_name="__main__")
    return _main_module(code, path, __file__=path)


def _is_archive(code: str | bytes) -> bool:
    """Tell whether it is the content of an archive of modules (zipapp)."""
    return isinstance(code, bytes) and b"PK\x05\x06" in code[-(1 << 16) :]


def _is_compiled(code: str | bytes) -> bool:
    """Tell whether it is the content of a compiled module."""
    from importlib._bootstrap_external import MAGIC_NUMBER

    return isinstance(code, bytes) and code.startswith(MAGIC_NUMBER)


def _main_module(source: str | bytes, name: str, **names: object) -> Callable[[], object]:
    module = types.ModuleType("__main__")
    vars(module).update(names, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    return lambda: exec(compile(source, name, "exec", dont_inherit=True), vars(module))


def own_traceback(error: BaseException, runners: Collection[str]) -> TracebackType | None:
    """Return the traceback of the program, without the files of its runner."""
    part = error.__traceback__
    while part is not None and part.tb_frame.f_code.co_filename in runners:
        part = part.tb_next
    return part


def parts(
    code: str, file: str, *, flags: int = 0, wanted: Callable[[Any], bool] = lambda _: True
) -> list[CodeType]:
    """Compile code in two parts, the last of which has the value of its last expression."""
    tree: Any = compile(code, file, "exec", _ast.PyCF_ONLY_AST | flags, dont_inherit=True)
    trees = [(tree, "exec")]
    last = tree.body[-1] if tree.body else None
    if isinstance(last, _ast.Expr) and wanted(last):
        tree.body.pop()
        trees.append((_ast.Expression(last.value), "eval"))
    return [compile(each, file, mode, flags, dont_inherit=True) for each, mode in trees]


def explain_semaphores(error: BaseException) -> None:
    """Add what locks of processes need to the error where the kernel lets none be made."""
    # Python 3.11 has notes. Attributes of the code's own exceptions can be anything.
    if type(error) is not PermissionError or sys.version_info < (3, 11):
        return
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    file = "" if traceback is None else traceback.tb_frame.f_code.co_filename
    if error.errno == errno.EACCES and file.endswith(_SEMAPHORES):
        error.add_note(
            "Locks, queues and pools of multiprocessing are files in /dev/shm, which this sandbox "
            "may not write. Threads need none; the host allows it with write=['.', '/dev/shm']."
        )


def exit_status(code: Any) -> int:
    """The exit status that the interpreter makes of ``SystemExit.code``; a text is shown."""
    if code is None:
        return 0
    if issubclass(type(code), int):
        return int.__and__(code, 255) if int.bit_length(code) < 64 else 255
    with contextlib.suppress(BaseException):
        print(code, file=sys.stderr)
    return 1


def line_of(error: BaseException, file: str) -> int | None:
    """The line of a file where an exception was raised last, or that is no code.

    ``None`` if there is none, or the exception's class raises as it is looked for.
    """
    import traceback

    with contextlib.suppress(BaseException):
        if isinstance(error, SyntaxError) and error.filename == file:
            return error.lineno if type(error.lineno) is int else None
        frames = traceback.walk_tb(error.__traceback__)
        lines = [line for frame, line in frames if frame.f_code.co_filename == file]
        return lines[-1] if lines else None
    return None
