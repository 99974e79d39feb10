"""The configuration of a sandbox: checked as the sandbox is made, and handed on whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ... import AuditLog, Policy
from ..limits import Limits
from ..secrets import Secret
from ..wire import Job


@dataclass(frozen=True)
class SandboxConfig:
    """What a sandbox was made with.

    Functions of the host are no part of it: they may lead to the sandbox, whose end needs this.
    """

    policy: Policy
    limits: Limits
    env: Mapping[str, str]
    path: Sequence[str]
    #: The directory that counts as its disk.
    base: str
    #: The package `sandlock`, if the kernel holds the policy.
    kernel: Any
    in_container: bool
    asks: bool
    #: The most that answers of the host may open, besides the policy.
    up_to: Policy | None
    secrets: Sequence[Secret]
    log: AuditLog | None

    @property
    def directory(self) -> Path:
        """The directory of the code, which it may write."""
        return Path(self.base, "work")

    def job(
        self,
        code: str,
        file: str,
        args: Sequence[str] = (),
        *,
        value: bool = False,
        cwd: str | None = None,
        session: bool = False,
        asks: bool = False,
    ) -> Job:
        """The code for a process of it, or a session's without code; see `Job`."""
        return {
            "code": code,
            "file": file,
            "args": [str(arg) for arg in args],
            "path": [*self.path],
            "value": bool(value),
            "cwd": cwd,
            "session": session,
            "asks": asks,
            "logs": self.log is not None,
            "cpu_seconds": self.limits.cpu_seconds,
            "disk": cast("int | None", self.limits.disk),
        }
