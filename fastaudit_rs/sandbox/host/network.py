"""The network of a policy: what the kernel holds, for `sandlock`, and what the host carries."""

import contextlib
import ipaddress
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeGuard

from ... import Network, Policy, _landlock
from ...sessions.errors import SandboxError
from ..secrets import PLAIN, Secret

#: A name with a dot, and no address or pattern.
_NAME = re.compile(r"[a-z0-9_.-]*\.[a-z][a-z0-9-]*\.?\Z", re.IGNORECASE)

#: The port of name servers: RFC 1035.
DOMAIN = 53

#: An address where nothing is: RFC 6666. Without a rule for UDP there are no such sockets, not to
#: listen with either.
NOWHERE = "udp://[100::/128]:9"


#: The addresses of this machine that nothing outside of it reaches: RFC 6761 names them localhost.
LOOPBACK = ("127.0.0.0/8", "[::1/128]")


@dataclass(frozen=True)
class Reachable:
    """The addresses that may be reached, as `sandlock` takes them."""

    allow: list[str]
    deny: list[str]
    listen: list[str]
    #: True if there are hosts with names, of which the kernel knows the ports alone.
    has_names: bool = False


def reachable(network: bool | Network) -> Reachable:
    """The addresses that a policy lets be reached, and somewhat more where it names hosts."""
    if isinstance(network, bool):
        return Reachable(["*:*", "udp://*:*"], [], ["*"]) if network else Reachable([], [], [])
    named = ("*",) if network.hosts is None else network.hosts
    hosts = [part for host in named for part in _reached(host)]
    blocked = [part for host in network.block for part in _reached(host)]
    usual = "*" if network.ports is None else _numbers(network.ports)
    allow = _rules(((addresses or "*", ports) for addresses, ports in hosts), usual)
    if network.lookup and any(addresses in (None, "*") for addresses, _ in hosts):
        allow.append(f"*:{DOMAIN}")
    listen = _listened(network.listen)
    if listen and not allow:
        allow.append(NOWHERE)
    has_names = any(addresses is None for addresses, _ in (*hosts, *blocked))
    return Reachable(allow, _rules(blocked, "*"), listen, has_names)


def has_name(host: str) -> bool:
    """Return whether a host of a policy has a name, so that its addresses are not known."""
    return any(addresses is None for addresses, _ in _reached(host))


def is_carried(own: bool | Network, held: bool | Network, *, has_secrets: bool) -> bool:
    """Return whether the host connects for the code, which the kernel lets reach nothing then.

    It does for hosts with names, and where it puts something into requests, judges them, or asks
    before it connects: then more is `held` than the policy's `own` network.
    """
    if not isinstance(held, Network):
        return False
    is_named = any(_parts(host)[0] is None for host in held.hosts or ())
    return is_named or has_secrets or held != own or has_http(held)


def holds_addresses(network: bool | Network) -> bool:
    """Return whether Landlock alone does not hold where code connects to: it knows ports."""
    if isinstance(network, bool):
        return False
    is_narrow = network.hosts is not None or network.ports is not None or bool(network.block)
    found = reachable(network)
    lacks_ports = _landlock.version() < _landlock.PORTS
    return is_narrow and bool(found.allow or found.deny or lacks_ports)


def check_carried(
    kernel: object, own: bool | Network, held: bool | Network, secrets: Sequence[Secret]
) -> None:
    """Check that the host can carry the network of a policy, with its secrets and questions."""
    if kernel is not None:
        if is_carried(own, held, has_secrets=bool(secrets)) and find_spec("h11") is None:
            raise SandboxError(
                "a network that names hosts needs h11: pip install 'fastaudit-rs[sandbox]'"
            )
        if has_http(held) and find_spec("trustme") is None:
            raise SandboxError(
                "network.http needs trustme, to read requests over TLS: "
                "pip install 'fastaudit-rs[secrets]'"
            )
    if not secrets:
        return
    names = [secret.name for secret in secrets]
    if len({*names}) < len(names):
        raise ValueError(f"secrets must differ by their names: {', '.join(names)}")
    if not isinstance(own, Network) or not own.hosts:
        raise ValueError(
            "secrets need a policy that names hosts: network=Network(hosts=['api.example.com'])"
        )
    listen = held.listen if isinstance(held, Network) else True
    for secret in secrets:
        if not any(_is_reached(host, held) for host in secret.hosts):
            raise ValueError(
                f"secrets: the policy reaches no host of {secret.name}: name "
                f"{', '.join(map(repr, secret.hosts))} in its network, or correct them"
            )
        for host in secret.hosts:
            if may_be_served(host.removeprefix(PLAIN), listen):
                raise ValueError(
                    f"secrets: code may listen (listen=) where {secret.name} is sent to this "
                    f"machine ({host!r}), and would get its value: name the port of its server, "
                    "and ports to listen at"
                )
    if kernel is None:
        raise SandboxError("secrets need the kernel part, which there is not: confine='require'")
    if find_spec("trustme") is None:
        raise SandboxError("secrets need trustme: pip install 'fastaudit-rs[secrets]'")


def _is_reached(host: str, network: bool | Network) -> bool:
    """Return whether a policy reaches a host; of addresses and patterns that is not told."""
    name, _, port = host.removeprefix(PLAIN).partition(":")
    if not isinstance(network, Network) or not _NAME.match(name):
        return True
    named = [one.rpartition(":")[2] for one in network.hosts or ()]
    ports = [port] if port else ["443", "80", *named, *map(str, network.ports or ())]
    policy = Policy(network=network)
    return any(policy._name_rule(name, int(one)) is None for one in ports if one.isdigit())


def has_http(network: bool | Network) -> TypeGuard[Network]:
    """Return whether requests are judged."""
    return isinstance(network, Network) and bool(network.http)


def replaced(network: Network, **changes: Any) -> Network:
    """The network with other values of these fields."""
    _, fields = network.__getnewargs_ex__()
    return Network(**fields | changes)


def is_here(host: str) -> bool:
    """Return whether a host of a policy is this machine, which nothing outside of it reaches."""
    addresses = [(each or "*").strip("[]") for each, _ in _reached(host)]
    return all(each != "*" and ipaddress.ip_network(each).is_loopback for each in addresses)


def may_be_served(host: str, listen: bool | tuple[str, ...]) -> bool:
    """Return whether code that may listen so can be the server of a host: on this machine alone."""
    if not is_here(host):
        return False
    found, wanted = _listened(listen), _parts(host)[1]
    if "*" in found or not wanted:
        return bool(found)
    return not {*_numbers(found).split(",")}.isdisjoint(_numbers([wanted]).split(","))


def is_local(network: bool | Network) -> bool:
    """Return whether nothing but the machine itself may be reached."""
    if isinstance(network, bool):
        return not network
    if network.hosts is None or network.lookup:
        return False
    return all(_parts(host)[0] is not None and is_here(host) for host in network.hosts)


def sockets(network: bool | Network) -> list[str]:
    """Return the existing Unix sockets that may be connected to.

    They are named, or in a named directory. To the kernel connecting is writing to them.
    """
    found = []
    for path in () if isinstance(network, bool) else network.unix or ():
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            found += [entry.path for entry in entries if _is_socket(entry.path)]
        if _is_socket(path):
            found.append(path)
    return found


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _rules(hosts: Iterable[tuple[str | None, str]], usual: str) -> list[str]:
    """Return the rules for the hosts without names; `usual` is for those without ports."""
    found = ((addresses, _numbers([ports]) if ports else usual) for addresses, ports in hosts)
    return [f"{addresses}:{ports}" for addresses, ports in found if addresses and ports]


def _listened(listen: bool | tuple[str, ...]) -> list[str]:
    """Return the ports that may be listened at: the kernel does not know the addresses."""
    if isinstance(listen, bool):
        return ["*"] if listen else []
    ports = [ports for _, ports in map(_parts, listen)]
    return ["*"] if "" in ports else list(dict.fromkeys(ports))


def _parts(host: str) -> tuple[str | None, str]:
    """Return the addresses of a host, `None` if it has a name, and its ports, if any."""
    whole = _addresses(host)
    if whole is not None:
        return whole, ""
    rest, colon, ports = host.rpartition(":")
    if not colon:
        return None, ""
    return _addresses(rest), ports


def _reached(host: str) -> list[tuple[str | None, str]]:
    """Return the addresses of a host, `None` for a name other than this machine's."""
    addresses, ports = _parts(host)
    name = host.rpartition(":")[0] if ports else host
    if addresses is None and f".{name.lower().removesuffix('.')}".endswith(".localhost"):
        return [(loopback, ports) for loopback in LOOPBACK]
    return [(addresses, ports)]


def _addresses(text: str) -> str | None:
    """Return addresses as `sandlock` takes them, or `None` for other texts."""
    if text == "*":
        return text
    text = text.removeprefix("[").removesuffix("]")
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
    if isinstance(network, ipaddress.IPv4Network):
        return str(network)
    # The guard, and the kernel, take an IPv4 address in an IPv6 one as IPv4.
    mapped = network.network_address.ipv4_mapped if network.num_addresses == 1 else None
    return f"[{network}]" if mapped is None else f"{mapped}/32"


def _numbers(ports: Iterable[int | str]) -> str:
    """Each of some ports and ranges of them. There is no port 0 to connect to."""
    numbers: dict[int, None] = {}
    for port in ports:
        first, _, last = str(port).partition("-")
        numbers |= dict.fromkeys(range(max(int(first), 1), int(last or first) + 1))
    return ",".join(map(str, numbers))
