"""One operation of code, from a recording or its log."""

import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .permissions import needed_for

#: Events that remove something, among those that write.
DELETES = frozenset({"os.remove", "os.rmdir", "os.removexattr", "shutil.rmtree"})


@dataclass
class Touched:
    """One operation, with its times."""

    effect: str
    event: str
    target: str
    verdict: str
    #: True if it is a part of an import, or of a process's start, which is shown itself.
    is_detail: bool
    call_chain: Sequence[str] = ()
    #: Seconds since the program began, if known.
    times: list[float] = field(default_factory=list)
    #: The number of times that it was done.
    count: int = 0

    @property
    def is_allowed(self) -> bool:
        """Return whether the policy allows it."""
        return self.verdict == "allowed"

    @property
    def needs(self) -> str:
        """Return the words that would allow it; empty if it is allowed."""
        return needed_for(self.verdict)


def touched_of(entry: dict[str, Any], chain: Sequence[str], here: str | None = None) -> Touched:
    """Read an entry of a recording, or a line of its log.

    Args:
        entry: The entry, from JSON.
        chain: The functions that led to it.
        here: A directory. Paths below it are shown without it.
    """
    args = entry["args"]
    effect = entry["effect"] or "other"
    if entry["event"] in DELETES:
        effect = "delete"
    told = entry["path"] is not None or entry["host"] is not None
    is_plain = bool(args) and isinstance(args[0], str)
    is_detail = effect == "import" or (
        entry["verdict"] == "allowed"
        and not told
        and (effect in ("network", "read") or not is_plain)
    )
    target = _target(entry, here)
    count = entry.get("count", 0)
    return Touched(effect, entry["event"], target, entry["verdict"], is_detail, chain, count=count)


def _target(entry: dict[str, Any], here: str | None) -> str:
    """Name the target of the operation."""
    args = entry["args"]
    path = entry["path"]
    if path is None and entry["effect"] in ("read", "write") and args and isinstance(args[0], str):
        path = os.path.normpath(args[0])
    if path is not None:
        below = path if here is None else str(path).removeprefix(here.rstrip("/") + "/")
        return below or str(path)
    if entry["host"] is not None:
        # The address of a socket, or a host and a port.
        port = next((arg[1] for arg in args if isinstance(arg, list) and len(arg) > 1), None)
        return f"{entry['host']}:{port}" if isinstance(port, int) else str(entry["host"])
    if entry["event"] == "fastaudit.call" and len(args) > 1:
        # The caller is in the call chain.
        return str(args[1])
    shown = args[0] if args and isinstance(args[0], str) else ", ".join(map(str, args))
    return textwrap.shorten(shown, 100, placeholder=" …")
