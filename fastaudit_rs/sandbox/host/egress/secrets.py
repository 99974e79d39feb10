"""The secrets of a sandbox, their placeholders, and certificates of the hosts that get them."""

import functools
import secrets
import ssl
import string
from collections.abc import Iterable, Sequence
from pathlib import Path

from .... import Network
from ...secrets import PLAIN, Secret
from .rules import Rules
from .swap import Pair

#: Variables by which clients find certificates that they trust: OpenSSL, requests, curl, pip.
TRUST = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")

#: The characters of a placeholder.
CHARACTERS = string.ascii_letters + string.digits

#: The hosts whose certificates are kept.
HOSTS = 64


class Secrets:
    """The secrets of a sandbox."""

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
            plain = [host for host in secret.hosts if host.startswith(PLAIN)]
            self._rules.append(
                (
                    _rules(host.removeprefix(PLAIN) for host in secret.hosts),
                    _rules(host.removeprefix(PLAIN) for host in plain),
                )
            )
        self._context = functools.lru_cache(HOSTS)(self._made)
        #: The context of connections to servers, which are verified.
        self.client = ssl.create_default_context()
        self.client.set_alpn_protocols(["http/1.1"])

    def of(self, host: str, port: int, *, tls: bool) -> list[Pair]:
        found = []
        for (over_tls, plain), pair in zip(self._rules, self.pairs, strict=True):
            rules = over_tls if tls else plain
            if rules is not None and rules.of_name(host, port) is None:
                found.append(pair)
        return found

    def context(self, host: str) -> ssl.SSLContext:
        """Return the context of a server that stands for a host in the sandbox."""
        return self._context(host)

    def _made(self, host: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # No other protocol is read.
        context.set_alpn_protocols(["http/1.1"])
        self._authority.issue_cert(host).configure_cert(context)
        return context


def _rules(hosts: Iterable[str]) -> Rules | None:
    named = [*hosts]
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
