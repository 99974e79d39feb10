"""Steps that wait for a person, who answers by a web request, also after a restart.

`python approve_later.py DIR [PORT]` serves it.
"""

import json
import sys
import threading
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException

from fastaudit_rs import Answer, Pending, Policy, Result, Session


def make_app(session: Session, stored: Path) -> FastAPI:
    """An application that runs steps, and has what waits in a directory that no step can write."""
    app, turn = FastAPI(), threading.Lock()
    stored.mkdir(exist_ok=True)
    for file in stored.iterdir():
        session.adopt(Pending.from_dict(json.loads(file.read_text())))

    def told(ran: Result) -> dict[str, Any]:
        pending = ran.pending
        if pending is None:
            return {"text": ran.for_model()}
        (stored / pending.id).write_text(json.dumps(pending.to_dict()))
        return {"pending": pending.id, "asks": pending.denied.message, "answers": pending.answers}

    @app.post("/steps")
    def step(code: str) -> dict[str, Any]:
        """Run a step."""
        with turn:
            return told(session.run(code))

    @app.post("/questions/{name}")
    def answer(name: str, answer: Answer) -> dict[str, Any]:
        """Answer a question, and run its step again."""
        with turn:
            if name not in {waiting.id for waiting in session.pending}:
                raise HTTPException(404, "no question waits by this id")
            # First: it is never answered twice.
            (stored / name).unlink()
            return told(session.answer(name, answer))

    return app


def ask(denied: object) -> Answer:
    """Let each question wait."""
    return "pending"


if __name__ == "__main__":
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    with Policy(network=False).session(on_ask=ask, pending_seconds=86400) as session:
        uvicorn.run(make_app(session, Path(sys.argv[1]).resolve()), port=port)
