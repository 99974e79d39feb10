"""An MCP server of a shop: tools that only read, tools that change something, and bad ones."""

import os
import sys
import time
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Image
from mcp.types import ToolAnnotations
from pydantic import BaseModel

READS = ToolAnnotations(read_only_hint=True)
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 8

shop: MCPServer[Any] = MCPServer("shop", log_level="CRITICAL")
stock = {"tea": 3.5, "salt": 0.5}


class Order(BaseModel):
    """An order."""

    item: str
    count: int = 1


@shop.tool(annotations=READS)
def price(item: str, count: int = 1) -> float:
    """The price of an item."""
    return stock[item] * count


@shop.tool(name="list-items", annotations=READS)
def list_items() -> dict[str, float]:
    """The items with their prices."""
    return stock


@shop.tool(annotations=READS)
def total(order: Order) -> Order:
    """The same order."""
    return order


@shop.tool()
def remove(item: str) -> list[str]:
    """Remove an item; return what is left."""
    del stock[item]
    return sorted(stock)


@shop.tool(annotations=ToolAnnotations(read_only_hint=False))
def clear() -> str:
    """Remove all."""
    stock.clear()
    return "all gone"


@shop.tool(annotations=READS)
def restock() -> dict[str, float]:
    """Have all items again; said to be no change."""
    stock.update({"tea": 3.5, "salt": 0.5})
    return stock


@shop.tool(annotations=READS, structured_output=False)
def label(item: str) -> list[Any]:
    """A text and an image."""
    return [item, Image(data=PNG, format="png")]


@shop.tool(annotations=READS)
def environment(name: str) -> str | None:
    """A variable of the server's environment."""
    return os.environ.get(name)


@shop.tool(annotations=READS)
def process() -> int:
    """The number of the server's process."""
    return os.getpid()


@shop.tool(annotations=READS)
def crash() -> str:
    """End the server."""
    os._exit(3)


@shop.tool(annotations=READS)
def hang(seconds: float) -> str:
    """Answer late."""
    time.sleep(seconds)
    return "late"


@shop.tool(annotations=READS)
def big(size: int) -> str:
    """A text of a size."""
    return "x" * size


if __name__ == "__main__":
    if len(sys.argv) > 1:
        shop.run("streamable-http", port=int(sys.argv[1]))
    else:
        shop.run()
