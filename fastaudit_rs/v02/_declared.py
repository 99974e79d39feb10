"""Reads the declarations of installed packages for ``fastaudit`` in their entry points.

<https://packaging.python.org/en/latest/specifications/entry-points/>
"""

import warnings

from . import core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The entry points of fastaudit itself, whose rule guards know: loading them would import it.
_KNOWN = {"fastaudit.hooks:lxml_monitor"}


def names(group: str) -> list[str]:
    """Return the modules that are named in a group, which are not imported."""
    values = (entry.value.strip() for entry in core.entry_points(group=group))
    return sorted({value for value in values if value})


def hooks(group: str) -> "list[tuple[str, Any]]":
    """Return the functions that are named in a group, which are imported; each with its name."""
    loaded = []
    for entry in core.entry_points(group=group):
        if entry.value in _KNOWN:
            continue
        try:
            loaded.append((entry.value, entry.load()))
        except Exception as error:
            ignore(group, entry.value, error)
    return loaded


def ignore(group: str, name: str, error: BaseException) -> None:
    """Warn of a function that is of no use: hooks can only allow more."""
    warnings.warn(
        f"fastaudit_rs ignores {name!r}, which an installed package declares in the entry point "
        f"group {group!r}: {type(error).__name__}: {error}",
        RuntimeWarning,
        stacklevel=2,
    )
