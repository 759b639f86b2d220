// An MCP server with three tools, over standard input and output: the bridge runs it for each session, and serves it over HTTP.

import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";

const server = new McpServer({ name: "notes", version: "1.0.0" });
// They live as long as the process: a session has its own.
const notes = [];

const says = (text) => ({ content: [{ type: "text", text }] });

server.registerTool(
  "add_note",
  { description: "Keeps a note", inputSchema: { text: z.string().describe("What to keep") } },
  ({ text }) => {
    notes.push(text);
    return says(`kept note ${notes.length}`);
  },
);
server.registerTool("list_notes", { description: "Lists the notes" }, () => says(notes.join("\n") || "there are no notes"));
server.registerTool(
  "count_words",
  { description: "Counts the words of a text", inputSchema: { text: z.string().describe("The text") } },
  ({ text }) => says(String(text.split(/\s+/).filter(Boolean).length)),
);

await server.connect(new StdioServerTransport());
