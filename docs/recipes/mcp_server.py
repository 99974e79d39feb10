"""An MCP server whose tool runs Python in a session: names last, figures come as images.

`python mcp_server.py DIR` serves on standard input and output. Its code may write below DIR alone.
"""

import asyncio
import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Image
from mcp.types import CallToolResult, TextContent

from fastaudit_rs import Policy


def make_server(directory: str) -> MCPServer:
    """A server whose tool may write below a directory."""
    policy = Policy.preset("notebook").replace(write=[directory])
    session = policy.session(directory=directory, timeout=60)
    one_at_a_time = asyncio.Lock()
    server = MCPServer("python")

    @server.tool()
    async def run_python(code: str) -> CallToolResult:
        """Run Python code; what it prints, its last expression, its figures. Names last."""
        async with one_at_a_time:
            ran = await session.arun(code)
        value = "" if ran.value is None else repr(ran.value)
        error = "" if ran.error is None else ran.error.traceback
        text = TextContent(type="text", text="\n".join(filter(None, (ran.stdout, value, error))))
        images = (thing.get("image/png") for thing in ran.display)
        figures = [Image(data=data, format="png") for data in images if isinstance(data, bytes)]
        return CallToolResult(
            content=[text, *(figure.to_image_content() for figure in figures)],
            structured_content={"denied": [denied.to_dict() for denied in ran.violations]},
            is_error=not ran.success,
        )

    return server


if __name__ == "__main__":
    make_server(sys.argv[1]).run()
