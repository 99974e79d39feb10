"""The names of ``fastaudit.core`` 0.2."""

from importlib.metadata import entry_points

from .._native import _audit_state as audit_state
from .._native import _mk_audit_02 as mk_audit
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
