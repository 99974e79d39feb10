"""A `Policy` in the shape of a process-wide sandbox of audit hooks.

``install_sandbox(SandboxPolicy(...))`` turns a `Policy` on for the whole process, for good.
"""

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from ._native import Policy, _raise_violations, installed_policy
from .denied import AuditDenied, SandboxViolation

__all__ = [
    "DANGEROUS_MODULES",
    "SandboxPolicy",
    "SandboxViolation",
    "get_policy",
    "install_sandbox",
    "is_sandbox_installed",
]

DANGEROUS_MODULES = ("ctypes", "_ctypes", "cffi", "_cffi_backend", "pty", "code", "codeop")
"""The modules that ``block_dangerous_imports`` blocks: memory, terminals, interpreters."""

_LOGGER = logging.getLogger("fastaudit_rs")


@dataclass(frozen=True)
class SandboxPolicy:
    """Rules for code in the process.

    Args:
        allowed_paths: Paths that may be written, ``None`` for anywhere. ``'.'`` is the current
            directory as the guard is made. A path outside is denied for writing; anything may be
            read but `blocked_paths`.
        blocked_paths: Paths that may neither be read nor written, inside an allowed path as well.
        block_network: True if connecting, listening, sending and look-ups are denied.
        block_subprocess: True if starting programs is denied.
        block_dangerous_imports: True if the modules of ``DANGEROUS_MODULES`` may not be imported.
        blocked_modules: Further modules that may not be imported.
        log_violations: True if violations go to ``logging.getLogger('fastaudit_rs')``.
        raise_on_violation: True if violations are stopped with `SandboxViolation`; else they
            proceed.
    """

    allowed_paths: "Iterable[str | os.PathLike[str]] | None" = ("/tmp",)
    blocked_paths: "Iterable[str | os.PathLike[str]]" = ("/etc", "/proc", "/sys", "/dev")
    block_network: bool = True
    block_subprocess: bool = True
    block_dangerous_imports: bool = True
    blocked_modules: "Iterable[str]" = ()
    log_violations: bool = True
    raise_on_violation: bool = True

    def __post_init__(self) -> None:
        for field in ("allowed_paths", "blocked_paths", "blocked_modules"):
            value = getattr(self, field)
            if isinstance(value, (str, bytes, os.PathLike)):
                raise TypeError(f"{field} must be an iterable, not one {type(value).__name__}")
            if value is not None:
                object.__setattr__(self, field, tuple(value))
        for switch in fields(self):
            value = getattr(self, switch.name)
            if isinstance(switch.default, bool) and not isinstance(value, bool):
                raise TypeError(f"{switch.name} must be True or False, not {value!r}")
        self.to_policy()

    def to_policy(self) -> Policy:
        """The `Policy` with these rules.

        Raises:
            TypeError: A field has the wrong type.
            ValueError: A path or a module's name is not accepted.
        """
        dangerous = DANGEROUS_MODULES if self.block_dangerous_imports else ()
        on_violation: Any = "raise"
        if not self.raise_on_violation:
            on_violation = "log" if self.log_violations else _proceed
        return Policy(
            on_violation=on_violation,
            write=self.allowed_paths,
            block=self.blocked_paths,
            protect=False,
            commands=not self.block_subprocess,
            env=True,
            threads="inherit",
            native=True,
            imports={"block": (*self.blocked_modules, *dangerous)},
            network=not self.block_network,
        )


_installed: SandboxPolicy | None = None


def install_sandbox(policy: SandboxPolicy | None = None) -> None:
    """Turn a policy on for the whole process and every thread, for good.

    Args:
        policy: The rules for code; `SandboxPolicy()` by default.

    Raises:
        TypeError: ``policy`` is not a `SandboxPolicy`.
        RuntimeError: A policy is installed already, and this one allows something that it does not.
    """
    global _installed
    if policy is None:
        policy = SandboxPolicy()
    if not isinstance(policy, SandboxPolicy):
        raise TypeError(f"policy must be a SandboxPolicy, not {type(policy).__name__}")
    on_denied = _log if policy.log_violations and policy.raise_on_violation else None
    policy.to_policy().install(on_denied=on_denied)
    _raise_violations()
    _installed = policy


def is_sandbox_installed() -> bool:
    """Return whether a policy is in force in the whole process."""
    return installed_policy() is not None


def get_policy() -> SandboxPolicy | None:
    """Return the rules that `install_sandbox` installed last; ``None`` if it did not."""
    return _installed


def _proceed(violation: AuditDenied) -> None:
    """Let it proceed: it harms nobody."""


def _log(violation: AuditDenied) -> None:
    _LOGGER.warning("%s", violation.message, extra={"fastaudit": violation.to_dict()})
