"""FastAPI with a sandbox for each user, whose names last from request to request.

`python fastapi_users.py [PORT]` serves it.
"""

import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from fastapi import Body, FastAPI, Header

from fastaudit_rs import Limits, Sandbox, Session, SessionManager


@contextlib.contextmanager
def sandboxed(user: str) -> Iterator[Session]:
    """The session of a user, in a sandbox of its own."""
    with Sandbox(limits=Limits(memory="500M")) as sandbox, sandbox.session(timeout=2) as session:
        yield session


def make_app() -> FastAPI:
    """An application that runs the code of its users."""
    sessions = SessionManager(sandboxed, store={}, autosave=True, idle_seconds=600)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with sessions:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/steps")
    async def step(x_user: str = Header(), code: str = Body(media_type="text/plain")) -> Any:
        """Run a step in the user's session."""
        ran = await sessions.arun(x_user, code)
        return {"text": ran.for_model(), "value": ran.value, "ended_by": ran.killed_by}

    return app


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    uvicorn.run(make_app(), port=port)
