"""An MCP server whose tool runs Python under a guard.

`python mcp_server.py DIR` serves on standard input and output. Its code may write below DIR alone.
"""

import contextlib
import io
import sys

from mcp.server import MCPServer

from fastaudit_rs import AuditDenied, AuditPerms, Policy


def make_server(directory: str) -> MCPServer:
    """A server whose tool may write below a directory."""
    policy = Policy.preset("workspace").replace(write=[directory])
    audit_perms: AuditPerms = policy.guard(monitor_calls=False)
    server = MCPServer("python")

    @server.tool()
    def run_python(code: str) -> str:
        """Run Python code and return what it prints."""
        printed = io.StringIO()
        try:
            # The code's output must not get among the messages of the protocol.
            with contextlib.redirect_stdout(printed), audit_perms():
                exec(code, {})
        except AuditDenied as denied:
            return f"DENIED {denied.message}. To allow it: {denied.hint}"
        except Exception as error:
            return f"{printed.getvalue()}{type(error).__name__}: {error}"
        return printed.getvalue()

    return server


if __name__ == "__main__":
    make_server(sys.argv[1]).run()
