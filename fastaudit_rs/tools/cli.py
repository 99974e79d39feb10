"""The command ``fastaudit-rs``: Python programs under a policy, from the shell."""

import argparse
import contextlib
import functools
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

from .. import Network, Policy, Recording, __version__
from ..programs import (
    BY_A_SIGNAL,
    DENIED,
    TIMED_OUT,
    exit_status as status_of,
    prepare,
    split,
    start_again,
)
from . import kernel, mcp_command, run_command, serve_command
from .options import (
    ANY,
    KERNEL,
    LEARN,
    LOG,
    MCP,
    RUN,
    SERVE,
    TRACE,
    add_options,
    hinted,
    options_of,
    policy_of,
)
from .run_command import exit_on_signals, exit_status, wrong

DESCRIPTION = "Run Python programs under a policy, from the shell."

#: The commands that run a program, and what follows their options.
PROGRAM = "(-m MODULE | -c CODE | SCRIPT | -) [ARGS...]"

VERIFIES = """\
Check the chain of hashes of a log of decisions. The exit status is 0 if it holds, 1 if it is
broken, and 2 if it cannot be read.
"""

EPILOG = f"""\
All that follows the module, the code or the script belongs to the program. DIR, HOST, CMD and NAME
may be given more than once; '{ANY}' stands for all of them. Without --read everything can be read;
without the others nothing is written, reached or started. They add to what the policy in FILE
allows, where --set sets a field as a whole. The exit status is the program's own, {DENIED} for a
denial that nobody caught, and {TIMED_OUT} where --timeout ended it.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser(words[0] if words else None)
    commands = _commands(parser)
    own = commands.get(words[0]) if words else None
    if own is None and words and not words[0].startswith("-"):
        from .._near import near

        guess = near(words[0], commands)
        parser.error(
            f"there is no command {words[0]!r}"
            + (f" (did you mean {guess}?)" if guess else f": there are {', '.join(commands)}")
        )
    if own is None or not own.get_default("runs"):
        options = _parse(parser, words)
    else:
        known = own._option_string_actions.items()
        line = split(words[1:], {name for name, action in known if action.nargs != 0})
        options = _parse(parser, [words[0], *line.interpreter, *line.own])
        if not line.program:
            own.error("name a script, or -m, -c or -")
        if line.interpreter and getattr(options, "sandbox", False):
            own.error("-u, -O, -W and -X do not reach into a sandbox")
        if line.interpreter:
            program = [line.kind or "--", *line.program]
            start_again(line.interpreter, [words[0], *line.own, *program])
        options.kind, options.program = line.kind, line.program
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        status = command(options)
        if own is None or not own.get_default("runs"):
            sys.stdout.flush()
    except BrokenPipeError:
        # Who reads the output has left, as `head` does. The interpreter flushes it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return BY_A_SIGNAL + signal.SIGPIPE
    return status


def _parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    options, unknown = parser.parse_known_args(words)
    if unknown:
        own = _commands(parser).get(words[0], parser)
        own.error(hinted(own, f"unrecognized arguments: {' '.join(unknown)}"))
    return options


def _parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser; `only` this command has its options, if it is one."""
    # A formatter checks options, and looks up the width of the terminal, which takes longer.
    quick = functools.partial(argparse.HelpFormatter, width=80)
    parser = argparse.ArgumentParser(
        prog="fastaudit-rs", description=DESCRIPTION, allow_abbrev=False, formatter_class=quick
    )
    parser.add_argument("--version", action="version", version=f"fastaudit-rs {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", prog=parser.prog)

    def add(
        name: str, command: Callable[[argparse.Namespace], int], text: str, **more: Any
    ) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name, help=text, allow_abbrev=False, formatter_class=quick, **more
        )
        made.set_defaults(command=command)
        if only in (None, name):
            add_options(made, name)
        return made

    _add_program(add(RUN, run_command.run, "run a program under a policy", epilog=EPILOG))
    _add_program(add(LEARN, _learn, "run a program and print the policy that it needs"))
    _add_program(add(TRACE, _trace, "run a program and show what it touched", epilog=EPILOG))
    more = {"description": mcp_command.DESCRIPTION, "epilog": mcp_command.EPILOG}
    text = "serve a tool that runs Python, by the Model Context Protocol"
    add(MCP, mcp_command.run, text, **more)
    more = {"description": serve_command.DESCRIPTION, "epilog": serve_command.EPILOG}
    add(SERVE, serve_command.run, "serve a sandbox over HTTP, as in a pod of Kubernetes", **more)
    more = {"description": kernel.DESCRIPTION, "epilog": kernel.EPILOG}
    made = add(
        KERNEL,
        kernel.install,
        "install a kernel for Jupyter that runs cells under a policy",
        **more,
    )
    made.add_argument("action", choices=["install"])
    more = {"description": VERIFIES}
    made = add(LOG, _log, "check the chain of hashes of a log of decisions", **more)
    made.add_argument("action", choices=["verify"])
    text = "the log; of one that was emptied to go on: the copies and the log, in their order"
    made.add_argument("file", nargs="+", metavar="FILE", help=text)
    add("doctor", _doctor, "say what can be enforced here")
    completion = add("completion", _completion, "print the completion of this command for a shell")
    completion.add_argument("shell", choices=["bash", "zsh", "fish", "tcsh"])
    for each in (parser, *_commands(parser).values()):
        each.formatter_class = argparse.HelpFormatter
    return parser


def _add_program(parser: argparse.ArgumentParser) -> None:
    """Describe the program to a parser; `split` takes it off before."""
    parser.usage = f"{parser.prog} [options] {PROGRAM}"
    parser.set_defaults(runs=True)
    python = parser.add_argument_group("options of the interpreter that runs the program")
    python.add_argument("-u", action="store_true", help="do not buffer its output")
    python.add_argument("-O", action="count", help="run it without assertions; -OO: nor docstrings")
    python.add_argument("-W", action="append", metavar="ARG", help="control its warnings")
    python.add_argument("-X", action="append", metavar="OPT", help="such as dev or importtime")
    program = parser.add_argument_group("the program")
    program.add_argument("-m", metavar="MODULE", help="run a module")
    program.add_argument("-c", metavar="CODE", help="run this code")
    program.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT",
        help="run a file of Python code; '-' for standard input",
    )


def _learn(options: argparse.Namespace) -> int:
    output = options.output
    try:
        before = _learned_before(output)
        program = prepare(options.kind, options.program)
        # What the program prints is kept apart from the policy.
        target = _printed_apart() if output is None else _writable(output)
    except (OSError, ValueError) as error:
        return wrong(error)
    recording = (before or Policy()).observe()()
    status = _recorded(recording, program)
    learned = recording.suggest() if before is None else merged(before, recording)
    with open(target, "w", encoding="utf-8") as file:
        if status:
            file.write(f"# Perhaps not all of it: the program ended with the status {status}.\n")
        if _had_workers(recording):
            file.write("# Without what other processes did that the program made of itself.\n")
        file.write(learned.to_toml())
    if before is not None:
        added = "nothing" if learned == before else "what this run needs"
        print(f"fastaudit-rs: added {added} to {output}", file=sys.stderr)
    return status


def _had_workers(recording: Recording) -> bool:
    """Return whether Python code ran in other processes too, which nothing recorded."""
    events = {effect.event for effect in recording.effects}
    # Workers that multiprocessing starts are programs for an audit hook.
    starts = "_posixsubprocess.fork_exec" in events and "multiprocessing.util" in sys.modules
    return starts or not events.isdisjoint(("os.fork", "os.forkpty"))


def _printed_apart() -> str | int:
    """Return the standard output; what is printed goes to the standard error from now on."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return kept


def _writable(file: str) -> str:
    """Return the path of a file to be written after the program, which may change the directory.

    It is made then: a program that does not end here leaves no empty policy.
    """
    path = os.path.abspath(file)
    was_there = os.path.lexists(path)
    open(path, "a").close()
    if not was_there:
        os.remove(path)
    return path


def _learned_before(file: str | None) -> Policy | None:
    """Return the policy in a file that will be overwritten with another one."""
    if file is None or not os.path.exists(file) or not os.path.getsize(file):
        return None
    if os.path.basename(file) == "pyproject.toml":
        raise ValueError(f"{file} has more than a policy: write it to a file of its own")
    return Policy.from_toml(file)


def _trace(options: argparse.Namespace) -> int:
    import tempfile

    from . import trace

    try:
        policy = policy_of(options)
        program = prepare(options.kind, options.program)
        page = None if options.html is None else _writable(options.html)
    except (OSError, ValueError) as error:
        return wrong(error)
    command, here = shlex.join(sys.argv), os.getcwd()
    with tempfile.TemporaryDirectory(prefix="fastaudit-rs-") as directory:
        log = os.path.join(directory, "log")
        recording = policy.observe(log=log)()
        begun = time.time()
        status = _recorded(recording, program)
        seconds = time.time() - begun
        with open(log, encoding="utf-8") as lines:
            touched = trace.read(lines, recording, begun, here)
    needed = options_of(recording, options), recording.never_allowed
    told = trace.Trace(command, status, seconds, touched, recording.dropped, *needed)
    # The program's own output comes first, where both go to the same place.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stdout.flush()
    (trace.write_all if options.all else trace.write_table)(told, sys.stderr)
    if page is not None:
        with open(page, "w", encoding="utf-8") as file:
            file.write(trace.page(told))
    return status


def _recorded(recording: Recording, program: Callable[[], object]) -> int:
    """Run a program to its end, by a signal too: what it did until then is recorded."""
    process = os.getpid()
    exit_on_signals()
    with recording:
        try:
            status = exit_status(program)
        except SystemExit as end:
            status = status_of(end.code)
        except KeyboardInterrupt:
            status = BY_A_SIGNAL + signal.SIGINT
        if os.getpid() != process:
            # In a copy that the program made: the first process reports the recording.
            raise SystemExit(status)
    return status


def _doctor(options: argparse.Namespace) -> int:
    from . import doctor

    return doctor.report(sys.stdout)


def _log(options: argparse.Namespace) -> int:
    from . import log_command

    return log_command.run(options)


def _completion(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        return wrong(ImportError("completion needs shtab: pip install 'fastaudit-rs[shell]'"))
    parser = _parser()
    kinds = {"DIR": shtab.DIR, "FILE": shtab.FILE, "SCRIPT": shtab.FILE}
    if options.shell not in shtab.SUPPORTED_SHELLS:
        upgrade = f"{options.shell} needs a newer shtab: pip install --upgrade shtab"
        return wrong(ImportError(upgrade))
    for command in _commands(parser).values():
        for action in command._actions:
            if action.metavar in kinds:
                action.complete = kinds[action.metavar]  # type: ignore[attr-defined]
    print(shtab.complete(parser, options.shell))
    return 0


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    [commands] = (
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    return dict(commands.choices)


def script() -> NoReturn:
    sys.exit(main())


# Policies that grow with each run of a program.


def merged(before: Policy, recording: Recording) -> Policy:
    """The least policy that allows the operations of a policy and of a recording under it."""
    new = recording.suggest()
    exceeded = {done.verdict for done in recording.effects}
    return new.replace(
        write=_outermost(_both(before.write, new.write)),
        read=_outermost(_both(before.read, new.read)),
        commands=_both(before.commands, new.commands),
        env=_both(before.env, new.env),
        import_allow=_both(before.import_allow, new.import_allow),
        native=_both(before.native, new.native),
        packages=_both(before.packages, new.packages),
        threads="deny" if before.threads == new.threads == "deny" else "inherit",
        max_bytes=None if "max_bytes" in exceeded else before.max_bytes,
        on_violation=before.on_violation,
        network=_network(before.network, new.network, exceeded),
    )


def _both(one: Any, other: Any) -> Any:
    """Return both values of a field, of which three stand for everything, ``False`` for nothing."""
    for everything in ("unjudged", True, None):
        if everything in (one, other):
            return everything
    return tuple(dict.fromkeys((*(one or ()), *(other or ())))) or one


def _outermost(places: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the places without those below another one."""
    if places is None:
        return None
    return tuple(place for place in places if not any(_is_below(place, each) for each in places))


def _is_below(place: str, other: str) -> bool:
    return os.path.isabs(other) and place.startswith(other.rstrip("/") + "/") and place != other


def _network(
    before: bool | Network, new: bool | Network, exceeded: Collection[str]
) -> bool | Network:
    if isinstance(before, bool) or isinstance(new, bool):
        return before is True or new is True or before or new
    hosts_have_ports = all(map(_has_port, new.hosts or ()))
    keeps_ports = hosts_have_ports and "network.ports" not in exceeded
    return Network(
        hosts=_both(before.hosts, new.hosts),
        block=() if "network.block" in exceeded else before.block,
        ports=before.ports if keeps_ports else new.ports,
        listen=_both(before.listen, new.listen),
        unix=_both(before.unix, new.unix),
        lookup=before.lookup or new.lookup,
        max_connections=None if "network.max_connections" in exceeded else before.max_connections,
        http=before.http,
    )


def _has_port(host: str) -> bool:
    return host.count(":") == 1 or "]:" in host
