"""Packages that a host installs for the code of a sandbox."""

import os
import re
from collections.abc import Iterable

from .._keywords import checked
from ..sessions.arguments import path_of

#: A requirement of a package by its name and versions (PEP 508), without addresses and markers.
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,100}[A-Za-z0-9])?"
_VERSION = r"(?:==|!=|<=|>=|~=|<|>)\s*[A-Za-z0-9][A-Za-z0-9.+!*]{0,50}"
REQUIREMENT = re.compile(
    rf"({_NAME})\s*(?:\[\s*{_NAME}(?:\s*,\s*{_NAME}){{0,9}}\s*\])?"
    rf"\s*(?:{_VERSION}(?:\s*,\s*{_VERSION}){{0,9}})?",
    re.ASCII,
)


@checked("Install")
class Install:
    """Packages for the code of a sandbox: `Sandbox(install=…)`.

    The host installs them with pip, from wheels alone: no code of a package runs meanwhile. Code
    can read them, and not change them.

    Args:
        packages: The packages that are there from the start: ``"polars"``, ``"polars>=1.30"``.
        on_demand: The names of packages that the code of a session may install, as it would in a
            notebook: ``%pip install polars``. The packages that these need are installed with them.
        index: The address of the package index, or a directory of wheels; that of the host's pip by
            default.
        cache: A directory where pip keeps what it has downloaded, for other sandboxes.
        timeout: The seconds that an installation may take.

    Raises:
        TypeError: An argument has another type.
        ValueError: A requirement, or `index`, is not accepted.

    For example:

        Sandbox(install=Install(["polars"], on_demand=["duckdb", "pyarrow"]))
    """

    __slots__ = ("cache", "index", "on_demand", "packages", "timeout")

    def __init__(
        self,
        packages: Iterable[str] = (),
        *,
        on_demand: Iterable[str] = (),
        index: str | None = None,
        cache: str | os.PathLike[str] | None = None,
        timeout: float = 300.0,
    ) -> None:
        for argument, given in (("install", packages), ("on_demand", on_demand)):
            if isinstance(given, (str, bytes)):
                raise TypeError(f"{argument} must be a list of packages: write [{given!r}]")
        self.packages = [requirement("install", one) for one in packages]
        self.on_demand = frozenset(normal(_only_name(one)) for one in on_demand)
        if index is not None:
            if not isinstance(index, str):
                raise TypeError(f"index must be a str, not {type(index).__name__}")
            if not re.match(r"https?://\S+\Z", index):
                given, index = index, _place(index)
                if not os.path.isdir(index):
                    raise ValueError(
                        f"index must be an address or a directory of wheels: {given!r}"
                    )
        self.index = index
        self.cache = None if cache is None else _place(path_of("cache", cache))
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
            raise TypeError(f"timeout must be a number of seconds, not {type(timeout).__name__}")
        if not timeout > 0:
            raise ValueError(f"timeout must be positive, not {timeout!r}")
        self.timeout = timeout

    def __repr__(self) -> str:
        return f"Install({self.packages!r}, on_demand={sorted(self.on_demand)!r})"


def _place(path: str) -> str:
    """A place of the host, which may change its directory before it is used."""
    return os.path.abspath(os.path.expanduser(path))


def install_of(given: object) -> Install | None:
    """The argument ``install`` of a sandbox."""
    if given is None or isinstance(given, Install):
        return given
    if not isinstance(given, Iterable):
        raise TypeError(f"install must be packages or Install(…), not {type(given).__name__}")
    return Install(given)


def requirement(argument: str, given: object) -> str:
    """Check a requirement, and return it: a name with versions, and nothing else that pip takes."""
    if not isinstance(given, str):
        raise TypeError(f"{argument}: a package must be a str, not {type(given).__name__}")
    if REQUIREMENT.fullmatch(given) is None:
        raise ValueError(
            f"{argument}: {given[:100]!r} is no package: write its name, and versions of it: "
            "'polars', 'polars>=1.30'"
        )
    return given


def name_of(requirement: str) -> str:
    """The normal form of the name in a requirement."""
    found = REQUIREMENT.fullmatch(requirement)
    assert found is not None
    return normal(found[1])


def normal(name: str) -> str:
    """The normal form of a name (PEP 503): that of ``Foo.Bar`` and ``foo_bar`` is ``foo-bar``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _only_name(given: object) -> str:
    name = requirement("on_demand", given)
    if re.fullmatch(_NAME, name, re.ASCII) is None:
        raise ValueError(f"on_demand: {name!r} must be a name alone, without versions")
    return name
