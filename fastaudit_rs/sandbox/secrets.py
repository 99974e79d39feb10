"""Values that a host puts into the requests of a sandbox, and that never enter it."""

import os
import re
from collections.abc import Iterable

from .. import Network
from .._keywords import checked
from ..sessions.arguments import listed

#: The name of a variable: POSIX, 8.1.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

#: The field of a header: RFC 9110, 5.1.
HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")

#: The value of a header (RFC 9110, 5.5), long enough not to be found by chance.
VALUE = re.compile(r"[!-~](?:[ -~]{6,4094})[!-~]\Z")

#: The beginning of a host whose requests need no TLS.
PLAIN = "http://"


@checked("Secret")
class Secret:
    """A value, such as an API key, that code in a sandbox uses without seeing it.

    The code's variable `name` has a placeholder, which the code puts into a header of a request. In
    requests to `hosts`, and no others, the host replaces it with the value.

    Args:
        name: The name of the variable.
        hosts: The hosts that get the value, as in `Network`: ``"api.example.com"``,
            ``"*.example.com:8443"``. Requests must use TLS, except those to a host that you name as
            ``"http://intranet"``.
        value: The value: 8 to 4096 visible ASCII characters, with spaces between them. By default
            that of the host's variable `name`.
        header: The only header in which the host replaces the placeholder; by default any.

    Raises:
        TypeError: An argument has another type.
        ValueError: An argument is not accepted, or the host has no variable `name`.

    Examples:
        >>> policy = Policy.preset("sandbox").replace(network={"hosts": ["api.example.com:443"]})
        >>> secret = Secret("API_KEY", hosts=["api.example.com"], value="the key of the API")
        >>> Sandbox(policy, secrets=[secret]).close()
    """

    __slots__ = ("_value", "header", "hosts", "name")

    def __init__(
        self,
        name: str,
        hosts: Iterable[str],
        value: str | None = None,
        header: str | None = None,
    ) -> None:
        for argument, given in (("name", name), ("value", value), ("header", header)):
            if not isinstance(given, str) and (given is not None or argument == "name"):
                raise TypeError(f"{argument} must be a str, not {type(given).__name__}")
        if not NAME.match(name):
            raise ValueError(
                f"name must be the name of a variable, such as 'API_KEY', not {name!r}"
            )
        if isinstance(hosts, str):
            raise TypeError(f"hosts must be a list, not str: write [{hosts!r}]")
        if header is not None and not HEADER.match(header):
            raise ValueError(
                f"header must be the name of a header, such as 'Authorization', not {header!r}"
            )
        self.name = name
        self.hosts = tuple(hosts)
        self.header = header
        if not self.hosts:
            raise ValueError("hosts must name the hosts that get the value: it has none")
        # The texts are checked as those of a policy.
        try:
            Network(hosts=[host.removeprefix(PLAIN) for host in self.hosts])
        except ValueError as error:
            raise ValueError(str(error).removeprefix("network.")) from None
        if value is None:
            value = os.environ.get(name)
            if value is None:
                raise ValueError(f"value must be given: the host has no variable {name}")
        if not VALUE.match(value):
            raise ValueError("value must be 8 to 4096 visible characters of ASCII")
        self._value = value

    def __repr__(self) -> str:
        header = "" if self.header is None else f", header={self.header!r}"
        return f"Secret({self.name!r}, hosts={[*self.hosts]!r}{header})"

    def __reduce__(self) -> str:
        """Refuse copies in files and other processes."""
        raise TypeError("a Secret is not pickled: its value stays in this process")


def secrets_of(given: Iterable[Secret]) -> tuple[Secret, ...]:
    """Return the secrets of a sandbox."""
    found = tuple(listed("secrets", given))
    for number, secret in enumerate(found):
        if not isinstance(secret, Secret):
            kind = type(secret).__name__
            raise TypeError(f"secrets[{number}] must be a Secret, not {kind}")
    return found
