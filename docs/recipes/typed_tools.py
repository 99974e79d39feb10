"""An agent whose code calls typed functions of the host, and the tools of an MCP server."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

from fastaudit_rs import MCP, Answer, AuditDenied, Policy, Sandbox

#: A server with the tools `in_stock`, which only reads, and `order`.
SHOP = MCP([sys.executable, Path(__file__).with_name("shop_server.py")], name="shop")


@dataclass
class Delivery:
    """Something that comes."""

    item: str
    due: date
    by: Literal["post", "courier"] = "post"


def announce(delivery: Delivery) -> str:
    """Tell people what comes."""
    return f"{delivery.item} comes on {delivery.due:%A}, by {delivery.by}"


def ask(denied: AuditDenied) -> Answer:
    """In place of a person: one answer for all orders of a step."""
    print("asked:", denied.message)
    return "step"


#: In place of a model: what it wants run.
CODES = (
    "low = [item for item in ('tea', 'salt', 'rice') if in_stock(item) < 5]\nlow",
    "{item: order(item, 10) for item in low}",
    "announce({'item': 'rice', 'due': '2026-01-02', 'by': 'train'})",
    "announce({'item': 'rice', 'due': '2026-01-02', 'by': 'courier'})",
)


def main(place: str) -> None:
    """Run an agent, in this process or in a sandbox."""
    policy = Policy.preset("workspace")
    with ExitStack() as stack:
        where = policy if place == "here" else stack.enter_context(Sandbox(policy))
        session = stack.enter_context(where.session(tools=[announce, SHOP], on_ask=ask))
        for code in CODES:
            print("told:", session.run(code).for_model())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "here")
