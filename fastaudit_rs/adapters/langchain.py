"""A tool for agents of LangChain and LangGraph that runs Python in a session."""

import asyncio
import base64
import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Literal

from .. import Policy
from .._text import valid
from ..results import Result
from ..sessions.base import Session, Tools
from ..sessions.pieces import Output
from .steps import Place, Steps, as_data, described

try:
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import BaseTool
    from langchain_core.tools.base import ArgsSchema
    from pydantic import BaseModel, Field, PrivateAttr
except ImportError as error:
    raise ImportError(
        "fastaudit_rs.adapters.langchain needs langchain-core: "
        "pip install 'fastaudit-rs[langchain]'"
    ) from error


#: The id of the call that this context is in.
_call: ContextVar[str | None] = ContextVar("fastaudit_rs_call", default=None)


@contextlib.contextmanager
def _noted(call: str | None) -> Iterator[None]:
    before = _call.set(call)
    try:
        yield
    finally:
        _call.reset(before)


class Arguments(BaseModel):
    """The arguments of the tool."""

    code: str = Field(description="The Python code.")


class PythonTool(BaseTool):
    """A tool that runs Python in a session; `python_tool` makes it.

    The content of its message is `Result.content_for_model`: text, and blocks of images. The
    artifact has the rest of the result as data: denials, figures, files that changed
    (`fastaudit_rs.adapters.steps.as_data`). The status of the message is ``"error"`` after an
    exception, an uncaught denial or a limit. In a graph that is streamed in the mode ``"custom"``
    the output comes as it is written: ``{"tool": name, "stream": "stdout", "text": text}``.
    """

    args_schema: ArgsSchema | None = Arguments
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    #: True if the model gets figures as images.
    images: bool = True
    _steps: Steps = PrivateAttr()

    def run(self, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        """Run the tool; see `BaseTool.run`."""
        with _noted(tool_call_id):
            return super().run(*args, tool_call_id=tool_call_id, **kwargs)

    async def arun(self, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        """Run the tool; see `BaseTool.arun`."""
        with _noted(tool_call_id):
            return await super().arun(*args, tool_call_id=tool_call_id, **kwargs)

    def _run(self, code: str) -> tuple[Any, dict[str, Any]]:
        return self._told(self._steps.run(code, on_output=self._writer()))

    async def _arun(self, code: str) -> tuple[Any, dict[str, Any]]:
        ran = await self._steps.arun(code, self._writer())
        return await asyncio.to_thread(self._told, ran)

    def _told(self, ran: Result) -> tuple[Any, dict[str, Any]]:
        found = ran.content_for_model()
        content: Any = found.text
        if self.images and found.images:
            content = [{"type": "text", "text": found.text}]
            for image in found.images:
                data = base64.b64encode(image).decode()
                content.append({"type": "image", "base64": data, "mime_type": "image/png"})
        artifact = as_data(ran, self.session)
        call = _call.get()
        if found.is_error and call is not None:
            # An error that is raised instead has no artifact.
            content = ToolMessage(
                content, tool_call_id=call, name=self.name, status="error", artifact=artifact
            )
        return content, artifact

    def _writer(self) -> Callable[[Output], object] | None:
        """The function that tells output to whoever streams the graph."""
        try:
            from langgraph.config import get_stream_writer

            write = get_stream_writer()
        except (ImportError, KeyError, RuntimeError):
            # It runs in no graph.
            return None
        name = self.name
        return lambda output: write(
            {"tool": name, "stream": output.name, "text": valid(output.text)}
        )

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
    images: bool = True,
    **options: Any,
) -> PythonTool:
    r"""Make a tool that runs a model's code in a session: names last from call to call.

    Calls run one after another, from threads and event loops; ``ainvoke`` leaves the loop to
    others. A tool is for one conversation: others have others. Close it at the end.

    Args:
        policy: The policy of the code; or a session, which is the host's to close.
        place: In this process, or in a sandbox: a process that the kernel confines.
        name: The name of the tool.
        description: Its description for the model; the default tells of the tools, and of what the
            code may do.
        tools: Functions of the host that the code may call, by name, with the host's rights.
        images: False if the model takes no images in messages of tools.
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
    rules = steps.session.rules_for_model()
    tool = PythonTool(name=name, description=description or described(tools, rules), images=images)
    tool._steps = steps
    return tool
