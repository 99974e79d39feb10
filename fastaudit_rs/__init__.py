"""A guard for running LLM-generated Python in a normal process, without accidental damage.

``mk_audit(roots)`` makes a guard; code run ``with audit_perms():`` may write only below the
approved roots and may not start processes, load libraries or call unknown native code.
"""

from ._native import (
    AuditCfg,
    AuditLog,
    AuditPerms,
    Effect,
    Explanation,
    Guard,
    Network,
    Policy,
    Recording,
    Tool,
    __version__,
    installed_policy,
)
from .core import mk_audit
from .denied import AuditDenied, AuditWarning, ToolError

# Names that few need, and their modules: imported when they are asked for (PEP 562).
_LATER = {
    "Answer": "approvals",
    "Approvals": "approvals",
    "DirectoryStore": "sessions.store",
    "Install": "sandbox.install",
    "Limits": "sandbox.limits",
    "MCP": "sessions.servers",
    "Pending": "pending",
    "Request": "timeline",
    "Result": "results",
    "Sandbox": "sandbox.host.sandbox",
    "SandboxError": "sessions.errors",
    "SandboxManager": "sandbox.host.manager",
    "Secret": "sandbox.secrets",
    "Session": "sessions.base",
    "SessionManager": "sessions.manager",
    "Snapshot": "sessions.base",
    "guarded": "guarded_functions",
    "install_as_fastaudit": "as_fastaudit",
    "load_ipython_extension": "tools.notebook",
    "unload_ipython_extension": "tools.notebook",
}

# pyright: reportUnsupportedDunderAll=false
# The names for IPython are left out: `import *` is also used where it is not installed.
__all__ = [
    "AuditCfg",
    "AuditDenied",
    "AuditLog",
    "AuditPerms",
    "AuditWarning",
    "Effect",
    "Explanation",
    "Guard",
    "Network",
    "Policy",
    "Recording",
    "Tool",
    "ToolError",
    "__version__",
    "installed_policy",
    "mk_audit",
    *(name for name in _LATER if not name.endswith("_ipython_extension")),
]


def __getattr__(name: str) -> object:
    """Import a name that few need when it is asked for (PEP 562)."""
    from importlib import import_module

    if name in _LATER:
        return getattr(import_module(f".{_LATER[name]}", __name__), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    if not name.startswith("_"):
        message += import_module("._near", __name__).elsewhere(name)
    raise AttributeError(message, name=name, obj=import_module(__name__))


def __dir__() -> list[str]:
    """List the public names, also those that are imported later."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
