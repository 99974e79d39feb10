"""The most that answers of the host may open in a sandbox."""

from collections.abc import Iterable
from typing import Any

from ... import Network, Policy


def bound(policy: Policy, up_to: Policy) -> Policy:
    """The policy that the kernel holds where answers may open what another policy allows.

    Places that the policy blocks stay blocked.
    """
    changes: dict[str, Any] = {"network": _network(policy.network, up_to.network)}
    write, read = policy.write, policy.read
    changes["write"] = None if write is None or up_to.write is None else [*write, *up_to.write]
    if read is not None and up_to.read is not None:
        changes["read"] = [*read, *up_to.read]
    if up_to.commands is True or policy.commands is True:
        changes["commands"] = True
    else:
        changes["commands"] = [*(policy.commands or ()), *(up_to.commands or ())] or False
    return policy.replace(**changes)


def _network(own: bool | Network, more: bool | Network) -> bool | Network:
    if own is True or more is True:
        return True
    if own is False or more is False:
        return own or more
    return Network(
        hosts=_either(own.hosts, more.hosts),
        block=own.block,
        ports=_either(own.ports, more.ports),
        listen=_both(own.listen, more.listen),
        unix=_either(own.unix, more.unix),
        lookup=own.lookup or more.lookup,
        max_connections=own.max_connections,
    )


def _either(own: Iterable[Any] | None, more: Iterable[Any] | None) -> list[Any] | None:
    return None if own is None or more is None else list(dict.fromkeys([*own, *more]))


def _both(own: bool | tuple[str, ...], more: bool | tuple[str, ...]) -> bool | list[str]:
    if own is True or more is True:
        return True
    return [*(own or ()), *(more or ())] or False
