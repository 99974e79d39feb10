"""The names of the package for tools that read it without running it."""

from ..results import Result as Result
from ..sessions.errors import SandboxError as SandboxError
from ..timeline import Request as Request
from .host.commands import SandboxCommands as SandboxCommands
from .host.guest_files import FileInfo as FileInfo, SandboxFiles as SandboxFiles
from .host.manager import HistoryEntry as HistoryEntry, SandboxManager as SandboxManager
from .host.pool import Pool as Pool
from .host.review import Change as Change
from .host.sandbox import Sandbox as Sandbox
from .host.session import SandboxSession as SandboxSession
from .install import Install as Install
from .limits import Limits as Limits
from .secrets import Secret as Secret

__all__ = [
    "Change",
    "FileInfo",
    "HistoryEntry",
    "Install",
    "Limits",
    "Pool",
    "Request",
    "Result",
    "Sandbox",
    "SandboxCommands",
    "SandboxError",
    "SandboxFiles",
    "SandboxManager",
    "SandboxSession",
    "Secret",
]
