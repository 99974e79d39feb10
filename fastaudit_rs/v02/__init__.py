"""The names of ``fastaudit`` 0.2, with its rules: whatever is not allowed by name is denied.

``fastaudit_rs.install_as_fastaudit("0.2")`` gives code that imports ``fastaudit`` this package.
"""

from .._native import _audit_state as audit_state, _mk_audit_02 as mk_audit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import core as core
    from .core import CallTracker, TrackedCall, active_calls, track_call

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


def __getattr__(name: str) -> object:
    """Import a name that few need when it is asked for (PEP 562)."""
    if name == "core" or name in __all__:
        from importlib import import_module

        core = import_module(".core", __name__)
        return core if name == "core" else getattr(core, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
