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


class Rules:
    """The rules of a network.

    Args:
        network: The field of a policy.
    """

    def __init__(self, network: Network) -> None:
        """Make them ready to judge."""
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
        """Return the rule that denies looking up a name, if one does."""
        return self._rule("socket.getaddrinfo", name, None, 0, 0, 0)

    def of_name(self, name: str, port: int) -> str | None:
        """Return the rule that denies connecting to a name, if one does.

        A guard, which `Policy.explain` asks, looks the name up: nothing here waits for that.
        """
        with contextlib.suppress(ValueError):
            return self.of_address(address_of(name), port)
        return self._policy._name_rule(name, port)

    def of_address(self, address: Address, port: int) -> str | None:
        """Return the rule that denies connecting to an address that code gave, if one does."""
        rule = self._rule("socket.connect", self._socket, (str(address), port))
        if rule is not None and rule != BLOCK and address.is_loopback:
            return self.of_name(LOCAL, port)
        return rule

    def of_resolved(self, name: str, address: Address, port: int) -> str | None:
        """Return the rule that denies an address to which an allowed name leads, if one does.

        Args:
            name: The name.
            address: The address to which the host resolved it.
            port: The port.
        """
        rule = self._rule("socket.connect", self._socket, (str(address), port))
        if rule == BLOCK:
            return rule
        if rule is None or name in self._named or address.is_global:
            return None
        # Somebody else says where the names below a wildcard lead: not into this network.
        return HOSTS

    def _rule(self, event: str, *args: object) -> str | None:
        told = self._policy.explain(event, *args)
        return None if told.allowed else told.rule or "network"


def address_of(text: str) -> Address:
    """Return an address; one of IPv4 that is written as IPv6 is one of IPv4.

    Raises:
        ValueError: The text is not an address.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped
