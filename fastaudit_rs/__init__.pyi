"""The names of the package for tools that read it without running it.

Without "as" some tools take a stub's imports for its own names.
"""

from ._native import (
    AuditCfg as AuditCfg,
    AuditLog as AuditLog,
    AuditPerms as AuditPerms,
    Effect as Effect,
    Explanation as Explanation,
    Guard as Guard,
    Network as Network,
    Policy as Policy,
    Recording as Recording,
    Tool as Tool,
    __version__ as __version__,
    installed_policy as installed_policy,
)
from .approvals import Answer as Answer, Approvals as Approvals
from .as_fastaudit import install_as_fastaudit as install_as_fastaudit
from .core import mk_audit as mk_audit
from .denied import AuditDenied as AuditDenied, AuditWarning as AuditWarning, ToolError as ToolError
from .guarded_functions import guarded as guarded
from .pending import Pending as Pending
from .results import Result as Result
from .sandbox.host.manager import SandboxManager as SandboxManager
from .sandbox.host.sandbox import Sandbox as Sandbox
from .sandbox.install import Install as Install
from .sandbox.limits import Limits as Limits
from .sandbox.secrets import Secret as Secret
from .sessions.base import Session as Session, Snapshot as Snapshot
from .sessions.errors import SandboxError as SandboxError
from .sessions.manager import SessionManager as SessionManager
from .sessions.servers import MCP as MCP
from .sessions.store import DirectoryStore as DirectoryStore
from .timeline import Request as Request
from .tools.notebook import (
    load_ipython_extension as load_ipython_extension,
    unload_ipython_extension as unload_ipython_extension,
)
