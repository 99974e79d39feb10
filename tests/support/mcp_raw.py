"""An MCP server that answers what it is given as JSON: by method, and for each tool."""

import json
import sys

given = json.loads(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    method, params = message["method"], message.get("params", {})
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        answer["result"] = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "1"},
        }
    elif method == "tools/list":
        answer["result"] = {"tools": given["tools"], **given.get("page", {})}
    elif method == "tools/call":
        answer |= given["calls"][params["name"]]
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
