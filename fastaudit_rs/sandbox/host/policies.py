"""The policies of a sandbox, made of those that its host wrote."""

import os
from collections.abc import Callable, Iterable
from typing import Any

from ... import Network, Policy
from .network import has_http, replaced


def absolute(policy: Policy, directory: str) -> Policy:
    """The policy with its places resolved now; ``"."`` is this directory."""

    def full(path: str) -> str:
        return directory if os.path.normpath(path) == os.curdir else resolved(path)

    policy, network = _mapped(policy, full), policy.network
    if isinstance(network, Network) and network.unix:
        unix = [path if path.startswith("@") else full(path) for path in network.unix]
        policy = policy.replace(network=replaced(network, unix=unix))
    return policy


def _mapped(policy: Policy, change: Callable[[str], str]) -> Policy:
    named = {name: getattr(policy, name) for name in ("write", "read", "block")}
    changes: dict[str, Any] = {
        name: list(map(change, paths)) for name, paths in named.items() if paths is not None
    }
    return policy.replace(**changes)


def resolved(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def with_places(policy: Policy, path: Iterable[str], directory: str) -> Policy:
    """The policy with the directory to write and read, and modules to read."""
    if policy.write is not None and directory not in policy.write:
        policy = policy.replace(write=[*policy.write, directory])
    if policy.read is not None:
        policy = policy.replace(read=[directory, *policy.read, *path])
    return policy


def as_written(policy: Policy, directory: str) -> Policy:
    """The policy with ``"."`` for the directory, as its host wrote it: hints show it."""
    return _mapped(policy, lambda path: os.curdir if path == directory else path)


def bound(policy: Policy, up_to: Policy | None) -> Policy:
    """The policy that the kernel holds where answers may open what another policy allows.

    Places that the policy blocks stay blocked.
    """
    if up_to is None:
        return policy
    changes: dict[str, Any] = {"network": _bound_network(policy.network, up_to.network)}
    changes["write"] = _either(policy.write, up_to.write)
    if policy.read is not None and up_to.read is not None:
        changes["read"] = [*policy.read, *up_to.read]
    changes["commands"] = _both(policy.commands, up_to.commands)
    return policy.replace(**changes)


def _bound_network(own: bool | Network, more: bool | Network) -> bool | Network:
    if own is True or more is False:
        return own
    if more is True:
        # Rules, too: the host carries it, and asks before it connects.
        more = Network(listen=True, unix=None)
    if own is False:
        return more
    return Network(
        hosts=_either(own.hosts, more.hosts),
        block=own.block,
        ports=_either(own.ports, more.ports),
        listen=_both(own.listen, more.listen),
        unix=_either(own.unix, more.unix),
        lookup=own.lookup or more.lookup,
        max_connections=own.max_connections,
        http=_either(own.http, more.http) or (),
    )


def asked_by_others(own: bool | Network, held: bool | Network) -> bool | Network:
    """The rules of a guard that leaves questions about hosts to the proxy."""
    assert isinstance(held, Network)
    kept = own if isinstance(own, Network) else Network(listen=own)
    changes = {name: getattr(kept, name) for name in ("listen", "unix", "max_connections")}
    return replaced(held, **changes)


def _either(own: Iterable[Any] | None, more: Iterable[Any] | None) -> list[Any] | None:
    return None if own is None or more is None else list(dict.fromkeys([*own, *more]))


def _both(own: bool | tuple[str, ...], more: bool | tuple[str, ...]) -> bool | list[str]:
    if own is True or more is True:
        return True
    return [*(own or ()), *(more or ())] or False


def without_http(policy: Policy) -> Policy:
    network = policy.network
    return policy.replace(network=replaced(network, http=())) if has_http(network) else policy
