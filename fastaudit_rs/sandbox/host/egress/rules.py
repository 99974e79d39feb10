"""Verdicts on names, addresses and ports, by the network of a policy."""

import contextlib
import ipaddress
import re
import socket
import struct
import threading
from collections.abc import Iterable
from typing import TypeAlias

from .... import Network, Policy
from ..network import has_name, replaced

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

#: The names of this machine by the standards: RFC 6761.
LOCAL = "localhost"

#: The rules that a host breaks which is not named, one that is blocked, and a request.
HOSTS, BLOCK, HTTP = "network.hosts", "network.block", "network.http"


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
        self._policy = Policy(network=replaced(network, max_connections=None, http=()))
        self._requests = Policy(network=Network(http=network.http))
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
        """A host by its name. `Policy.explain` would look it up, and nothing here may wait."""
        with contextlib.suppress(ValueError):
            return self.of_address(address_of(name), port)
        return self._policy._name_rule(name, port)

    def of(self, name: str | None, address: Address, port: int) -> str | None:
        """A host that code connects to: a name, or an address without one."""
        return self.of_address(address, port) if name is None else self.of_name(name, port)

    def of_address(self, address: Address, port: int) -> str | None:
        rule = self._of(address, port)
        if rule is not None and rule != BLOCK and address.is_loopback:
            return self.of_name(LOCAL, port)
        return rule

    def named(self, address: Address, port: int) -> str:
        """An address that may be reached, as the policy names it."""
        rule = self._of(address, port)
        return LOCAL if rule is not None and address.is_loopback else str(address)

    def holds_requests(self, names: Iterable[str], port: int) -> bool:
        """Return whether requests to a host, which has these names, are held to rules."""
        return any(self._requests._holds_requests(name, port) for name in names)

    def request(self, names: Iterable[str], port: int, method: str, path: str) -> str | None:
        """Return the path of a request as it was judged, if it may be made."""
        found = (self._requests._request(name, port, method, path) for name in names)
        return next((path for path in found if path is not None), None)

    def of_resolved(
        self, name: str, address: Address, port: int, *, by_name: bool = False
    ) -> str | None:
        """An address to which the host resolved an allowed name; `by_name`: as such alone."""
        rule = self._of(address, port)
        if rule == BLOCK:
            return rule
        if self.holds_requests([str(address)], port) and not self.holds_requests([name], port):
            return HTTP
        if (rule is None and not by_name) or name in self._named or is_public(led_to(address)):
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
    """Return an address; one of IPv4 that is written as IPv6 is one of IPv4.

    None in particular (``0.0.0.0``, ``::``) is this machine: Linux connects to it.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_unspecified:
        return ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return address


#: The addresses of this machine (RFC 6761), and all of what is called so: one host.
LOOPBACK = [address_of("127.0.0.1"), address_of("::1")]
HERE = [LOCAL, *map(str, LOOPBACK)]


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


# Names of hosts in a sandbox: each has an address of its own, by which the host knows it.
#
# The messages are those of DNS over TCP (RFC 1035, RFC 7766), of which one question and one answer
# are needed: less than what a package such as `dnslib` would have to be trusted with.

#: The first of some addresses that lead nowhere: for tests of networks (RFC 2544), and, where a
#: policy blocks these, reserved ones (RFC 1112).
FIRST = (ipaddress.IPv4Address("198.18.0.1"), ipaddress.IPv4Address("240.0.0.1"))

#: The names that a sandbox may use, in all.
NAMES = 4096

#: The seconds that an answer may be kept: it never changes.
LIFE = 60

#: A name of a host, with underscores, which some have.
NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*\Z")

#: The types and the class of questions that are about addresses: RFC 1035, RFC 3596.
A, AAAA, INTERNET = 1, 28, 1

#: The codes of answers: RFC 1035.
NO_ERROR, MALFORMED, NO_SUCH_NAME, REFUSED = 0, 1, 3, 5

_HEADER = struct.Struct("!6H")


class Names:
    def __init__(self, first: Address) -> None:
        self._first = first
        self._lock = threading.Lock()
        self._addresses: dict[str, Address] = {}
        self._names: dict[Address, str] = {}

    def address(self, name: str) -> Address | None:
        """Return the address of a name; `None` if there are too many names."""
        with self._lock:
            address = self._addresses.get(name)
            if address is None and len(self._names) < NAMES:
                address = self._first + len(self._names)
                self._addresses[name], self._names[address] = address, name
            return address

    def name(self, address: Address) -> str | None:
        return self._names.get(address)


class Question:
    """A question to a name server, read from a message without its length."""

    def __init__(self, message: bytes) -> None:
        try:
            self._number, flags, questions, answers, *_ = _HEADER.unpack_from(message)
            labels, at = [], _HEADER.size
            while message[at]:
                # Longer ones are pointers, which the only name of a message cannot have.
                if message[at] > 63:
                    raise ValueError("a label is too long")
                labels.append(message[at + 1 : at + 1 + message[at]])
                at += 1 + message[at]
            asked = struct.unpack_from("!2H", message, at + 1)
        except (struct.error, IndexError) as error:
            raise ValueError("the message is too short") from error
        if flags & 0xF800 or questions != 1 or answers:
            raise ValueError("it is no question")
        self._asked = message[_HEADER.size : at + 5]
        self._flags = 0x8080 | flags & 0x0100
        name = b".".join(labels).decode("ascii", "replace").lower()
        #: The name that is asked for, in small letters; `None` if it is no name of a host.
        self.name = name if NAME.match(name) else None
        self.wants_ipv4 = asked == (A, INTERNET)
        self.is_about_addresses = self.wants_ipv4 or asked == (AAAA, INTERNET)

    def answer(self, code: int, address: Address | None = None) -> bytes:
        """Return the answer, without its length."""
        found = b""
        if address is not None:
            # The name is the one of the question.
            found = struct.pack("!3HIH", 0xC00C, A, INTERNET, LIFE, 4) + address.packed
        counts = (1, int(bool(found)), 0, 0)
        return _HEADER.pack(self._number, self._flags | code, *counts) + self._asked + found
