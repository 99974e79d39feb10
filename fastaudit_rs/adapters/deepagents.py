"""The backend of an agent of deepagents: its shell and its files are those of a sandbox."""

import os
from dataclasses import replace
from typing import Any

from .. import Policy
from .._for_model import clean
from .._threads import Closing
from ..results import Result
from ..sandbox.host.sandbox import Sandbox
from ..sandbox.limits import Limits
from .steps import missing

try:
    from deepagents.backends.protocol import (
        ExecuteResponse,
        FileDownloadResponse,
        FileUploadResponse,
    )
    from deepagents.backends.sandbox import BaseSandbox
except ImportError as error:
    raise missing(__name__, "deepagents") from error

#: Runs a command of the shell; Python of the sandbox is `python3` for it. What it leaves running
#: ends with the run.
_RUN = """\
import os, subprocess, sys
environment = {**os.environ, "PATH": os.path.dirname(sys.executable) + ":" + os.environ["PATH"]}
shell = subprocess.Popen(
    ["/bin/sh", "-c", sys.argv[1]],
    stdin=subprocess.DEVNULL,
    stderr=subprocess.STDOUT,
    env=environment,
)
try:
    sys.exit(shell.wait(float(sys.argv[2]) or None))
except subprocess.TimeoutExpired:
    shell.kill()
    print(f"The command was stopped after {sys.argv[2]} s.")
    sys.exit(124)
"""

#: Writes a file outside the sandbox's directory.
_WRITE = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())"

#: The characters that a model gets of a command's output, and the bytes of a file.
MOST, FILE = 100_000, 100_000_000


class SandboxBackend(Closing, BaseSandbox):  # type: ignore[misc,unused-ignore]
    """A backend whose files and commands are in a sandbox: ``create_deep_agent(backend=…)``.

    The tools of the agent work in the sandbox's directory, by absolute paths, and by programs: the
    kernel holds the policy for them. Files elsewhere are reached as the policy allows.

    Args:
        policy: The policy; the preset ``"sandbox"`` with ``commands=True`` by default. Or a
            sandbox, which is the host's to close.
        limits: The limits of each command.
        **options: Other arguments of `Sandbox`.

    Raises:
        SandboxError: The sandbox does not start.
        TypeError: An argument has another type, or there is no such argument.
        ValueError: The policy allows no programs.

    Examples:
        ``create_deep_agent(model, backend=backend, system_prompt=backend.rules_for_model())``
    """

    def __init__(
        self,
        policy: Policy | Sandbox | None = None,
        limits: Limits | None = None,
        **options: Any,
    ) -> None:
        if isinstance(policy, Sandbox):
            if limits is not None or options:
                names = ", ".join([*(["limits"] if limits is not None else []), *options])
                raise TypeError(f"{names}: a sandbox has them already; pass a policy in its place")
            self._sandbox, self._is_own = policy, False
        else:
            given = policy or Policy.preset("sandbox").replace(commands=True)
            self._sandbox, self._is_own = Sandbox(given, limits, **options), True
        if self._sandbox.policy.commands is False:
            self.close()
            raise ValueError(
                "policy must allow programs, by which the agent reads and writes files: "
                "write commands=True, or the shell and what it needs"
            )

    @property
    def id(self) -> str:
        """The name of the sandbox's directory, which no other one has."""
        return self._sandbox.directory.parent.name

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox."""
        return self._sandbox

    def rules_for_model(self) -> str:
        """What the agent may do: for its system prompt."""
        return self._sandbox.rules_for_model()

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command of the shell; a ``timeout`` of 0 is the limit of the sandbox alone.

        The tools for files parse its output.
        """
        return _response(self._sandbox.run(_RUN, args=[command, str(timeout or 0)]))

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Do the same without stopping the event loop; cancelling it ends the command."""
        return _response(await self._sandbox.arun(_RUN, args=[command, str(timeout or 0)]))

    def execute_with_offload(self, *args: Any, **options: Any) -> Any:
        """Run a command of the model's: its output is readable, and not too long."""
        return _for_model(super().execute_with_offload(*args, **options))

    async def aexecute_with_offload(self, *args: Any, **options: Any) -> Any:
        """Do the same without stopping the event loop."""
        return _for_model(await super().aexecute_with_offload(*args, **options))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files: in the sandbox's directory, or where its policy allows."""
        return [FileUploadResponse(path, self._failed(path, data)) for path, data in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files in the sandbox's directory; no link is followed."""
        return [self._read(path) for path in paths]

    def close(self) -> None:
        """Close the sandbox that was made for it."""
        if self._is_own:
            self._sandbox.close()

    def _failed(self, path: str, data: bytes) -> str | None:
        try:
            self._sandbox.write_file(path, data)
        except ValueError:
            # The file is outside the directory, where the policy may let code write.
            ran = self._sandbox.run(_WRITE, args=[path], stdin=data)
            return None if ran.success else "permission_denied"
        except OSError as error:
            return _error(error)
        return None

    def _read(self, path: str) -> FileDownloadResponse:
        try:
            return FileDownloadResponse(path, self._sandbox.read_file(path, max_bytes=FILE))
        except (OSError, ValueError) as error:
            return FileDownloadResponse(path, None, _error(error))


def _response(ran: Result) -> ExecuteResponse:
    output = ran.stdout + ran.stderr
    if ran.killed_by is not None or ran.violations:
        output = ran.for_model(MOST)
    return ExecuteResponse(output, ran.returncode)


def _for_model(found: Any) -> Any:
    output = found.response.output
    told = replace(found.response, output=clean(output, MOST), truncated=len(output) > MOST)
    return replace(found, response=told)


def _error(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "file_not_found"
    if isinstance(error, IsADirectoryError):
        return "is_directory"
    if isinstance(error, PermissionError):
        return "permission_denied"
    return "invalid_path" if isinstance(error, ValueError) else os.strerror(error.errno or 5)
