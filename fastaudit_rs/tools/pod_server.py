"""A server for a pod: commands, files and sessions of one sandbox, over HTTP.

Commands and files are those of the Python runtime of Kubernetes' agent-sandbox, so that its clients
work: https://github.com/kubernetes-sigs/agent-sandbox. Sessions are our own.
"""

import contextlib
import json
import math
import secrets
import shlex
from collections.abc import AsyncIterator, Collection, Iterator
from typing import IO, Any

from starlette.applications import Starlette
from starlette.datastructures import Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .._threads import in_thread
from ..sandbox.host.sandbox import Sandbox
from ..sandbox.limits import KILLED
from ..sessions.errors import SandboxError
from ..sessions.manager import SessionManager

#: The bytes of a request, and of one that has a file.
REQUEST, UPLOAD = 8 << 20, 100 << 20

#: The bytes that are sent of a file at a time.
PIECE = 1 << 18

#: The characters of the name of a session.
NAME = 200

#: The commands that run at a time.
COMMANDS = 16


def application(
    sandbox: Sandbox, *, token: bytes | None, hosts: Collection[str], max_sessions: int
) -> ASGIApp:
    """An ASGI application for one sandbox.

    Args:
        sandbox: The sandbox.
        token: What clients send as ``Authorization: Bearer TOKEN``; ``None`` to ask for none.
        hosts: The hosts that requests may be for where there is no token.
        max_sessions: The number of sessions that are open at a time. The one that was used least
            recently is closed where there is no room.
    """
    sessions = SessionManager(lambda _: sandbox.session(), max_sessions=max_sessions)
    pod = _Pod(sandbox, sessions)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with sessions:
            yield

    routes = [
        Route("/", pod.health),
        Route("/execute", pod.execute, methods=["POST"]),
        Route("/upload", pod.upload, methods=["POST"]),
        Route("/download/{name:path}", pod.download),
        Route("/list/{name:path}", pod.list),
        Route("/exists/{name:path}", pod.exists),
        Route("/sessions", pod.sessions),
        Route("/sessions/{name}", pod.step, methods=["POST"]),
        Route("/sessions/{name}", pod.remove, methods=["DELETE"]),
    ]
    handlers: dict[Any, Any] = {HTTPException: _refused}
    return _Gate(
        Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers), token, hosts
    )


class _Gate:
    """Lets requests of clients through that may use the server, up to their greatest size."""

    def __init__(self, app: ASGIApp, token: bytes | None, hosts: Collection[str]) -> None:
        self._app = app
        self._given = None if token is None else b"Bearer " + token
        self._hosts = {*hosts}
        self._pages = {f"http://{host}" for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refused = self._refused(scope["path"], Headers(scope=scope))
            if refused is not None:
                await refused(scope, receive, send)
                return
            receive = _limited(receive, UPLOAD if scope["path"] == "/upload" else REQUEST)
        await self._app(scope, receive, send)

    def _refused(self, path: str, headers: Headers) -> Response | None:
        if self._given is None:
            # Nobody else's page may send requests from a browser on this machine.
            if headers.get("host") not in self._hosts:
                return _message(421, "This server is not for that host")
            if headers.get("origin", "") not in {"", *self._pages}:
                return _message(403, "Access denied")
        elif path != "/":
            # What asks whether the pod is alive has no token.
            given = headers.get("authorization", "").encode("latin-1")
            if not secrets.compare_digest(given, self._given):
                refused = _message(401, "Send the token: Authorization: Bearer TOKEN")
                refused.headers["WWW-Authenticate"] = "Bearer"
                return refused
        return None


def _limited(receive: Receive, most: int) -> Receive:
    """Receive a request of at most so many bytes."""
    left = most

    async def limited() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise HTTPException(413, f"A request here may have {most >> 20} MB")
        return message

    return limited


class _Answer(JSONResponse):
    """JSON in valid Unicode: names of files and texts of the code's may have half a character."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


class _Pod:
    def __init__(self, sandbox: Sandbox, sessions: SessionManager) -> None:
        self._sandbox = sandbox
        self._sessions = sessions

    async def health(self, _: Request) -> Response:
        return _Answer({"status": "ok", "message": "The sandbox is ready."})

    async def execute(self, request: Request) -> Response:
        """Run a program to its end; its words are split as a shell does, and no shell runs."""
        command = await _given(request, {"command": str})
        try:
            words = shlex.split(command["command"])
            ran = await self._sandbox.commands.arun(words)
        except (SandboxError, ValueError) as error:
            told = {
                "stdout": "",
                "stderr": f"The command does not start: {error}\n",
                "exit_code": 1,
            }
            return _Answer(told)
        stderr = ran.stderr
        if ran.killed_by in KILLED:
            stderr += f"{KILLED[ran.killed_by][1]}\n"
        return _Answer({"stdout": ran.stdout, "stderr": stderr, "exit_code": ran.returncode})

    async def step(self, request: Request) -> Response:
        """Run a step of a session, which begins with the first one of its name."""
        given = await _given(request, {"code": str}, {"timeout": (int, float)})
        if (timeout := given.get("timeout")) is not None:
            if not 0 < timeout < math.inf:
                raise HTTPException(400, "'timeout' must be a positive number of seconds")
            given["timeout"] = min(timeout, self._sandbox.limits.wall_seconds or timeout)
        try:
            ran = await self._sessions.arun(_session(request), **given)
        except (TypeError, ValueError) as error:
            raise HTTPException(400, str(error)) from None
        except (RuntimeError, SandboxError) as error:
            raise HTTPException(503, str(error)) from None
        return _Answer(await in_thread(ran.to_dict))

    async def sessions(self, _: Request) -> Response:
        return _Answer({"sessions": self._sessions.list()})

    async def remove(self, request: Request) -> Response:
        name = _session(request)
        await self._sessions.aremove(name)
        return _message(200, f"The session {name!r} is removed.")

    async def upload(self, request: Request) -> Response:
        """Write a file, given as ``file`` of a form; its name may be in directories."""
        async with request.form(max_files=1, max_fields=1) as form:
            file = form.get("file")
            if not isinstance(file, UploadFile) or not file.filename:
                raise HTTPException(400, "Send a form with a file, named 'file'")
            name = file.filename
            with _of_files():
                await in_thread(self._write, name, file.file)
        return _message(200, f"File {name!r} uploaded successfully.")

    def _write(self, name: str, given: Any) -> None:
        with self._sandbox.files.open(_relative(name), "wb") as file:
            while piece := given.read(PIECE):
                file.write(piece)

    async def download(self, request: Request) -> Response:
        with _of_files():
            file = await in_thread(self._sandbox.files.open, _name(request))
        return StreamingResponse(_pieces(file), media_type="application/octet-stream")

    async def list(self, request: Request) -> Response:
        with _of_files():
            found = await in_thread(self._sandbox.files.list, _name(request))
        told = [
            {
                "name": one.name.rpartition("/")[2],
                "size": one.size,
                "type": one.kind,
                "mod_time": one.modified,
            }
            for one in found
        ]
        return _Answer(told)

    async def exists(self, request: Request) -> Response:
        name = _name(request)
        with _of_files():
            found = await in_thread(self._sandbox.files.exists, name)
        return _Answer({"path": request.path_params["name"], "exists": found})


async def _given(
    request: Request, needed: dict[str, Any], others: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The object of a request, with these keys and the types of their values."""
    known = {**needed, **(others or {})}
    try:
        given = json.loads(await request.body())
    except (ValueError, RecursionError):
        given = None
    if type(given) is not dict:
        raise HTTPException(400, f"Send JSON: an object with {', '.join(map(repr, known))}")
    for key in given.keys() - known.keys():
        raise HTTPException(400, f"There is no {key[:50]!r}: there are {', '.join(known)}")
    for key, kind in known.items():
        if key in given or key in needed:
            value = given.get(key)
            if not isinstance(value, kind) or isinstance(value, bool):
                name = "a text" if kind is str else "a number"
                raise HTTPException(400, f"{key!r} must be {name}")
    return given


def _session(request: Request) -> str:
    name: str = request.path_params["name"]
    if len(name) > NAME:
        raise HTTPException(400, f"The name of a session has at most {NAME} characters")
    return name


def _name(request: Request) -> str:
    return _relative(request.path_params["name"])


def _relative(name: str) -> str:
    """A name in the directory of the sandbox; one that begins with a slash is one too."""
    return name.lstrip("/") or "."


@contextlib.contextmanager
def _of_files() -> Iterator[None]:
    """Word errors for the client: those of names first, which may be attempts to leave."""
    try:
        yield
    except ValueError:
        raise HTTPException(403, "Access denied") from None
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise HTTPException(404, "There is no such file or directory") from None
    except OSError as error:
        raise HTTPException(400, error.strerror or str(error)) from None


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE):
            yield piece


def _message(status: int, text: str) -> Response:
    return _Answer({"message": text}, status)


async def _refused(_: Request, error: HTTPException) -> Response:
    return _message(error.status_code, str(error.detail))
