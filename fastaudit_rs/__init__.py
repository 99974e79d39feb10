"""A guard for running LLM-generated Python in a normal process, without accidental damage.

``mk_audit(roots)`` makes a guard; code run ``with audit_perms():`` may write only below the
approved roots and may not start processes, load libraries or call unknown native code.
"""

from ._native import (
    AuditCfg,
    AuditPerms,
    Effect,
    Explanation,
    Guard,
    Network,
    Policy,
    Recording,
    __version__,
    installed_policy,
)
from .core import mk_audit
from .denied import AuditDenied, AuditWarning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .as_fastaudit import install_as_fastaudit

__all__ = [
    "AuditCfg",
    "AuditDenied",
    "AuditPerms",
    "AuditWarning",
    "Effect",
    "Explanation",
    "Guard",
    "Network",
    "Policy",
    "Recording",
    "__version__",
    "install_as_fastaudit",
    "installed_policy",
    "mk_audit",
]


def __getattr__(name: str) -> object:
    """Import what few need when it is asked for (PEP 562)."""
    if name == "install_as_fastaudit":
        from .as_fastaudit import install_as_fastaudit

        return install_as_fastaudit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
