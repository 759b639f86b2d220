import { expect, it } from "vitest";

import { inputOf, targetOf } from "./target.ts";

it.each([
  [{ type: "http", endpoint: "https://shop/{id}" }, { text: "GET https://shop/{id}" }],
  [{ type: "http", endpoint: "https://shop", method: "POST" }, { text: "POST https://shop" }],
  [{ type: "cli", binary: "git", allowedCommands: ["log", "show"] }, { text: "git log | show" }],
  [{ type: "cli", binary: "date", allowedCommands: [] }, { text: "date" }],
  [{ type: "mcp", mcpEndpoint: "http://far/mcp" }, { text: "http://far/mcp" }],
  [{ type: "mcp", mcpServerRef: { kind: "MCPServer", name: "desk" } }, { kind: "MCPServer", namespace: "team", name: "desk" }],
  [{ type: "mcp", mcpServerRef: { kind: "RemoteMCPServer", name: "docs", namespace: "shared" } }, { kind: "RemoteMCPServer", namespace: "shared", name: "docs" }],
  [{ type: "builtin" }, { text: "a function of the runtime" }],
  [{ type: "flow", flowRef: { name: "greeter" } }, { kind: "Flow", namespace: "team", name: "greeter" }],
  [{ type: "agent", agentRef: { name: "boss" } }, { kind: "Agent", namespace: "team", name: "boss" }],
  [{ type: "agent", endpoint: "https://partner/quotes" }, { text: "https://partner/quotes" }],
  [{ type: "agent", agentRef: { name: "boss", namespace: "lab" } }, { kind: "Agent", namespace: "lab", name: "boss" }],
  [{ type: "http" }, null],
  [{ type: "mcp" }, null],
  [{ type: "of the future" }, null],
])("a Tool %j calls %j", (spec, target) => {
  expect(targetOf(spec, "team")).toEqual(target);
});

it("has a schema, or the parameters that stand for one", () => {
  expect(inputOf({ inputSchema: { type: "object" }, parameters: [] })).toEqual({ type: "object" });
  expect(inputOf({ parameters: [{ name: "city" }] })).toEqual([{ name: "city" }]);
  expect(inputOf({ parameters: [] })).toBeUndefined();
});
