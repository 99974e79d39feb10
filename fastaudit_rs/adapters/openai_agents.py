"""A tool for agents of the OpenAI Agents SDK that runs Python in a session."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import Policy
from .._text import printable
from .._threads import Closing
from ..sessions.arguments import Tools
from ..sessions.base import Session
from .steps import Place, Steps, described, missing

try:
    from agents import FunctionTool, ToolOutputImage, ToolOutputText
except ImportError as error:
    raise missing(__name__, "openai-agents") from error

#: The arguments of the tool, as the strict mode of the service takes them.
SCHEMA = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "The Python code."}},
    "required": ["code"],
    "additionalProperties": False,
}

WRONG = "The arguments must be a JSON object with the text `code` alone, not {}"


@dataclass
class PythonFunctionTool(Closing, FunctionTool):  # type: ignore[misc,unused-ignore]
    """A tool that runs Python in a session; `python_tool` makes it.

    Its output is `Result.content_for_model`: text, and images. The item of the output has the rest
    of the result as data (`fastaudit_rs.adapters.steps.as_data`): ``item.custom_data``.
    """

    steps: Steps | None = None

    @property
    def session(self) -> Session:
        """The session that code runs in."""
        assert self.steps is not None
        return self.steps.opened

    def close(self) -> None:
        """Close the session that was opened for it."""
        if self.steps is not None:
            self.steps.close()


def python_tool(
    policy: Policy | Session,
    place: Place = "here",
    *,
    name: str = "python",
    description: str | None = None,
    tools: Tools | None = None,
    images: bool = True,
    **options: Any,
) -> PythonFunctionTool:
    """Make a tool that runs a model's code in a session: names last from call to call.

    Calls run one after another, and leave the event loop to others. A tool is for one conversation:
    others have others. Close it at the end.

    Args:
        policy: The policy of the code; or a session, which is the host's to close.
        place: In this process, or in a sandbox: a process that the kernel confines.
        name: The name of the tool.
        description: Its description for the model; the default tells of the tools, and of what the
            code may do.
        tools: Functions of the host that the code may call, by name, with the host's rights.
        images: False if the model takes no images as outputs of tools.
        **options: Other arguments of `Policy.session` or `Sandbox.session`: ``timeout``,
            ``on_ask``; ``directory`` in this process, ``limits`` and ``approvable`` in a sandbox.

    Raises:
        SandboxError: The sandbox does not start.
        TypeError: An argument has another type, or there is no such argument.
        ValueError: An argument has a wrong value.

    Examples:
        ``Agent("Analyst", tools=[python_tool(Policy.preset("workspace"), timeout=60)])``
    """
    if tools is not None:
        options["tools"] = tools
    steps = Steps(policy, place, **options)
    #: The data of calls whose output is on its way, by their ids.
    told: dict[str, dict[str, Any]] = {}

    async def run(context: Any, arguments: str) -> Any:
        code = _code(arguments)
        if code is None:
            return WRONG.format(printable(arguments[:100]))
        found, told[context.tool_call_id] = await steps.told(code)
        if not (images and found.images):
            return found.text
        urls = (f"data:image/png;base64,{base64.b64encode(one).decode()}" for one in found.images)
        return [ToolOutputText(text=found.text), *(ToolOutputImage(image_url=url) for url in urls)]

    def data_of(context: Any) -> Mapping[str, Any] | None:
        return told.pop(context.tool_context.tool_call_id, None)

    return PythonFunctionTool(
        name=name,
        description=description or described(tools, steps.opened.rules_for_model()),
        params_json_schema=SCHEMA,
        on_invoke_tool=run,
        custom_data_extractor=data_of,
        steps=steps,
    )


def _code(arguments: str) -> str | None:
    try:
        given = json.loads(arguments)
    except ValueError:
        return None
    code = given.get("code") if isinstance(given, dict) and len(given) == 1 else None
    return code if isinstance(code, str) else None
