"""An MCP server of a shop: a tool of its own, and `run_python`, whose code may ask for prices.

`python mcp_server.py DIR` serves on standard input and output. Its code may write below DIR alone.
"""

import sys
from typing import Any

from mcp.server import MCPServer

from fastaudit_rs import Policy
from fastaudit_rs.sessions.base import Session
from fastaudit_rs.tools.mcp_server import server

PRICES = {"tea": 3.5, "salt": 0.5}


def price(item: str) -> float:
    """The price of an item."""
    return PRICES[item]


def make_server(directory: str) -> MCPServer[Any]:
    """A server whose code may write below a directory."""
    policy = Policy.preset("notebook").replace(write=[directory])

    def opens() -> Session:
        return policy.session(tools={"price": price}, directory=directory, timeout=60)

    with opens() as session:
        rules = session.rules_for_model()
    shop = server(
        opens, name="shop", instructions="price(item) is a function for run_python.", rules=rules
    )

    @shop.tool()
    def items() -> list[str]:
        """The names of the items that have a price."""
        return sorted(PRICES)

    return shop


if __name__ == "__main__":
    make_server(sys.argv[1]).run()
