"""Policies that grow with each run of a program."""

import os
from collections.abc import Collection
from typing import Literal, TypeAlias, TypeVar

from .. import Network, Policy, Recording

_Value = TypeVar("_Value")
_Native: TypeAlias = bool | Literal["unjudged"] | tuple[str, ...]


def merged(before: Policy, recording: Recording) -> Policy:
    """The least policy that allows the operations of a policy and of a recording under it."""
    new = recording.suggest()
    exceeded = {done.verdict for done in recording.effects}
    return new.replace(
        write=_places(before.write, new.write),
        read=_places(before.read, new.read),
        commands=_either(before.commands, new.commands),
        env=_either(before.env, new.env),
        import_allow=_union(before.import_allow, new.import_allow),
        native=_native(before.native, new.native),
        packages=_union(before.packages, new.packages),
        threads="deny" if before.threads == new.threads == "deny" else "inherit",
        max_bytes=None if "max_bytes" in exceeded else before.max_bytes,
        on_violation=before.on_violation,
        network=_network(before.network, new.network, exceeded),
    )


def _union(one: tuple[_Value, ...], other: tuple[_Value, ...]) -> tuple[_Value, ...]:
    return tuple(dict.fromkeys((*one, *other)))


def _unless_all(
    one: tuple[_Value, ...] | None, other: tuple[_Value, ...] | None
) -> tuple[_Value, ...] | None:
    """Return both, where ``None`` stands for everything."""
    return None if one is None or other is None else _union(one, other)


def _either(one: bool | tuple[str, ...], other: bool | tuple[str, ...]) -> bool | tuple[str, ...]:
    """Return both, where ``True`` stands for everything and ``False`` for nothing."""
    if one is True or other is True:
        return True
    return _union(one or (), other or ()) or False


def _native(one: _Native, other: _Native) -> _Native:
    """Return both; what is not judged stays so."""
    if isinstance(one, str) or isinstance(other, str):
        return "unjudged"
    return _either(one, other)


def _places(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return both, without paths below another one."""
    found = _unless_all(one, other)
    if found is None:
        return None
    return tuple(place for place in found if not any(_is_below(place, each) for each in found))


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
        hosts=_unless_all(before.hosts, new.hosts),
        block=() if "network.block" in exceeded else before.block,
        ports=before.ports if keeps_ports else new.ports,
        listen=_either(before.listen, new.listen),
        unix=_unless_all(before.unix, new.unix),
        lookup=before.lookup or new.lookup,
        max_connections=(None if "network.max_connections" in exceeded else before.max_connections),
    )


def _has_port(host: str) -> bool:
    return host.count(":") == 1 or "]:" in host
