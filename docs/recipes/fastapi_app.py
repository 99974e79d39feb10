"""FastAPI with a guard for each request, which writes below its user's directory alone.

`python fastapi_app.py DIR [PORT]` serves it.
"""

import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fastaudit_rs import AuditDenied, AuditPerms, Policy


class Guarded:
    """ASGI middleware that runs each request under the guard of its user.

    Args:
        app: The application.
        base: The directory that has one for each user.
    """

    def __init__(self, app: ASGIApp, base: Path) -> None:
        """Wrap the application."""
        self.app = app
        self.base = base
        self.perms: dict[str, AuditPerms] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        user = dict(scope["headers"]).get(b"x-user", b"").decode("ascii", "replace")
        if not user.isalnum():
            await JSONResponse({"error": "who is it?"}, 401)(scope, receive, send)
            return
        async with self.guard(user)():
            await self.app(scope, receive, send)

    def guard(self, user: str) -> AuditPerms:
        """The operations that a user's requests may perform."""
        if user not in self.perms:
            home = self.base / user
            home.mkdir(exist_ok=True)
            policy = Policy.preset("workspace").replace(write=[home])
            self.perms[user] = policy.guard(monitor_calls=False)
        return self.perms[user]


def denied(request: Request, error: Exception) -> JSONResponse:
    """Answer a request that overreached."""
    assert isinstance(error, AuditDenied)
    return JSONResponse({"denied": error.message, "effect": error.effect}, 403)


def make_app(base: Path) -> FastAPI:
    """An application that saves notes."""
    app = FastAPI()
    app.add_middleware(Guarded, base=base)
    app.add_exception_handler(AuditDenied, denied)

    @app.put("/notes/{name:path}")
    def save(name: str, text: str) -> dict[str, int]:
        """In a thread of FastAPI's pool: the guard holds there too."""
        return {"written": Path(base, name).write_text(text)}

    @app.get("/later/{name:path}")
    async def later(name: str) -> dict[str, str]:
        """In the event loop."""
        Path(base, name).touch()
        return {"touched": name}

    return app


if __name__ == "__main__":
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    uvicorn.run(make_app(Path(sys.argv[1]).resolve()), port=port)
