"""A toolset for agents of Pydantic AI with a tool that runs Python in a session."""

from typing import Any

from .. import Policy
from .._threads import in_thread
from ..sessions.arguments import Tools
from ..sessions.base import Session
from .steps import Place, Steps, check, described, missing, rules_of

try:
    from pydantic_ai import BinaryContent, FunctionToolset, RunContext, ToolReturn
    from pydantic_ai.toolsets import AbstractToolset
except ImportError as error:
    raise missing(__name__, "pydantic-ai-slim") from error


class PythonToolset(FunctionToolset[Any]):
    """A toolset with a tool that runs a model's code in a session: names last from call to call.

    Each run of an agent has a session of its own, which ends with it; if a session is given in the
    place of a policy, all runs share it. The answer is `Result.content_for_model`: text, and images
    for the model. Its metadata has the rest of the result as data: denials, figures, files that
    changed (`fastaudit_rs.adapters.steps.as_data`).

    Args:
        policy: The policy of the code; or a session, which is the host's to close.
        place: In this process, or in a sandbox: a process that the kernel confines.
        name: The name of the tool.
        description: Its description for the model; the default tells of the tools, and of what the
            code may do.
        id: The id of the toolset.
        tools: Functions of the host that the code may call, by name, with the host's rights.
        **options: Other arguments of `Policy.session` or `Sandbox.session`: ``timeout``,
            ``on_ask``; ``directory`` in this process, ``limits`` and ``approvable`` in a sandbox.

    Raises:
        TypeError: An argument has another type, or there is no such argument.
        ValueError: An argument has a wrong value.

    Examples:
        ``Agent(model, toolsets=[PythonToolset(Policy.preset("workspace"), timeout=60)])``
    """

    def __init__(
        self,
        policy: Policy | Session,
        place: Place = "here",
        *,
        name: str = "python",
        description: str | None = None,
        id: str | None = None,
        tools: Tools | None = None,
        **options: Any,
    ) -> None:
        if tools is not None:
            options["tools"] = tools
        check(policy, place, **options)
        super().__init__(id=id)
        self._given = (policy, place, options)
        self._name, self._description = name, description
        if description is None:
            self._description = described(tools, rules_of(policy, place, **options))
        self._steps = Steps(policy, place, **options) if isinstance(policy, Session) else None
        self.add_function(
            self._run_python, takes_ctx=False, name=self._name, description=self._description
        )

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        """The toolset of a run, with a session of its own, which is opened when it is entered."""
        if isinstance(self._given[0], Session):
            return self
        return _OfRun(self)

    async def _run_python(self, code: str) -> ToolReturn:
        """Run Python code.

        Args:
            code: The Python code.
        """
        if self._steps is None:
            raise RuntimeError("a toolset that is given a policy runs code in a run of an agent")
        found, metadata = await self._steps.told(code)
        images = [BinaryContent(image, media_type="image/png") for image in found.images]
        answer = [found.text, *images] if images else found.text
        return ToolReturn(return_value=answer, metadata=metadata)


class _OfRun(PythonToolset):
    """The toolset of a run."""

    def __init__(self, of: PythonToolset) -> None:
        policy, place, options = of._given
        super().__init__(
            policy, place, name=of._name, description=of._description, id=of.id, **options
        )

    async def __aenter__(self) -> "_OfRun":
        policy, place, options = self._given
        self._steps = await in_thread(Steps, policy, place, **options)
        return self

    async def __aexit__(self, *args: Any) -> None:
        if self._steps is not None:
            await in_thread(self._steps.close)
