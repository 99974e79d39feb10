"""An agent whose step waits for a person, who answers by a web request, also after a restart."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException

from fastaudit_rs import Answer, AuditDenied, Pending, Result, Session

Message = dict[str, Any]


def ask(denied: AuditDenied) -> Answer:
    """Let each question of the session wait."""
    return "pending"


def make_app(session: Session, model: Callable[[list[Message]], Message], stored: Path) -> FastAPI:
    """An application that keeps what lasts in a directory that no step can write."""
    app, turn = FastAPI(), threading.Lock()
    names, questions = stored / "names", stored / "questions"
    questions.mkdir(parents=True, exist_ok=True)
    if names.exists():
        session.load(names)
    for file in questions.iterdir():
        session.adopt(Pending.from_dict(json.loads(file.read_text())["pending"]))

    def go_on(messages: list[Message], ran: Result | None = None) -> dict[str, Any]:
        while ran is None or ran.pending is None:
            if ran is not None:
                session.save(names)
                messages.append({"role": "tool", "content": ran.for_model()})
            messages.append(model(messages))
            if "code" not in messages[-1]:
                return {"answer": messages[-1]["content"]}
            ran = session.run(messages[-1]["code"])
        told = {"pending": ran.pending.to_dict(), "messages": messages}
        (questions / ran.pending.id).write_text(json.dumps(told))
        return {"waits": ran.pending.id, "for": ran.pending.denied.message}

    @app.post("/tasks")
    def begin(task: str) -> dict[str, Any]:
        with turn:
            return go_on([{"role": "user", "content": task}])

    @app.post("/questions/{name}")
    def answer(name: str, answer: Answer) -> dict[str, Any]:
        """Answer a question: its step runs again, and the agent goes on."""
        with turn:
            if name not in {waiting.id for waiting in session.pending}:
                raise HTTPException(404, "no question waits by this id")
            messages = json.loads((questions / name).read_text())["messages"]
            # First: it is never answered twice.
            (questions / name).unlink()
            return go_on(messages, session.answer(name, answer))

    return app
