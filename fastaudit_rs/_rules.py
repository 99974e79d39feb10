"""What code may do, as a short text for a model: the rules of a policy, limits, the directory."""

from collections.abc import Iterable

from . import Policy
from ._text import printable, valid
from .confined import USERS

#: The names that are told of each rule.
MOST = 10

DENIED = """\
Everything else raises PermissionError, each time it is tried: do it another way,
or tell the user the setting that the error names."""


def rules_for_model(
    policy: Policy,
    *,
    directory: str | None = None,
    is_sandbox: bool = False,
    seconds: float | None = None,
    memory: int | str | None = None,
) -> str:
    """Tell the rules that code of a model meets most.

    Args:
        policy: The policy of the code.
        directory: The working directory; ``None`` if it is not known yet.
        is_sandbox: True if the code has a directory of its own, which it may write to.
        seconds: The limit of time of a step.
        memory: The limit of memory, in bytes or as a text.
    """
    own = "the working directory"
    write, read = policy.write, policy.read
    if is_sandbox:
        write = None if write is None else (".", *write)
        read = (".", *(read or ()))
    told = [f"- Working directory: {printable(directory)}"] if directory is not None else []
    told.append(f"- Write files in: {_paths(write, directory, own)}")
    python = "installed packages, "
    told.append(f"- Read files in: {_paths(read, directory, own, '' if read is None else python)}")
    told.append(f"- Network: {_network(policy)}")
    told.append(f"- Start programs: {_names(policy.commands, 'any', 'none')}")
    if is_sandbox and policy.commands and "/" not in (read or ()):
        # The kernel alone holds them, which opens what the C library needs.
        files = f"user names ({', '.join(USERS)})"
        told.append(f"- Programs read besides: the files of programs and libraries, {files}")
    imports = policy.imports["allow"] if isinstance(policy.imports, dict) else policy.imports
    if imports is not True:
        told.append(f"- Import modules: {_names(imports, 'any', 'none')}")
    limits = [f"{seconds:g} seconds a call"] if seconds is not None else []
    limits += [f"{_size(memory)} of memory"] if memory is not None else []
    if limits:
        told.append(f"- Limits: {', '.join(limits)}")
    return valid("\n".join(["The code may:", *told, DENIED]))


def _paths(paths: tuple[str, ...] | None, directory: str | None, own: str, more: str = "") -> str:
    if paths is None:
        return "any directory"
    told = [own if path == "." or path == directory else printable(path) for path in paths]
    told = [*dict.fromkeys(told)]
    return f"{more}{_listed(told)}" if told else more.removesuffix(", ") or "none"


def _network(policy: Policy) -> str:
    network = policy.network
    if isinstance(network, bool):
        return "any host" if network else "none"
    return _names(True if network.hosts is None else network.hosts, "any host", "none")


def _names(given: bool | Iterable[str], all_: str, none: str) -> str:
    if isinstance(given, bool):
        return all_ if given else none
    return _listed([printable(name) for name in given]) or none


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more


def _size(memory: int | str) -> str:
    if isinstance(memory, str):
        return memory
    return f"{memory / (1 << 30):.3g} GB" if memory >= 1 << 30 else f"{memory / (1 << 20):.3g} MB"
