"""Sandboxes: code in a process of its own, with a guard inside and the kernel around it.

``host`` runs in the host's process, ``inside`` in the sandbox's. Names are imported when they are
asked for (PEP 562): a sandbox's process needs few.
"""

_LATER = {
    "Change": "host.review",
    "FileInfo": "host.guest_files",
    "HistoryEntry": "host.manager",
    "Install": "install",
    "Limits": "limits",
    "Pool": "host.pool",
    "Request": "..timeline",
    "Result": "..results",
    "Sandbox": "host.sandbox",
    "SandboxCommands": "host.commands",
    "SandboxError": "..sessions.errors",
    "SandboxFiles": "host.guest_files",
    "SandboxManager": "host.manager",
    "SandboxSession": "host.session",
    "Secret": "secrets",
}

# pyright: reportUnsupportedDunderAll=false
__all__ = [*_LATER]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _LATER:
        return getattr(import_module(f".{_LATER[name]}".replace("...", ".."), __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted(__all__)
