"""The echo tool on the Python SDK: over stdio, or over HTTP with legacy and modern protocol versions."""

import sys

from mcp.server import MCPServer

server = MCPServer("echo", log_level="ERROR")


@server.tool(description="Gives back the text.", structured_output=False)
def echo(text: str) -> str:
    return text


if len(sys.argv) < 2:
    server.run("stdio")
else:
    import uvicorn

    stateless = sys.argv[2:] == ["stateless"]
    app = server.streamable_http_app(stateless_http=stateless, json_response=True)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
