"""Names of hosts in a sandbox: each has an address of its own, by which the host knows it.

The messages are those of DNS over TCP (RFC 1035, RFC 7766), of which one question and one answer
are needed: less than what a package such as `dnslib` would have to be trusted with.
"""

import ipaddress
import re
import struct
import threading

from .rules import Address

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
    """The names of a sandbox, and their addresses."""

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
            self._kind, self._class = struct.unpack_from("!2H", message, at + 1)
        except (struct.error, IndexError) as error:
            raise ValueError("the message is too short") from error
        if flags & 0xF800 or questions != 1 or answers:
            raise ValueError("it is no question")
        self._asked = message[_HEADER.size : at + 5]
        self._flags = 0x8080 | flags & 0x0100
        name = b".".join(labels).decode("ascii", "replace").lower()
        #: The name that is asked for, in small letters; `None` if it is no name of a host.
        self.name = name if NAME.match(name) else None

    @property
    def is_about_addresses(self) -> bool:
        return (self._class, self._kind) in ((INTERNET, A), (INTERNET, AAAA))

    @property
    def wants_ipv4(self) -> bool:
        return (self._class, self._kind) == (INTERNET, A)

    def answer(self, code: int, address: Address | None = None) -> bytes:
        """Return the answer, without its length."""
        found = b""
        if address is not None:
            # The name is the one of the question.
            found = struct.pack("!3HIH", 0xC00C, A, INTERNET, LIFE, 4) + address.packed
        counts = (1, int(bool(found)), 0, 0)
        return _HEADER.pack(self._number, self._flags | code, *counts) + self._asked + found
