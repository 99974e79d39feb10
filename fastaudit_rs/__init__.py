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
    from .guarded_functions import guarded
    from .limits import Limits
    from .notebook import load_ipython_extension as load_ipython_extension
    from .notebook import unload_ipython_extension as unload_ipython_extension
    from .sandbox import Sandbox
    from .sandbox_manager import SandboxManager
    from .sandbox_process import SandboxError

# The two of IPython are not for `import *`, which is used where there is none.
__all__ = [
    "AuditCfg",
    "AuditDenied",
    "AuditPerms",
    "AuditWarning",
    "Effect",
    "Explanation",
    "Guard",
    "Limits",
    "Network",
    "Policy",
    "Recording",
    "Sandbox",
    "SandboxError",
    "SandboxManager",
    "__version__",
    "guarded",
    "install_as_fastaudit",
    "installed_policy",
    "mk_audit",
]


def __getattr__(name: str) -> object:
    """Import what few need when it is asked for (PEP 562)."""
    if name == "install_as_fastaudit":
        from .as_fastaudit import install_as_fastaudit

        return install_as_fastaudit
    if name == "Sandbox":
        from .sandbox import Sandbox

        return Sandbox
    if name == "SandboxError":
        from .sandbox_process import SandboxError

        return SandboxError
    if name == "SandboxManager":
        from .sandbox_manager import SandboxManager

        return SandboxManager
    if name == "Limits":
        from .limits import Limits

        return Limits
    if name == "guarded":
        from .guarded_functions import guarded

        return guarded
    if name in ("load_ipython_extension", "unload_ipython_extension"):
        from . import notebook

        return getattr(notebook, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
