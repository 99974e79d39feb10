"""The options of the command and of the magics: a row of one table for each.

They are permissions in the manner of a shell, ``--write DIR``, ``--net HOST`` and so on, limits,
and what the one command or the one magic has. Hints and traces are worded in them.
"""

import argparse
import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from .. import Network, Policy, Recording
from .._native import _directory
from ..programs import TIMED_OUT

if TYPE_CHECKING:
    from ..sandbox.host.sandbox import Sandbox
    from ..sandbox.limits import Limits

#: The word for everything where a place, host, program or variable is named.
ANY = "any"

#: The policy where none is given: that of a workspace, but without writing and the network.
DEFAULT = Policy.preset("workspace").replace(write=[], network=False)

#: The seconds that a step of a server may take, and the sessions that it may have, by default.
SECONDS, SESSIONS = "60", 16

#: Where options are: the commands of the shell, and the magics of the notebook.
RUN, TRACE, LEARN, MCP, SERVE = "run", "trace", "learn", "mcp", "serve"
KERNEL, LOG = "kernel", "log"
AUDIT, SANDBOX = "%%audit", "%%sandbox"
EACH = (RUN, TRACE, MCP, SERVE, KERNEL, AUDIT, SANDBOX)

#: The arguments of `argparse` for an option that may be given more than once.
MANY: Mapping[str, Any] = {"action": "append", "default": []}


class Once(argparse.Action):
    """An option that may be given once: of two the first would count for nothing."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} may be given once")
        setattr(namespace, self.dest, values)


class Option(NamedTuple):
    names: str
    #: The commands and magics that have it.
    on: tuple[str, ...]
    #: The name of its value; ``None`` for a switch.
    metavar: str | None
    text: str
    #: More arguments of `argparse`.
    more: Mapping[str, Any] | None = None
    #: The field of a policy that it adds to.
    adds_to: str | None = None
    #: True if a guard or a sandbox begins with it: the line that begins it has it.
    lasts: bool = False

    @property
    def name(self) -> str:
        return max(self.names.split(), key=len).lstrip("-").replace("-", "_")


#: In the order of the help texts.
TABLE = (
    Option("--all", (TRACE,), None, "show all, in the order of time"),
    Option("--html", (TRACE,), "FILE", "write a page with a timeline to this file"),
    Option("--write", EACH, "DIR", "a directory that may be written", MANY, "write", True),
    Option(
        "--read", EACH, "DIR", "a directory that may be read, and no others", MANY, "read", True
    ),
    Option("--net", EACH, "HOST[:PORT]", "a host that may be reached", MANY, "network.hosts", True),
    Option(
        "--listen", EACH, "[HOST:]PORT", "an address of this machine that may be listened at",
        MANY, "network.listen", True,
    ),
    Option("--run", EACH, "CMD", "a program that may be started", MANY, "commands", True),
    Option(
        "--env", EACH, "NAME", "an environment variable that may be set, such as PATH",
        MANY, "env", True,
    ),
    Option(
        "--set", EACH, "FIELD=VALUE", "a field of the policy, its value as in TOML",
        MANY, lasts=True,
    ),
    Option(
        "--policy", EACH, "FILE", "a policy in TOML, or a pyproject.toml", {"action": Once},
        lasts=True,
    ),
    Option(
        "--memory", (SANDBOX,), "SIZE", "the memory that it may use; 2G by default", lasts=True
    ),
    Option(
        "--timeout", (RUN,), "SECONDS", f"end it after this time; the status is {TIMED_OUT}"
    ),
    Option(
        "--timeout", (MCP, SERVE), "SECONDS",
        f"end a call's code after this time; {SECONDS} by default", {"default": SECONDS},
    ),
    Option("--timeout", (SANDBOX,), "SECONDS", "end this cell after the time"),
    Option("--memory", (RUN,), "SIZE", "address space of each of its processes"),
    Option("--memory", (MCP, SERVE), "SIZE", "memory of a sandbox; 2G by default"),
    Option("--tmp", (RUN,), "DIR", "directory for its temporary files"),
    Option(
        "--ask", (RUN, AUDIT), None, "ask before an operation is denied, where one can", lasts=True
    ),
    Option(
        "--approvals", (RUN, AUDIT), "FILE",
        "what was answered with 'always': add to it, obey it", lasts=True,
    ),
    Option(
        "--approvable", (RUN,), "FILE",
        "with --sandbox and --ask: a policy in TOML, the most that answers may open",
    ),
    Option("--sandbox", (RUN,), None, "run it in a process that the kernel confines"),
    Option("--log", (RUN,), "FILE", "add each decision to this file, as JSON"),
    Option("--expect", (LOG,), "HASH", "a hash that was kept elsewhere: that line must be there"),
    Option(
        "-o --output", (LEARN,), "FILE",
        "write the policy to this file, and add to the one that it has",
    ),
    Option(
        "--sandbox", (MCP,), None,
        "run code in a process that the kernel confines; or in this process, under a guard",
        {"action": argparse.BooleanOptionalAction, "default": True},
    ),
    Option(
        "--directory", (MCP,), "DIR",
        "with --no-sandbox: where code begins; files that it changes there are told",
    ),
    Option(
        "--http", (MCP,), "[HOST:]PORT",
        "serve at this address of the loopback, for several clients; 0 is any free port",
    ),
    Option(
        "--sessions", (MCP,), "N",
        f"with --http: the sessions that there may be at a time; {SESSIONS} by default",
        {"type": int, "default": SESSIONS},
    ),
    Option(
        "--http", (SERVE,), "[HOST:]PORT", "serve at this address; 127.0.0.1:8888 by default",
        {"default": "127.0.0.1:8888"},
    ),
    Option("--token-file", (SERVE,), "FILE", "a file with the token that clients send"),
    Option(
        "--sessions", (SERVE,), "N",
        f"the sessions that are open at a time; {SESSIONS} by default",
        {"type": int, "default": SESSIONS},
    ),
    Option(
        "--confine", (SERVE,), "HOW",
        "'require' refuses to start where the kernel cannot hold the policy, as inside gVisor; "
        "'prefer' goes on, and says what is not held",
        {"choices": ["require", "prefer"], "default": "require"},
    ),
    Option(
        "--name", (KERNEL,), "NAME", "the name of the kernel; guarded by default",
        {"default": "guarded"},
    ),
    Option("--display-name", (KERNEL,), "TEXT", "the name that Jupyter shows"),
    Option("--prefix", (KERNEL,), "DIR", "install it below this directory, not for the user alone"),
    Option("--sys-prefix", (KERNEL,), None, "install it in the environment of this Python"),
    Option("--record", (AUDIT,), None, "stop nothing, and show the operations afterwards"),
    Option("--all", (AUDIT,), None, "with --record: show all of it"),
    Option("-i", (SANDBOX,), "NAME", "a name of the notebook to copy in", MANY),
    Option("-o", (SANDBOX,), "NAME", "a name of the sandbox to copy out", MANY),
    Option("--reset", (SANDBOX,), None, "begin anew, with the permissions of this line"),
    Option("--help -h", (AUDIT, SANDBOX), None, "show this, and run nothing"),
)  # fmt: skip


def add_options(parser: argparse.ArgumentParser, surface: str) -> None:
    for option in TABLE:
        if surface in option.on:
            kind: dict[str, Any] = {"action": "store_true"}
            if option.metavar is not None:
                kind = {"metavar": option.metavar}
            if option.metavar == "FILE":
                # No shell expands it in a magic, nor in the configuration of a server.
                kind["type"] = os.path.expanduser
            kind |= option.more or {}
            parser.add_argument(*option.names.split(), help=option.text, **kind)


def hinted(parser: argparse.ArgumentParser, message: str) -> str:
    """The message of a parser with the nearest option to one that it does not have."""
    from .._near import near

    options = parser._option_string_actions
    named = re.findall(r"(?<!\S)-[\w-]+", message)
    found = (near(name, options) for name in named if name not in options)
    if not named and message.startswith("unrecognized arguments: "):
        message += " (an option takes one value: repeat it for each)"
    return message + "".join(f" (did you mean {option}?)" for option in found if option)


def policy_of(options: argparse.Namespace) -> Policy:
    """The policy of the options, which its hints name. Their directories are resolved now."""
    policy = DEFAULT if options.policy is None else Policy.from_toml(options.policy)
    for text in options.set:
        try:
            policy = policy.replace(**_field(text))
        except ValueError as error:
            reason = str(error).removeprefix("the policy: ")
            raise ValueError(f"--set {shlex.quote(text)}: {reason}") from None
    changes: dict[str, Any] = {"write": _places("write", policy.write, options.write)}
    if options.read:
        changes["read"] = _places("read", policy.read or (), options.read)
    if options.env:
        # `True` stands for all variables that do no harm, and so does a star.
        changes["env"] = _more(("*",) if policy.env is True else policy.env, options.env)
    if options.run:
        changes["commands"] = _more(policy.commands, options.run)
    try:
        if options.net or options.listen:
            changes["network"] = _network(policy.network, options.net, options.listen)
        return policy.replace(**changes)._told_in("options")
    except ValueError as error:
        raise ValueError(_of_option(str(error))) from None


def _of_option(message: str) -> str:
    """The message about a field, ``commands[0] must …``, as one about the option for it."""
    field, _, rest = message.partition("[")
    names = (option.names for option in TABLE if option.adds_to == field)
    return next((f"{name} {rest.partition('] ')[2]}" for name in names), message)


def _field(text: str) -> dict[str, Any]:
    """The field of a policy that is set, and its value."""
    field, _, value = map(str.strip, text.partition("="))
    if value.isidentifier() and value not in ("true", "false"):
        # A word of text, whose quotes the shell took.
        value = f'"{value}"'
        text = f"{field} = {value}"
    found = Policy.parse_toml(text)
    if field.isidentifier():
        return {field: getattr(found, field)}
    whole, _, rest = field.partition(".")
    if whole.isidentifier():
        raise ValueError(f"write --set {shlex.quote(f'{whole}={{{rest}={value}}}')}")
    raise ValueError("""write a field and its value, such as --set 'write=["out"]'""")


def _places(option: str, allowed: tuple[str, ...] | None, paths: list[str]) -> list[str] | None:
    if allowed is None or ANY in paths:
        return None
    for path in paths:
        if not path:
            raise ValueError(f"--{option} takes a directory, not an empty text")
        if "," in path and not os.path.exists(path):
            each = " ".join(f"--{option} {shlex.quote(part)}" for part in path.split(","))
            raise ValueError(f"--{option} takes one directory: write {each}")
    here = _directory()
    whole = (os.path.join(here, os.path.expanduser(path)) for path in paths)
    return [*allowed, *map(os.path.normpath, whole)]


def _more(allowed: bool | tuple[str, ...], names: list[str]) -> bool | list[str]:
    if allowed is True or ANY in names:
        return True
    return [*(allowed or ()), *names] or False


def _network(allowed: bool | Network, hosts: list[str], listen: list[str]) -> bool | Network:
    if allowed is True or ANY in hosts:
        return True
    before = Network(hosts=[], listen=False) if allowed is False else allowed
    return changed(
        before,
        hosts=None if before.hosts is None else [*before.hosts, *hosts],
        listen=_more(before.listen, [_address(text) for text in listen]),
    )


def changed(network: Network, **fields: Any) -> Network:
    return Network(**network.__getnewargs_ex__()[1] | fields)


def _address(text: str) -> str:
    """Return an address to listen at: a port alone stands for all addresses."""
    return f"*:{text}" if text.replace("-", "").isdigit() else text


def limits_of(options: argparse.Namespace) -> "Limits":
    """Return the limits of the options; no limit for those that they do not name."""
    from ..sandbox.limits import Limits

    seconds = None
    if options.timeout is not None:
        try:
            seconds = float(options.timeout)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            raise ValueError(f"--timeout takes seconds, such as 30 or 0.5, not {options.timeout}")
    try:
        return Limits(memory=options.memory, wall_seconds=seconds)
    except ValueError:
        raise ValueError(f"--memory takes a size such as 512M, not {options.memory}") from None


def sandbox_rules(options: argparse.Namespace) -> tuple[Policy, "Limits"]:
    """Return the policy and the limits of a sandbox: paths are those of this process."""
    from dataclasses import replace

    from ..sandbox.host.policies import absolute
    from ..sandbox.limits import Limits

    limits, policy = limits_of(options), policy_of(options)
    if ANY in options.read:
        # A sandbox reads what its policy names.
        policy = policy.replace(read=["/"])
    limits = replace(limits, memory=limits.memory or Limits().memory)
    return absolute(policy, os.getcwd()), limits


def open_sandbox(rules: tuple[Policy, "Limits"], line: str = "", **more: Any) -> "Sandbox":
    """Start a sandbox whose denials name options to add to a line; its own hints are for Python."""
    from ..sandbox.host.causes import PREFER
    from ..sandbox.host.sandbox import Sandbox
    from ..sessions.errors import SandboxError

    for path in rules[0].write or ():
        if not os.path.exists(os.path.expanduser(path)):
            # The system confines by what is there: code could not make it.
            raise ValueError(f"--write {path}: there is no such file or directory; make it first")
    try:
        sandbox = Sandbox(*rules, **more)
    except SandboxError as error:
        raise SandboxError(str(error).removesuffix(PREFER)) from None
    sandbox._setup.word("sandbox options", sandbox.policy, line)
    return sandbox


def lasting(options: argparse.Namespace) -> dict[str, Any]:
    """The options that a guard or a sandbox begins with, by their names."""
    names = {option.name for option in TABLE if option.lasts}
    return {name: value for name, value in vars(options).items() if name in names}


def line_of(head: str, options: argparse.Namespace) -> str:
    """The same after other words of a line, as a shell would read them."""
    given = lasting(options)
    parts = [head]
    for option in TABLE:
        value = given.pop(option.name, None) if option.lasts else None
        for each in value if isinstance(value, list) else [value]:
            if each:
                word = f"--{option.name}"
                parts += [word] if option.metavar is None else [word, shlex.quote(each)]
    return " ".join(parts)


def allowances(policy: Policy) -> str:
    """Describe a policy in a sentence: ``write /srv/out, reach no host, …``."""
    network = policy.network
    hosts = network.hosts if isinstance(network, Network) else None if network else ()
    commands = None if policy.commands is True else policy.commands or ()
    parts = [
        f"write {_named(policy.write, 'anywhere', 'nothing')}",
        f"reach {_named(hosts, 'any host', 'no host')}",
        f"start {_named(commands, 'any program', 'no program')}",
    ]
    if policy.read is not None:
        parts.insert(0, f"read {_named(policy.read, 'anything', 'nothing')}")
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _named(names: tuple[str, ...] | None, everything: str, nothing: str) -> str:
    if names is None:
        return everything
    return " or ".join(names) or nothing


def needed_for(verdict: str, event: str) -> str:
    """The option, or else the field of a policy, that an event lacks; empty if it is allowed."""
    if verdict == "allowed":
        return ""
    field = verdict
    if verdict == "network":
        field = "network.listen" if event == "socket.bind" else "network.hosts"
    return next((option.names for option in TABLE if option.adds_to == field), verdict)


def would_allow(never: Sequence[str], options: str | None, line: str) -> str | None:
    """Say what would allow a recording, after these words of a line; ``None`` if it is allowed."""
    if never:
        return f"Nothing would allow {', '.join(never)}"
    return None if options is None else f"{line} {options} would allow it"


def options_of(recording: Recording, given: argparse.Namespace) -> str | None:
    """Return the options that would allow a recording; ``None`` if these do, or if none can.

    Fields that no option can say, such as ``block``, are left out.
    """
    if given.policy is not None or all(done.verdict == "allowed" for done in recording.effects):
        return None
    needed = recording.suggest()
    parts: list[str] = []
    for option in TABLE:
        if option.adds_to is None:
            continue
        if option.adds_to == "read" and not given.read:
            # It restricts what is free without it.
            continue
        value: Any = needed
        for name in option.adds_to.split("."):
            value = getattr(value, name, None)
        if isinstance(value, tuple):
            if option.adds_to == "env":
                value = filter(_is_closed, value)
            parts += [f"{option.names} {_quoted(each)}" for each in value]
    return " ".join(parts) or None


def _is_closed(variable: str) -> bool:
    """Tell whether a variable is not free without options."""
    return not DEFAULT.explain("os.putenv", os.fsencode(variable), b"").allowed


def _quoted(word: str) -> str:
    """The word as a shell reads it, and without characters that act on a terminal."""
    if word.isprintable():
        return shlex.quote(word)
    letters = (
        letter
        if letter.isprintable() and letter not in "\\'"
        else "".join(f"\\{byte:03o}" for byte in os.fsencode(letter))
        for letter in word
    )
    return f"$'{''.join(letters)}'"


# The options of the magics ``%%audit`` and ``%%sandbox``: reading, help, completion.

DESCRIPTIONS = {
    AUDIT: "Guard code, so that it does no accidental damage: it writes, reaches and starts "
    "nothing but what the options name; 'any' stands for all.",
    SANDBOX: "Run a cell in a sandbox: a process that the kernel confines. It writes, reaches and "
    "starts nothing but what the options name; 'any' stands for all. It has a directory of its "
    "own. Names last to the next %%sandbox.",
}

HELP = ("--help", "-h")

VERBS: tuple[str, ...] = ("on", "off")


class MagicParser(argparse.ArgumentParser):
    """A parser whose errors name the nearest option and show the usage."""

    def error(self, message: str) -> NoReturn:
        from IPython.core.error import UsageError

        raise UsageError(f"{hinted(self, message)}\n{self.format_usage().strip()}")


def magic_parser(magic: str, prog: str | None = None) -> argparse.ArgumentParser:
    made = MagicParser(
        prog=prog or magic, description=DESCRIPTIONS[magic], allow_abbrev=False, add_help=False
    )
    add_options(made, magic)
    return made


def words_of(line: str) -> list[str]:
    """The words of a magic's line; ``{name}`` and ``$name`` stand for variables of the notebook.

    Nothing is evaluated: a cell may have made what an expression would call.
    """
    from pathlib import Path

    from IPython import get_ipython

    names = get_ipython().user_ns

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        own = names.get(name)
        if type(own) is str or type(own) is type(Path()):
            return str(own)
        if found[2] and name in os.environ:
            return os.environ[name]
        raise ValueError(f"{found[0]}: there is no text or path of this name")

    return [re.sub(r"\{(\w+)\}|\$(\w+)", value, word) for word in shlex.split(line)]


def asks_for_help(line: str) -> bool:
    return any(word in HELP for word in line.split())


def completions(line: str, word: str) -> list[str]:
    """The words that can follow in the line of a magic, where this one begins."""
    magic, *words = line.split() or [""]
    whole = magic if magic.startswith("%%") else f"%{magic}"
    if whole not in DESCRIPTIONS:
        return []
    if word and words:
        words.pop()
    options = magic_parser(whole)._option_string_actions
    before = options.get(words[-1]) if words else None
    if before is not None and before.nargs != 0:
        # The value of an option: files above all, which IPython completes itself.
        return []
    first = VERBS if magic == "%audit" and not words else ()
    return [each for each in (*first, *sorted(options)) if each.startswith(word)]
