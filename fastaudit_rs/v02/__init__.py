"""What ``fastaudit`` 0.2 offers, with its rules: what is not allowed by name is denied.

``fastaudit_rs.install_as_fastaudit()`` has code that imports ``fastaudit`` get this package.
"""

from .core import (
    CallTracker,
    TrackedCall,
    active_calls,
    audit_state,
    mk_audit,
    track_call,
)

__all__ = [
    "CallTracker",
    "TrackedCall",
    "active_calls",
    "audit_state",
    "mk_audit",
    "track_call",
]

# The release whose contract this is.
__version__ = "0.2.10"
