"""Permissions as options, in the manner of a shell: ``--write DIR``, ``--net HOST`` and so on.

The shell's command and the notebook's magic take the same ones, and word hints in them.
"""

import argparse
import os
import shlex
from typing import Any

from .. import Network, Policy, Recording

#: The word for everything where a place, host, program or variable is named.
ANY = "any"

#: The policy where none is given: that of a workspace, but without writing and the network.
DEFAULT = Policy.preset("workspace").replace(write=[], network=False)

OPTIONS = (
    ("write", "DIR", "a directory that may be written"),
    ("read", "DIR", "a directory that may be read, and no others"),
    ("net", "HOST[:PORT]", "a host that may be reached"),
    ("listen", "[HOST:]PORT", "an address of this machine that may be listened at"),
    ("run", "CMD", "a program that may be started"),
    ("env", "NAME", "an environment variable that may be set, and no others"),
    ("set", "FIELD=VALUE", "a field of the policy, its value as in TOML"),
)

#: The option for a field of the policy.
_OPTION_OF = {"write": "write", "read": "read", "commands": "run", "env": "env"}
_NETWORK = ("network", "network.hosts")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    for name, metavar, text in OPTIONS:
        parser.add_argument(f"--{name}", metavar=metavar, action="append", default=[], help=text)
    parser.add_argument("--policy", metavar="FILE", help="a policy in TOML, or a pyproject.toml")


def policy_of(options: argparse.Namespace) -> Policy:
    """Return the policy of the options. Their directories are resolved now.

    Hints name the options to add.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not a policy, or an option does not name a host or a field.
    """
    policy = DEFAULT if options.policy is None else Policy.from_toml(options.policy)
    for text in options.set:
        field = text.partition("=")[0].strip()
        policy = policy.replace(**{field: getattr(Policy.parse_toml(text), field)})
    changes: dict[str, Any] = {}
    if ANY in options.write:
        changes["write"] = None
    elif policy.write is not None:
        changes["write"] = [*policy.write, *map(os.path.abspath, options.write)]
    if options.read:
        own = () if policy.read is None else policy.read
        read = [*own, *map(os.path.abspath, options.read)]
        changes["read"] = None if ANY in options.read else read
    if options.env:
        changes["env"] = _more_variables(policy.env if options.policy else False, options.env)
    if options.run:
        changes["commands"] = _more(policy.commands, options.run)
    if options.net or options.listen:
        changes["network"] = _network(policy.network, options.net, options.listen)
    return policy.replace(**changes)._told_in("options")


def _more_variables(allowed: bool | tuple[str, ...], names: list[str]) -> bool | list[str]:
    # A policy may let variables be set without naming them; the list of names is then incomplete.
    return _more(("*",) if allowed is True else allowed, names)


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
    """The same network with these fields changed."""
    names = ("hosts", "block", "ports", "listen", "unix", "lookup", "max_connections")
    return Network(**{name: getattr(network, name) for name in names} | fields)


def _address(text: str) -> str:
    """Return an address to listen at: a port alone stands for all addresses."""
    return f"*:{text}" if text.replace("-", "").isdigit() else text


def written(options: argparse.Namespace) -> str:
    """The options as a shell would read them."""
    parts: list[str] = []
    for name, _, _ in OPTIONS:
        for value in getattr(options, name):
            parts += [f"--{name}", value]
    if options.policy is not None:
        parts += ["--policy", options.policy]
    if options.ask:
        parts.append("--ask")
    if options.approvals is not None:
        parts += ["--approvals", options.approvals]
    return shlex.join(parts)


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


def needed_for(verdict: str) -> str:
    """Return the option by which a recording's verdict would be allowed.

    It is the name of an option, or of the field of the policy; empty for allowed operations.
    """
    if verdict == "allowed":
        return ""
    if verdict in _NETWORK:
        return "--net"
    return f"--{_OPTION_OF[verdict]}" if verdict in _OPTION_OF else verdict


def options_of(recording: Recording, given: argparse.Namespace) -> str | None:
    """Return the options that would allow a recording; ``None`` if these do, or if none would.

    Fields that no option can say, such as ``block``, are left out.
    """
    if given.policy is not None or all(done.verdict == "allowed" for done in recording.effects):
        return None
    needed = recording.suggest()
    network = needed.network
    names = {
        "write": needed.write,
        "read": needed.read if given.read else (),
        "net": network.hosts if isinstance(network, Network) else (),
        "listen": network.listen if isinstance(network, Network) else (),
        "run": needed.commands,
        "env": needed.env if given.env else (),
    }
    parts: list[str] = []
    for option, values in names.items():
        if isinstance(values, tuple):
            parts += [part for value in values for part in (f"--{option}", value)]
    return shlex.join(parts)
