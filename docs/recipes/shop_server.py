"""An MCP server of a shop: a tool that only reads, and one that changes something."""

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

shop = MCPServer("shop", log_level="ERROR")
STOCK = {"tea": 12, "salt": 2, "rice": 0}


@shop.tool(annotations=ToolAnnotations(read_only_hint=True))
def in_stock(item: str) -> int:
    """The number of an item in stock."""
    return STOCK[item]


@shop.tool()
def order(item: str, count: int) -> int:
    """Order more of an item; return the number there will be."""
    STOCK[item] += count
    return STOCK[item]


if __name__ == "__main__":
    shop.run()
