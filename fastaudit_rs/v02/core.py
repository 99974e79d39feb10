"""The names of ``fastaudit.core`` 0.2."""

from .._native import _audit_state as audit_state, _mk_audit_02 as mk_audit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from ..calls import CallTracker, TrackedCall, active_calls, track_call

__all__ = [
    "CallTracker",
    "TrackedCall",
    "active_calls",
    "audit_state",
    "entry_points",
    "mk_audit",
    "track_call",
]


def entry_points(*, group: str) -> "EntryPoints":
    """Return the entry points that installed packages declare in a group."""
    # It takes longer to import than all of this package.
    from importlib import metadata

    return metadata.entry_points(group=group)


def __getattr__(name: str) -> object:
    """Import a name that few need when it is asked for (PEP 562)."""
    if name in ("CallTracker", "TrackedCall", "active_calls", "track_call"):
        from .. import calls

        return getattr(calls, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
