"""A loop that runs a model's code in a session, with a tool of the host."""

from collections.abc import Callable
from typing import Any

from fastaudit_rs import Policy

Message = dict[str, Any]


def look_up(item: str) -> float:
    """The price of an item: the host may ask a database that the model's code may not reach."""
    return {"tea": 3.5, "salt": 0.5}[item]


#: The code may write below the current directory, and reach and start nothing else. Names last.
session = Policy.preset("workspace").session(tools={"look_up": look_up}, timeout=60)


def answer(model: Callable[[list[Message]], Message], question: str) -> str:
    """Ask a model, and run what it wants run until it answers."""
    messages: list[Message] = [{"role": "user", "content": question}]
    while True:
        reply = model(messages)
        messages.append(reply)
        if not reply.get("tool_calls"):
            return str(reply["content"])
        for wanted in reply["tool_calls"]:
            told = session.run(**wanted["arguments"]).for_model()
            messages.append({"role": "tool", "tool_call_id": wanted["id"], "content": told})


def scripted(messages: list[Message]) -> Message:
    """In place of a model: it overreaches, reads what it is told, and does it right."""
    codes = [
        "total = look_up('tea') + look_up('salt')\ntotal",
        "open('/srv/bill.txt', 'w').write(str(total))",
        "open('bill.txt', 'w').write(str(total))",
    ]
    done = [message for message in messages if message["role"] == "tool"]
    for message in done[-1:]:
        print("told:", message["content"])
    if len(done) == len(codes):
        return {"role": "assistant", "content": "It is in bill.txt."}
    wanted = {"id": str(len(done)), "arguments": {"code": codes[len(done)]}}
    return {"role": "assistant", "content": None, "tool_calls": [wanted]}


if __name__ == "__main__":
    print(answer(scripted, "Save the bill."))
