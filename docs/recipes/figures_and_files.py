"""An agent that installs a package, draws a figure that its model sees, and hands over a file."""

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastaudit_rs import Policy, Result, Sandbox, Session
from fastaudit_rs.adapters.steps import Place, as_data
from fastaudit_rs.sandbox import Install

Message = dict[str, Any]


@contextmanager
def opened(place: Place, install: Install) -> Iterator[Session]:
    """A session. In this process the code has the packages of the host, and installs none."""
    policy = Policy.preset("workspace")
    if place == "here":
        with TemporaryDirectory() as directory, policy.session(directory=directory) as session:
            yield session
    else:
        with Sandbox(policy, install=install) as sandbox, sandbox.session() as session:
            yield session


def content(ran: Result) -> list[Message]:
    """What a model gets of a step: a text, and figures as images."""
    told = ran.content_for_model()
    urls = [f"data:image/png;base64,{base64.b64encode(png).decode()}" for png in told.images]
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"type": "text", "text": told.text}, *images]


def answer(
    model: Callable[[list[Message]], Message],
    question: str,
    session: Session,
    out: Path,
) -> str:
    """Run what a model wants run until it answers. Files that the code makes go to a directory."""
    rules = session.rules_for_model()
    messages: list[Message] = [
        {"role": "system", "content": f"You run Python by the tool python.\n{rules}"},
        {"role": "user", "content": question},
    ]
    while True:
        reply = model(messages)
        messages.append(reply)
        if not reply.get("tool_calls"):
            return str(reply["content"])
        for wanted in reply["tool_calls"]:
            ran = session.run(**wanted["arguments"])
            told = {"role": "tool", "tool_call_id": wanted["id"], "content": content(ran)}
            messages.append(told)
            for name, data in as_data(ran, session)["files"].items():
                (out / Path(name).name).write_bytes(base64.b64decode(data))
