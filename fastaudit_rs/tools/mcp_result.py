"""The result of a step for a client of an MCP server: text, images, and the same as data."""

import json
from typing import Annotated, Any

from mcp.types import CallToolResult, ContentBlock, ImageContent, TextContent
from pydantic import BaseModel

from .. import AuditDenied
from .._display import image_of
from .._told import shortened, valid_data, written
from ..adapters.steps import for_models
from ..results import Result

#: The note of a step that found no names of those before.
RESTARTED = "(The session began anew: names and imports of earlier calls are gone.)"


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
    """A request over the network: the fields of `fastaudit_rs.requests.Request` of these names."""

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


def tool_result(ran: Result, restarted: bool, most: int) -> CallToolResult:
    """A step's result, for a client; `restarted` if names of earlier steps were lost before."""
    ran = for_models(ran)
    told: dict[str, Any] = {
        "success": ran.success,
        "stdout": cut(ran.stdout, most),
        "stderr": cut(ran.stderr, most),
        "value": _value(ran.value, most),
        "error": None,
        "ended_by": ran.killed_by,
        "denials": [_denial(denied) for denied in ran.violations],
        "requests": [
            {name: getattr(request, name) for name in Asked.model_fields}
            for request in ran.requests
        ],
        "changed": ran.changed,
        "restarted": restarted,
        "seconds": round(ran.duration, 3),
    }
    if ran.error is not None:
        message = cut(ran.error.message, most)
        told["error"] = {"kind": ran.error.kind, "message": message, "line": ran.error.line}
    text = ran.for_model(most)
    content = [_text(f"{RESTARTED}\n\n{text}" if restarted else text)]
    for shown in ran.display:
        image, plain = image_of(shown), shown.get("text/plain")
        if image is not None:
            content.append(ImageContent(type="image", data=image, mime_type="image/png"))
        elif isinstance(plain, str) and plain not in text:
            content.append(_text(cut(plain, most)))
    return CallToolResult(
        content=content, structured_content=valid_data(told), is_error=not ran.success
    )


def cut(text: str, most: int) -> str:
    """The text, without its middle if it has more than so many characters."""
    return text if len(text) <= most else shortened(text, most)


def _text(text: str) -> ContentBlock:
    return TextContent(type="text", text=valid_data(text))


def _denial(denied: AuditDenied) -> dict[str, Any]:
    fields = denied.to_dict()
    return {name: fields[name] for name in Denial.model_fields}


def _value(value: object, most: int) -> Any:
    """The value, if JSON can hold it and it is not too long; else its `repr()`."""
    try:
        if len(json.dumps(value, allow_nan=False)) <= most:
            return value
    except (TypeError, ValueError, RecursionError):
        pass
    return cut(written(value), most)
