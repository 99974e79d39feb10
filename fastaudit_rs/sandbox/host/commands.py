"""Programs that a host runs in a sandbox."""

import os
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ..._keywords import checked, twin
from ...results import Result
from ..wire import Command
from .runner import RunRequest
from .setup import plain_text, variables

#: The characters of a command, which go with the head of a message.
LONGEST = 100_000


class SandboxCommands:
    r"""Runs programs in a sandbox: `Sandbox.commands`, `SandboxSession.commands`.

    The policy must allow them (``commands``), and a shell for a text; otherwise the result has the
    denial. Programs of a session run in its working directory, with its variables of the
    environment; each is a step.

    Examples:
        >>> policy = Policy.preset("sandbox").replace(commands=["/bin/sh", "wc"])
        >>> with Sandbox(policy) as sandbox:
        ...     ran = sandbox.commands.run("wc -w; exit 3", stdin="one two")
        ...     ran.stdout, ran.returncode
        ('2\n', 3)
    """

    def __init__(
        self,
        run: Callable[[RunRequest], Result],
        arun: Callable[[RunRequest], Awaitable[Result]],
    ) -> None:
        self._run = run
        self._arun = arun

    @checked("commands.run")
    def run(
        self,
        command: str | Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes = b"",
        timeout: float | None = None,
    ) -> Result:
        """Run a program, and wait for it.

        Args:
            command: The program and its arguments; a text is a command of a shell.
            cwd: The directory where it begins; the current one of the sandbox or the session by
                default.
            env: Variables besides those that code has there.
            stdin: What it reads from its standard input.
            timeout: The seconds that it may take; the limit of the sandbox or the session by
                default.

        Returns:
            The result. ``returncode`` is 128 and the number of a signal that ended the program, 127
            if there is no such program, and 77 if the policy denied it.

        Raises:
            RuntimeError: It is closed, or the session runs a step already.
            SandboxError: A process that is to run it does not start, or has ended.
            TypeError: An argument has another type.
            ValueError: An argument has a wrong value.
        """
        return self._run(_request(command, cwd, env, stdin, timeout))

    @twin("commands.arun", run)
    async def arun(self, command: Any, **given: Any) -> Result:
        """Run a program as `run` does, without stopping the event loop. Cancelling it ends it."""
        return await self._arun(_request(command, **given))


def _request(
    command: object,
    cwd: object = None,
    env: object = None,
    stdin: str | bytes = b"",
    timeout: float | None = None,
) -> RunRequest:
    words: list[str] | str
    if isinstance(command, str):
        words = plain_text("command", command)
    elif isinstance(command, Sequence) and not isinstance(command, (bytes, bytearray, memoryview)):
        words = [plain_text("command", word) for word in command]
    else:
        kind = type(command).__name__
        raise TypeError(f"command must be a str or a list of str, not {kind}")
    if not words or words[0] == "":
        raise ValueError("command must name a program")
    if env is not None and not isinstance(env, Mapping):
        raise TypeError(f"env must be a mapping from names, not {type(env).__name__}")
    given = variables(env or {})
    place = None if cwd is None else plain_text("cwd", cwd)
    length = sum(map(len, (*words, place or "", *given, *given.values())))
    if length > LONGEST:
        raise ValueError(
            f"command must have at most {LONGEST} characters with its variables, not {length}: "
            "stdin= takes more"
        )
    # The history has its words.
    text = words if isinstance(words, str) else shlex.join(words)
    made = Command(words, place, given)
    return RunRequest(text, stdin=stdin, timeout=timeout, command=made)
