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
    "installed_policy",
    "mk_audit",
]
