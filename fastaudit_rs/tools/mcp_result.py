"""The result of a step for a client of an MCP server: text, images, files, and the same as data."""

import base64
import json
from dataclasses import asdict
from typing import Annotated, Any

from mcp.types import CallToolResult, ContentBlock, ImageContent, ResourceLink, TextContent
from pydantic import BaseModel

from .._for_model import clean, cut
from .._text import valid_data, written
from ..results import Result, files_of
from ..sessions.queued import for_models

#: The denials and the requests that a client gets of a call: many put them before the model.
LISTED = 50


class Denial(BaseModel):
    """An operation that was denied: the fields of `AuditDenied` of these names."""

    rule: str | None = None
    event: str
    effect: str | None = None
    path: str | None = None
    host: str | None = None
    command: str | None = None
    message: str
    hint: str | None = None


class Asked(BaseModel):
    """A request over the network: the fields of `fastaudit_rs.timeline.Request` of these names."""

    host: str
    port: int | None = None
    method: str | None = None
    path: str | None = None
    status: int | None = None
    verdict: str
    rule: str | None = None
    error: str | None = None


class Failure(BaseModel):
    """The exception that ended a step: the fields of `fastaudit_rs.results.Error`."""

    kind: str
    message: str
    line: int | None = None


class Ran(BaseModel):
    """The structured content of a result."""

    success: bool
    stdout: str
    stderr: str
    value: Any = None
    error: Failure | None = None
    ended_by: str | None = None
    denials: list[Denial]
    requests: list[Asked]
    changed: list[str]
    restarted: bool
    seconds: float


#: The type of a tool's result: its schema is that of the structured content.
RanResult = Annotated[CallToolResult, Ran]


def tool_result(ran: Result, max_chars: int, links: list[ResourceLink]) -> CallToolResult:
    """A step's result, for a client.

    Args:
        ran: The result.
        max_chars: The characters of each text.
        links: The files that changed, for clients that read them.
    """
    ran = for_models(ran)
    told: dict[str, Any] = {
        "success": ran.success,
        "stdout": clean(ran.stdout, max_chars),
        "stderr": clean(ran.stderr, max_chars),
        "value": _value(ran.value, max_chars),
        "error": None if ran.error is None else asdict(ran.error),
        "ended_by": ran.killed_by,
        "denials": _short([denied.to_dict() for denied in ran.violations[:LISTED]], max_chars),
        "requests": _short(list(map(asdict, ran.requests[:LISTED])), max_chars),
        "changed": files_of(ran),
        "restarted": ran.restarted is not None,
        "seconds": round(ran.duration, 3),
    }
    if ran.error is not None:
        for name in ("kind", "message"):
            told["error"][name] = clean(told["error"][name], max_chars)
    found = ran.content_for_model(max_chars)
    content = [text_block(found.text)]
    for image in found.images:
        data = base64.b64encode(image).decode()
        content.append(ImageContent(type="image", data=data, mime_type="image/png"))
    # The fields that the classes name are those that a client gets.
    structured = Ran.model_validate(valid_data(told)).model_dump()
    return CallToolResult(
        content=[*content, *links], structured_content=structured, is_error=found.is_error
    )


def refused(text: str) -> CallToolResult:
    """The answer to a call that runs nothing."""
    return CallToolResult(content=[text_block(text)], is_error=True)


def text_block(text: str) -> ContentBlock:
    return TextContent(type="text", text=valid_data(text))


def _short(told: list[dict[str, Any]], max_chars: int) -> list[dict[str, Any]]:
    """Data whose texts share the room of one: code can be denied 50 commands of 100 KB."""
    room = max(1, max_chars // max(1, len(told)))
    return [
        {name: cut(each, room) if isinstance(each, str) else each for name, each in one.items()}
        for one in told
    ]


def _value(value: object, max_chars: int) -> Any:
    """The value, if JSON can hold it and it is not too long; else its `repr()`."""
    try:
        if len(json.dumps(value, allow_nan=False)) <= max_chars:
            return value
    except (TypeError, ValueError, RecursionError):
        pass
    return clean(written(value), max_chars)
