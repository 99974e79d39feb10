"""A tool for agents of LangChain and LangGraph that runs Python in a session."""

import base64
import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Literal

from .. import Policy
from .._text import valid
from .._threads import Closing, in_thread
from ..results import Result
from ..sessions.arguments import Tools
from ..sessions.base import Session
from ..sessions.manager import SessionManager
from ..sessions.pieces import Output
from ..sessions.queued import Opens
from .steps import Place, as_data, described, missing, opening, rules_of

try:
    from langchain_core.messages import ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool
    from langchain_core.tools.base import ArgsSchema
    from pydantic import BaseModel, Field, PrivateAttr
except ImportError as error:
    raise missing(__name__, "langchain-core") from error


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


class PythonTool(Closing, BaseTool):
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
    _sessions: SessionManager = PrivateAttr()
    #: The session of the host's that all threads share, if it was given one.
    _shared: Session | None = PrivateAttr(None)
    #: Functions that each step gets, if its session is made by a manager of the host's.
    _tools: Tools | None = PrivateAttr(None)
    _ends: contextlib.ExitStack = PrivateAttr(default_factory=contextlib.ExitStack)

    def run(self, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        """Run the tool; see `BaseTool.run`."""
        with _noted(tool_call_id):
            return super().run(*args, tool_call_id=tool_call_id, **kwargs)

    async def arun(self, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        """Run the tool; see `BaseTool.arun`."""
        with _noted(tool_call_id):
            return await super().arun(*args, tool_call_id=tool_call_id, **kwargs)

    def _run(self, code: str, config: RunnableConfig) -> tuple[Any, dict[str, Any]]:
        with self._sessions._turn(self._key(config)) as (queued, session):
            ran = queued.step(session, code, tools=self._tools, on_output=self._writer())
            return self._told(ran, session)

    async def _arun(self, code: str, config: RunnableConfig) -> tuple[Any, dict[str, Any]]:
        async with self._sessions._async_turn(self._key(config)) as (queued, session):
            write = self._writer()
            ran = await queued.async_step(session, code, tools=self._tools, on_output=write)
            return await in_thread(self._told, ran, session)

    def _key(self, config: RunnableConfig) -> str:
        return NO_THREAD if self._shared is not None else thread_of(config)

    def _told(self, ran: Result, session: Session) -> tuple[Any, dict[str, Any]]:
        found = ran.content_for_model()
        content: Any = found.text
        if self.images and found.images:
            content = [{"type": "text", "text": found.text}]
            for image in found.images:
                data = base64.b64encode(image).decode()
                content.append({"type": "image", "base64": data, "mime_type": "image/png"})
        artifact = as_data(ran, session)
        call = _call.get()
        if found.is_error and call is not None:
            # Raising an error instead would lose the artifact.
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

    @property
    def session(self) -> Session:
        """The session of the host's that code runs in.

        Raises:
            RuntimeError: Each thread has one of its own: `sessions` has them.
        """
        if self._shared is None:
            raise RuntimeError("each thread has a session of its own: sessions has them")
        return self._shared

    @property
    def sessions(self) -> SessionManager:
        """The sessions by the ids of threads; calls without one have the one of ``NO_THREAD``.

        Raises:
            RuntimeError: All share a session of the host's.
        """
        if self._shared is not None:
            raise RuntimeError("all threads share the session of the host: session has it")
        return self._sessions

    def close(self) -> None:
        """Close the sessions that were opened for it."""
        self._ends.close()


#: The key of calls without a thread.
NO_THREAD = "(no thread)"


def thread_of(config: RunnableConfig) -> str:
    """The key of a call: the id of the thread of LangGraph."""
    thread = config.get("configurable", {}).get("thread_id")
    if thread is None or thread == "":
        return NO_THREAD
    if str(thread) == NO_THREAD:
        raise ValueError(
            f"thread_id must not be {NO_THREAD!r}: calls without one have that session"
        )
    return str(thread)


class _Spare:
    """Opens sessions; the first one at once, so that wrong options are told at once."""

    def __init__(self, opens: Opens) -> None:
        self._opens = opens
        self._ends = contextlib.ExitStack()
        self._spare = [self._ends.enter_context(opens())]

    @contextlib.contextmanager
    def open(self, _: str) -> Iterator[Session]:
        with contextlib.ExitStack() as stack:
            try:
                session = self._spare.pop()
            except IndexError:
                session = stack.enter_context(self._opens())
            else:
                stack.push(self._ends.pop_all())
            yield session

    def close(self) -> None:
        self._ends.close()


def python_tool(
    policy: Policy | Session | SessionManager,
    place: Place = "here",
    *,
    name: str = "python",
    description: str | None = None,
    tools: Tools | None = None,
    images: bool = True,
    **options: Any,
) -> PythonTool:
    r"""Make a tool that runs a model's code in a session: names last from call to call.

    Each thread of LangGraph (``thread_id``) has a session of its own, in which calls run one after
    another; ``ainvoke`` leaves the event loop to others. Close the tool at the end.

    Args:
        policy: The policy of the code. Or a `SessionManager`, which saves sessions, closes idle
            ones and bounds their number; or a session, which all threads share. These are the
            host's to close.
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

    Examples:
        >>> with python_tool(Policy.preset("workspace"), timeout=60) as tool:
        ...     tool.invoke({"code": "x = 6"}), tool.invoke({"code": "x * 7"})
        ('It ran, and printed nothing.', 'value:\n42')
    """
    if description is None:
        rules = "" if isinstance(policy, SessionManager) else rules_of(policy, place, **options)
        description = described(tools, rules)
    tool = PythonTool(name=name, description=description, images=images)
    if tools is not None and not isinstance(policy, SessionManager):
        options["tools"] = tools
    if isinstance(policy, SessionManager):
        if options or place != "here":
            raise TypeError("a manager makes its sessions: pass a policy with these options")
        tool._sessions, tool._tools = policy, tools
    else:
        spare = _Spare(opening(policy, place, **options))
        tool._ends.callback(spare.close)
        tool._sessions = tool._ends.enter_context(SessionManager(spare.open))
        tool._shared = policy if isinstance(policy, Session) else None
    return tool
