"""Files that a client's code made or changed, as resources of the MCP server."""

import base64
import mimetypes
from typing import Any
from urllib.parse import quote, unquote

from mcp.types import (
    BlobResourceContents,
    ReadResourceResult,
    Resource,
    ResourceLink,
    TextResourceContents,
)

from .._text import printable, valid
from ..results import Result, files_of
from ..sessions.base import Session

#: The beginning of the URI of a file.
FILES = "fastaudit-rs://files/"

#: The bytes that a file may have, the links of a result, and the files that are remembered.
BYTES, LINKS, NOTED = 5_000_000, 20, 1_000


class ChangedFiles:
    """The files that a client's steps have changed: a client may read these, and no others."""

    def __init__(self) -> None:
        #: The names, those that changed last at the end, and the bytes of those that were linked.
        self._names: dict[str, int | None] = {}

    def note(self, session: Session, ran: Result) -> list[ResourceLink]:
        """Note the files of a result; return links to those that can be read."""
        links: list[ResourceLink] = []
        for name in files_of(ran):
            self._names.pop(name, None)
            if len(links) >= LINKS:
                self._names[name] = None
            elif (data := _read(session, name)) is not None:
                self._names[name] = len(data)
                links.append(ResourceLink(**_fields(name, len(data))))
        while len(self._names) > NOTED:
            del self._names[next(iter(self._names))]
        return links

    def listed(self) -> list[Resource]:
        # A copy at once: a call that ends meanwhile notes its files in another thread.
        noted = [*self._names.items()]
        return [Resource(**_fields(name, size)) for name, size in reversed(noted)]

    def read(self, session: Session, uri: str) -> ReadResourceResult | None:
        """Read a file; ``None`` if there is none that a step has changed."""
        name = unquote(uri.removeprefix(FILES), errors="surrogateescape")
        data = _read(session, name) if name in self._names else None
        if data is None:
            return None
        kind = _kind(name)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            blob = base64.b64encode(data).decode()
            return ReadResourceResult(
                contents=[BlobResourceContents(uri=uri, mime_type=kind, blob=blob)]
            )
        kind = kind or "text/plain"
        return ReadResourceResult(
            contents=[TextResourceContents(uri=uri, mime_type=kind, text=text)]
        )


def _read(session: Session, name: str) -> bytes | None:
    try:
        return session._read_file(name, BYTES)
    except (OSError, RuntimeError, ValueError):
        # It is gone, a link, or too large.
        return None


def _fields(name: str, size: int | None) -> dict[str, Any]:
    uri = FILES + quote(name, errors="surrogateescape")
    return {
        "uri": uri,
        "name": valid(printable(name)),
        "mime_type": _kind(name),
        "size": size,
    }


def _kind(name: str) -> str | None:
    return mimetypes.guess_type(name)[0]
