"""A loop that calls a model's tools: each call under a guard, denials told to it as JSON."""

import json
from collections.abc import Callable
from typing import Any

from fastaudit_rs import AuditDenied, Policy

#: The tools may write below the current directory, and reach and start nothing.
audit_perms = Policy.preset("workspace").guard(monitor_calls=False)

Message = dict[str, Any]


def run_python(code: str) -> str:
    """Run code, and return what it leaves in `result`."""
    names: dict[str, Any] = {}
    exec(code, names)
    return str(names.get("result"))


TOOLS: dict[str, Callable[..., str]] = {"run_python": run_python}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call a tool; what the model is told of it."""
    try:
        with audit_perms():
            return {"result": TOOLS[name](**arguments)}
    except AuditDenied as denied:
        told = denied.to_dict()
        return {"denied": {key: told[key] for key in ("message", "effect", "path", "hint")}}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def answer(model: Callable[[list[Message]], Message], question: str) -> str:
    """Ask a model, and call what it wants called until it answers."""
    messages: list[Message] = [{"role": "user", "content": question}]
    while True:
        reply = model(messages)
        messages.append(reply)
        if not reply.get("tool_calls"):
            return str(reply["content"])
        for wanted in reply["tool_calls"]:
            told = json.dumps(call(wanted["name"], wanted["arguments"]))
            messages.append({"role": "tool", "tool_call_id": wanted["id"], "content": told})


def scripted(messages: list[Message]) -> Message:
    """In place of a model: it overreaches, reads what it is told, and does it right."""
    codes = [
        "open('/srv/primes.txt', 'w').write('2 3 5 7')",
        "result = open('primes.txt', 'w').write('2 3 5 7')",
    ]
    done = [message for message in messages if message["role"] == "tool"]
    for message in done[-1:]:
        print("told:", message["content"])
    if len(done) == len(codes):
        return {"role": "assistant", "content": "They are in primes.txt."}
    wanted = {"id": str(len(done)), "name": "run_python", "arguments": {"code": codes[len(done)]}}
    return {"role": "assistant", "content": None, "tool_calls": [wanted]}


if __name__ == "__main__":
    print(answer(scripted, "Save the first primes."))
