"""The secrets of a sandbox, their placeholders, and certificates of the hosts that get them."""

import base64
import binascii
import functools
import re
import secrets
import ssl
import string
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from .... import Network
from ...secrets import PLAIN, Secret
from ..network import is_here
from .rules import Rules
from .stream import Failed

#: Variables by which clients find certificates that they trust: OpenSSL, requests, curl, pip.
TRUST = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")

#: The characters of a placeholder.
CHARACTERS = string.ascii_letters + string.digits

#: The hosts whose certificates are kept.
HOSTS = 64

#: A header with a name and a password: RFC 7617.
BASIC = re.compile(rb"(?i:basic) +([A-Za-z0-9+/=]+)\Z")

Headers = list[tuple[bytes, bytes]]


class Pair(NamedTuple):
    """A secret in bytes. Both texts have one length, so that no length of a message changes."""

    placeholder: bytes
    value: bytes
    header: bytes | None


class Swap:
    """Puts secrets into the requests of one connection, and takes them out of the responses.

    A response may repeat a secret of any request: `known` has all of them. Secrets of `over_tls` go
    to this host over TLS alone.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        known: Sequence[Pair] | None = None,
        over_tls: Sequence[Pair] = (),
    ) -> None:
        self._pairs = pairs
        self._over_tls = over_tls
        # One value may begin with another one, which is put there before.
        self._known = sorted(pairs if known is None else known, key=lambda pair: len(pair.value))
        #: The end of a body, as it came and without the values.
        self._kept = self._clean = b""

    @property
    def is_empty(self) -> bool:
        return not self._pairs

    def is_in_the_clear(self, headers: Headers) -> bool:
        """Return whether a secret is asked for that goes to this host over TLS alone."""
        asked = Swap(self._over_tls)
        return any(asked._put(name.lower(), value) != value for name, value in headers)

    def into(self, headers: Headers) -> Headers:
        """Return the headers of a request with the values."""
        if not self._known:
            return headers
        # A response that is packed could hold a value that nobody sees.
        kept = [(name, value) for name, value in headers if name.lower() != b"accept-encoding"]
        kept.append((b"Accept-Encoding", b"identity"))
        return [(name, self._put(name.lower(), value)) for name, value in kept]

    def _put(self, name: bytes, text: bytes) -> bytes:
        pairs = [pair for pair in self._pairs if pair.header in (None, name)]
        basic = BASIC.match(text)
        if basic:
            try:
                plain = base64.b64decode(basic[1], validate=True)
            except binascii.Error:
                return text
            for pair in pairs:
                plain = plain.replace(pair.placeholder, pair.value)
            return text[: basic.start(1)] + base64.b64encode(plain)
        for pair in pairs:
            text = text.replace(pair.placeholder, pair.value)
        return text

    def out_of(self, text: bytes) -> bytes:
        """Return a text of a response without the values."""
        return bytes(self._cleaned(text, bytearray(text)))

    def _cleaned(self, text: bytes, clean: bytearray) -> bytearray:
        """Put placeholders over each value of a text, where values overlap too."""
        for pair in self._known:
            at = text.find(pair.value)
            while at >= 0:
                clean[at : at + len(pair.value)] = pair.placeholder
                at = text.find(pair.value, at + 1)
        return clean

    def piece(self, data: bytes) -> bytes:
        """Return the next piece of a body without the values; the end of it may be kept back."""
        text = self._kept + data
        clean = self._cleaned(text, bytearray(self._clean + data))
        cut = len(text) - max((_begun(text, pair.value) for pair in self._known), default=0)
        self._kept, self._clean = text[cut:], bytes(clean[cut:])
        return bytes(clean[:cut])

    def rest(self) -> bytes:
        clean, self._kept, self._clean = self._clean, b"", b""
        return clean


def _begun(text: bytes, value: bytes) -> int:
    """The length of the longest beginning of a value that is the end of a text."""
    lengths = range(min(len(text), len(value) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(value[:length])), 0)


class Secrets:
    def __init__(self, given: Sequence[Secret], bundle: Path) -> None:
        """Make the placeholders, and an authority for the certificates of hosts."""
        self.bundle = bundle
        # Of an extra: sandboxes without secrets do without.
        import trustme

        self._authority = trustme.CA(organization_name="fastaudit_rs")
        bundle.write_bytes(_trusted() + self._authority.cert_pem.bytes())
        self.env: dict[str, str] = dict.fromkeys(TRUST, str(bundle))
        self.pairs: list[Pair] = []
        #: The hosts of each, over TLS and without it.
        self._rules: list[tuple[Rules | None, Rules | None]] = []
        for secret in given:
            text = "".join(secrets.choice(CHARACTERS) for _ in secret._value)
            self.env[secret.name] = text
            header = None if secret.header is None else secret.header.lower().encode()
            self.pairs.append(Pair(text.encode(), secret._value.encode(), header))
            # What is sent to this machine goes over no wire.
            plain = [host for host in secret.hosts if host.startswith(PLAIN) or is_here(host)]
            self._rules.append((_rules(secret.hosts), _rules(plain)))
        #: Makes the context of a server that stands for a host in the sandbox.
        self.context = functools.lru_cache(HOSTS)(self._made)
        #: The context of connections to servers, which are verified.
        self.client = ssl.create_default_context()
        self.client.set_alpn_protocols(["http/1.1"])

    def of(self, names: Sequence[str], port: int, *, tls: bool) -> list[Pair]:
        found = []
        for (over_tls, plain), pair in zip(self._rules, self.pairs, strict=True):
            rules = over_tls if tls else plain
            if rules is not None and None in [rules.of_name(name, port) for name in names]:
                found.append(pair)
        return found

    def _made(self, names: tuple[str, ...]) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # No other protocol is read.
        context.set_alpn_protocols(["http/1.1"])
        try:
            made = self._authority.issue_cert(*names)
        except UnicodeError as error:
            # Of `idna`.
            why = "no certificate can be made for this name, such as one with an underscore"
            raise Failed(why) from error
        made.configure_cert(context)
        return context


def _rules(hosts: Iterable[str]) -> Rules | None:
    named = [host.removeprefix(PLAIN) for host in hosts]
    return Rules(Network(hosts=named)) if named else None


def _trusted() -> bytes:
    """The certificates that clients trust by default: those of the system, and of certifi."""
    found = []
    file = ssl.get_default_verify_paths().cafile
    if file is not None:
        found.append(Path(file).read_bytes())
    try:
        import certifi
    except ImportError:
        pass
    else:
        found.append(certifi.contents().encode())
    return b"".join(text.rstrip() + b"\n" for text in found)
