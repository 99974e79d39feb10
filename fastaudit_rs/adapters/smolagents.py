"""The executor of a `CodeAgent` of smolagents: its code runs in a session."""

import ast
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from io import BytesIO
from typing import Any

from .. import Policy
from .._for_model import readable
from .._text import valid, written
from .._threads import Closing
from ..results import Result, swallowed
from ..sessions.arguments import seconds
from ..sessions.base import Session
from .steps import Place, Steps, missing

try:
    from PIL import Image  # smolagents needs it.

    # It has no types. `mypy.stubtest` reads no settings that say so.
    from smolagents.local_python_executor import (  # type: ignore[import-untyped,unused-ignore]
        BASE_BUILTIN_MODULES,
        CodeOutput,
        ExecutionTimeoutError,
        InterpreterError,
        PrintContainer,
        PythonExecutor,
    )
    from smolagents.utils import (  # type: ignore[import-untyped,unused-ignore]
        truncate_content,
    )
except ImportError as error:
    raise missing(__name__, "smolagents 1.24 or newer") from error

#: The seconds that a step may take, and the characters that are kept of its output, as of
#: smolagents' own executor.
SECONDS, PRINTED = 30.0, 50_000

#: The pixels of the images of a step.
PIXELS = 40_000_000

#: The name that the code calls to end an agent's run.
_FINAL = "final_answer"


class GuardedExecutor(Closing, PythonExecutor):  # type: ignore[misc]
    r"""Runs an agent's code under a policy: all of Python, and tools with the host's rights.

    It is given to an agent, whose ``cleanup()`` closes it: ``CodeAgent(tools, model,
    executor=GuardedExecutor(policy), additional_authorized_imports=["*"])``. The last argument is
    for the prompt, which tells the model then that it may import anything. The agent takes
    ``instructions=executor.rules_for_model()`` and ``step_callbacks=[executor.observe_images]``.

    The value of a step is that of its last expression or assignment, by value, or its ``repr()``.
    ``final_answer`` ends the step. Denials that code swallows are told below its output.

    Args:
        policy: The policy of the code; or a session, which is the host's to close.
        place: In this process, or in a sandbox: a process that the kernel confines.
        authorized_imports: Modules that may be imported besides those that smolagents allows, as
            ``imports`` of the policy, ``["*"]`` for all; by default the policy is left as it is.
            Modules that were imported already can be used: let the policy hold what they do.
        max_print_outputs_length: The characters of output that are kept.
        timeout: The seconds that a step may take; ``None`` for those of the session, which has no
            limit of its own in this process and ``limits.wall_seconds`` in a sandbox.
        **options: Other arguments of `Policy.session` or `Sandbox.session`: ``tools``,
            ``on_ask``; ``directory`` in this process, ``limits`` and ``approvable`` in a sandbox.

    Raises:
        InterpreterError: A module of ``authorized_imports`` is not installed.
        SandboxError: The sandbox does not start.
        TypeError: An argument has another type, or there is no such argument.
        ValueError: An argument has a wrong value.

    Examples:
        >>> executor = GuardedExecutor(Policy.preset("workspace"))
        >>> executor("print('hi')\nx = 6 * 7")
        CodeOutput(output=42, logs='hi\n', is_final_answer=False)
    """

    def __init__(
        self,
        policy: Policy | Session,
        place: Place = "here",
        *,
        authorized_imports: Iterable[str] | None = None,
        max_print_outputs_length: int = PRINTED,
        timeout: float | None = SECONDS,
        **options: Any,
    ) -> None:
        if authorized_imports is not None:
            if not isinstance(policy, Policy):
                raise TypeError("authorized_imports needs a policy, not a session")
            policy = _importing(policy, authorized_imports)
        self._seconds = seconds("timeout", timeout)
        self._most = max_print_outputs_length
        self._steps = Steps(policy, place, **options)
        self._tools: dict[str, Callable[..., Any]] = {}
        self._answers: list[Any] = []
        #: The images of steps that no observation has yet.
        self._images: list[bytes] = []
        #: The names of the code, with ``_print_outputs``, which the agent reads at an error.
        self.state = State(self._steps.opened)

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Give the code variables: data, arrays and frames.

        Raises:
            TypeError: One is nothing of that.
        """
        if variables:
            self._steps.run("", variables=variables)

    def send_tools(self, tools: dict[str, Callable[..., Any]]) -> None:
        """Give each step tools of the host; they take back their names from earlier steps."""
        self._tools = dict(tools)
        if _FINAL in tools:
            self._tools[_FINAL] = self._final(tools[_FINAL])

    def __call__(self, code_action: str) -> CodeOutput:
        """Run a step.

        Raises:
            ExecutionTimeoutError: It took longer than it may.
            InterpreterError: An exception or a limit ended it; the message has a denial's hint.
        """
        self._answers.clear()
        ran = self._steps.run(_valued(code_action), tools=self._tools, timeout=self._seconds)
        self._images = ran.content_for_model().images
        logs = truncate_content(_logs(ran), max_length=self._most)
        self.state.printed = PrintContainer().append(logs)
        if self._answers:
            return CodeOutput(output=self._answers[0], logs=logs, is_final_answer=True)
        if ran.timed_out:
            limit = f" of {self._seconds:g} seconds" if self._seconds else ""
            raise ExecutionTimeoutError(
                f"Code execution exceeded the maximum execution time{limit}"
            )
        if not ran.success:
            raise InterpreterError(valid(readable(_failure(code_action, ran))))
        return CodeOutput(output=_shown(ran.value), logs=logs, is_final_answer=False)

    def observe_images(self, memory_step: Any, agent: Any = None) -> None:
        """Give figures of a step to the model: ``CodeAgent(..., step_callbacks=[this])``."""
        images, self._images = self._images, []
        found: list[Any] = []
        left = PIXELS
        for image in images:
            # The code made it: it may be none, or unpack to far more than it is.
            with contextlib.suppress(Exception):
                opened = Image.open(BytesIO(image), formats=["PNG"])
                left -= opened.size[0] * opened.size[1]
                if left >= 0:
                    opened.load()
                    found.append(opened)
        if found:
            before = getattr(memory_step, "observations_images", None) or []
            memory_step.observations_images = [*before, *found]

    def rules_for_model(self) -> str:
        """What the code may do: ``CodeAgent(..., instructions=executor.rules_for_model())``."""
        return self._steps.opened.rules_for_model()

    def close(self) -> None:
        """Close the session that was opened here."""
        self._steps.close()

    #: The name by which an agent closes it.
    cleanup = close

    def _final(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        session = self._steps.opened

        def final_answer(*args: Any, **kwargs: Any) -> None:
            self._answers.append(_shown(answer(*args, **kwargs)))
            # Code that catches the interrupt is ended like code that takes too long.
            session.interrupt()

        return final_answer


class State(Mapping[str, Any]):
    """The names of a session and their values, by value."""

    def __init__(self, session: Session) -> None:
        self._session = session
        #: The output of the last step.
        self.printed = PrintContainer()

    def __getitem__(self, name: str) -> Any:
        """The value of a name."""
        if name == "_print_outputs":
            return self.printed
        return "__main__" if name == "__name__" else self._session.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(["__name__", "_print_outputs", *self._session.names])

    def __len__(self) -> int:
        return len(self._session.names) + 2

    def __contains__(self, name: object) -> bool:
        """True if there is a name, whatever its value is."""
        return name in ("__name__", "_print_outputs") or name in self._session.names


def _shown(value: Any) -> Any:
    """The value; the reason in its place if it has no `str()`, which the agent calls."""
    try:
        str(value)
    except (ValueError, RecursionError):
        return written(value)
    return valid(value) if isinstance(value, str) else value


def _importing(policy: Policy, modules: Iterable[str]) -> Policy:
    """The policy with the modules of smolagents' list; ``"*"`` leaves it as it is."""
    if isinstance(modules, str):
        raise TypeError(f"authorized_imports must be a list of names: write [{modules!r}]")
    names = {name.removesuffix(".*") for name in modules}
    packages = {name.partition(".")[0] for name in names - {"*"}}
    missing = sorted(package for package in packages if find_spec(package) is None)
    if missing:
        raise InterpreterError(
            f"Non-installed authorized modules: {', '.join(missing)}: install them, or leave them "
            "out of authorized_imports"
        )
    return policy if "*" in names else policy.replace(imports=[*BASE_BUILTIN_MODULES, *names])


def _valued(code: str) -> str:
    """The code with the name of its last assignment as an expression, if it ends by one."""
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        # The step tells why.
        return code
    targets: list[ast.expr] = []
    if body and isinstance(body[-1], ast.Assign):
        targets = body[-1].targets
    elif body and isinstance(body[-1], (ast.AugAssign, ast.AnnAssign)):
        targets = [body[-1].target] if body[-1].value is not None else []
    named = [ast.unparse(target) for target in targets if _is_named(target)]
    return f"{code}\n{named[-1]}" if named else code


def _is_named(target: ast.expr) -> bool:
    """True if the target of an assignment is a name, or names: to read them does nothing."""
    names = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    return all(isinstance(name, ast.Name) for name in names)


def _logs(ran: Result) -> str:
    """The output of a step, and the denials that it swallowed."""
    parts = (
        ran.stdout,
        ran.stderr,
        swallowed(ran),
        ran.value_error and f"No value: {ran.value_error}",
    )
    text = "\n".join(part.removesuffix("\n") for part in parts if part)
    return valid(readable(text)) + "\n" * any(parts)


def _failure(code: str, ran: Result) -> str:
    """The message of a step that failed, in the words of smolagents' executor."""
    if ran.error is None:
        how = f"the limit {ran.killed_by}" if ran.killed_by else f"exit status {ran.returncode}"
        return f"Code execution was ended by {how}"
    if ran.error.kind in ("SyntaxError", "IndentationError", "TabError"):
        return f"Code parsing failed on line {ran.error.line} due to: {ran.error.traceback.strip()}"
    lines = code.splitlines()
    number = ran.error.line or 0
    where = f" at line '{lines[number - 1].strip()}'" if 0 < number <= len(lines) else ""
    return f"Code execution failed{where} due to: {ran.error}"
