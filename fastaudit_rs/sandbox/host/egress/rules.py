"""Verdicts on names, addresses and ports, by the network of a policy."""

import contextlib
import ipaddress
import socket
from typing import TypeAlias

from .... import Network, Policy
from ..network import has_name

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

#: The names of this machine by the standards: RFC 6761.
LOCAL = "localhost"

#: The rules that a host breaks which is not named, and one that is blocked.
HOSTS, BLOCK = "network.hosts", "network.block"


#: The addresses of IPv6 that lead to some of IPv4: RFC 6052.
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

#: The addresses of IPv6 that are given to networks of the internet, and those among them that tell
#: a tunnel where to lead: RFC 4291, RFC 3056, RFC 4380.
PUBLIC = ipaddress.IPv6Network("2000::/3")
TUNNELS = [ipaddress.IPv6Network(each) for each in ("2002::/16", "2001::/32")]


class Rules:
    """The rules of a network: each method returns the field that denies something, if one does."""

    def __init__(self, network: Network) -> None:
        # Connections are counted elsewhere: those of several processes.
        _, fields = network.__getnewargs_ex__()
        self._policy = Policy(network=Network(**{**fields, "max_connections": None}))
        #: The names that are allowed as such, and not by a wildcard.
        self._named = {
            host.rpartition(":")[0] or host
            for host in map(str.lower, network.hosts or ())
            if has_name(host) and "*" not in host
        }
        # An audit event has a socket; a closed one tells its family as well.
        with socket.socket() as self._socket:
            pass

    def of_lookup(self, name: str) -> str | None:
        return self._rule("socket.getaddrinfo", name, None, 0, 0, 0)

    def of_name(self, name: str, port: int) -> str | None:
        """A guard, which `Policy.explain` asks, looks the name up: nothing here waits for that."""
        with contextlib.suppress(ValueError):
            return self.of_address(address_of(name), port)
        return self._policy._name_rule(name, port)

    def of_address(self, address: Address, port: int) -> str | None:
        """An address that code gave."""
        rule = self._of(address, port)
        if rule is not None and rule != BLOCK and address.is_loopback:
            return self.of_name(LOCAL, port)
        return rule

    def of_resolved(self, name: str, address: Address, port: int) -> str | None:
        """An address to which the host resolved an allowed name."""
        rule = self._of(address, port)
        if rule == BLOCK:
            return rule
        if rule is None or name in self._named or is_public(led_to(address)):
            return None
        # Somebody else says where the names below a wildcard lead: not into this network.
        return HOSTS

    def _of(self, address: Address, port: int) -> str | None:
        """The rule that denies an address. It is blocked where the one is that it leads to."""
        told = [
            self._rule("socket.connect", self._socket, (str(each), port))
            for each in dict.fromkeys([address, led_to(address)])
        ]
        return BLOCK if BLOCK in told else told[0]

    def _rule(self, event: str, *args: object) -> str | None:
        told = self._policy.explain(event, *args)
        return None if told.allowed else told.rule or "network"


def address_of(text: str) -> Address:
    """Return an address; one of IPv4 that is written as IPv6 is one of IPv4."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped


def led_to(address: Address) -> Address:
    """Return the address of IPv4 that one of IPv6 leads to, or the address itself."""
    if isinstance(address, ipaddress.IPv6Address) and address in NAT64:
        return ipaddress.IPv4Address(address.packed[-4:])
    return address


def is_public(address: Address) -> bool:
    """Return whether an address is one of the internet, and leads to no other network."""
    if isinstance(address, ipaddress.IPv6Address):
        is_given = address in PUBLIC and not any(address in each for each in TUNNELS)
        return is_given and address.is_global
    return address.is_global and not address.is_multicast
