// The echo tool on the TypeScript SDK v1: over stdio, or over HTTP with a session.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

function echo() {
  const server = new McpServer({ name: "echo", version: "0" });
  server.registerTool(
    "echo",
    { description: "Gives back the text.", inputSchema: { text: z.string() } },
    async ({ text }) => ({ content: [{ type: "text", text }] }),
  );
  return server;
}

const port = process.argv[2];
if (port === undefined) {
  await echo().connect(new StdioServerTransport());
} else {
  const sessions = new Map();
  createServer(async (request, response) => {
    let transport = sessions.get(request.headers["mcp-session-id"]);
    if (!transport) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => sessions.set(id, transport),
      });
      await echo().connect(transport);
    }
    await transport.handleRequest(request, response);
  }).listen(Number(port), "127.0.0.1");
}
