// The echo tool on the TypeScript SDK v2: over stdio, or over HTTP with legacy and modern protocol versions.
import { createServer } from "node:http";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { McpServer, createMcpHandler } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";

function echo() {
  const server = new McpServer({ name: "echo", version: "0" });
  server.registerTool(
    "echo",
    { description: "Gives back the text.", inputSchema: z.object({ text: z.string() }) },
    async ({ text }) => ({ content: [{ type: "text", text }] }),
  );
  return server;
}

const port = process.argv[2];
if (port === undefined) {
  await serveStdio(echo);
} else {
  createServer(toNodeHandler(createMcpHandler(echo))).listen(Number(port), "127.0.0.1");
}
