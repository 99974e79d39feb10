"""A tool for agents of LangChain and LangGraph that runs Python in a session."""

from typing import Any, Literal

from .. import Policy
from ..sessions.base import Session, Tools
from .steps import Place, Steps, as_data, described

try:
    from langchain_core.tools import BaseTool
    from langchain_core.tools.base import ArgsSchema
    from pydantic import BaseModel, Field, PrivateAttr
except ImportError as error:
    raise ImportError(
        "fastaudit_rs.adapters.langchain needs langchain-core: "
        "pip install 'fastaudit-rs[langchain]'"
    ) from error


class Arguments(BaseModel):
    """The arguments of the tool."""

    code: str = Field(description="The Python code.")


class PythonTool(BaseTool):
    """A tool that runs Python in a session; `python_tool` makes it.

    The content of its message is `Result.for_model`, the artifact has the rest of the result as
    data: denials, figures, files that changed (`fastaudit_rs.adapters.steps.as_data`).
    """

    args_schema: ArgsSchema | None = Arguments
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    _steps: Steps = PrivateAttr()

    def _run(self, code: str) -> tuple[str, dict[str, Any]]:
        ran = self._steps.run(code)
        return ran.for_model(), as_data(ran)

    async def _arun(self, code: str) -> tuple[str, dict[str, Any]]:
        ran = await self._steps.arun(code)
        return ran.for_model(), as_data(ran)

    def __enter__(self) -> "PythonTool":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def session(self) -> Session:
        """The session that code runs in."""
        return self._steps.session

    def close(self) -> None:
        """Close the session that was opened for it."""
        self._steps.close()


def python_tool(
    policy: Policy | Session,
    place: Place = "here",
    *,
    name: str = "python",
    description: str | None = None,
    tools: Tools | None = None,
    **options: Any,
) -> PythonTool:
    r"""Make a tool that runs a model's code in a session: names last from call to call.

    Calls run one after another, from threads and event loops; ``ainvoke`` leaves the loop to
    others. A tool is for one conversation: others have others. Close it at the end.

    Args:
        policy: The policy of the code; or a session, which is the host's to close.
        place: In this process, or in a sandbox: a process that the kernel confines.
        name: The name of the tool.
        description: Its description for the model; the default tells of the tools.
        tools: Functions of the host that the code may call, by name, with the host's rights.
        **options: Other arguments of `Policy.session` or `Sandbox.session`: ``timeout``,
            ``on_ask``; ``directory`` in this process, ``limits`` and ``approvable`` in a sandbox.

    Raises:
        SandboxError: The sandbox does not start.
        TypeError: An argument has another type, or there is no such argument.
        ValueError: An argument has a wrong value.

    Example:
        >>> with python_tool(Policy.preset("workspace"), timeout=60) as tool:
        ...     tool.invoke({"code": "x = 6"}), tool.invoke({"code": "x * 7"})
        ('It ran, and printed nothing.', 'value:\n42')
    """
    if tools is not None:
        options["tools"] = tools
    steps = Steps(policy, place, **options)
    tool = PythonTool(name=name, description=description or described(tools))
    tool._steps = steps
    return tool
