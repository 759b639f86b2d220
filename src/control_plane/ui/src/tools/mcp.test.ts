import { afterEach, describe, expect, it, vi } from "vitest";

import { ApiError } from "../api/client.ts";
import { callTool, headerText, RpcError } from "./mcp.ts";

interface Call {
  method: string;
  headers: Record<string, string>;
  body: Record<string, unknown>;
}
const calls: Call[] = [];

/** Stubs `fetch` with a server that responds by `answer`. */
function serve(answer: (call: Call) => Response): void {
  vi.stubGlobal("fetch", (_url: string, init: RequestInit) => {
    const body = init.body ? (JSON.parse(init.body as string) as Record<string, unknown>) : {};
    const call = { method: init.method ?? "GET", headers: init.headers as Record<string, string>, body };
    calls.push(call);
    return Promise.resolve(answer(call));
  });
}
const result = (call: Call, value: object, headers = {}): Response =>
  Response.json({ jsonrpc: "2.0", id: call.body.id, result: value }, { headers });
const said = { content: [{ type: "text", text: "12:00" }] };
const call = (): Promise<unknown> => callTool("/v1/mcp/default/time/mcp", "now", { zone: "UTC" }, new AbortController().signal);

afterEach(() => {
  calls.length = 0;
  vi.unstubAllGlobals();
});

describe("a tool call", () => {
  it("opens a session, calls, and ends the session", async () => {
    serve((one) => {
      if (one.method === "DELETE") return new Response(null, { status: 204 });
      if (one.body.method === "initialize") return result(one, { protocolVersion: "2025-06-18" }, { "Mcp-Session-Id": "s1" });
      if (one.body.id === undefined) return new Response(null, { status: 202 });
      const stream = `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}\n\ndata: ${JSON.stringify({ jsonrpc: "2.0", id: 2, result: said })}\n\n`;
      return new Response(stream, { headers: { "Content-Type": "text/event-stream" } });
    });
    expect(await call()).toEqual(said);
    expect(calls.map((one) => one.body.method ?? one.method)).toEqual(["initialize", "notifications/initialized", "tools/call", "DELETE"]);
    expect(calls[2]?.headers).toMatchObject({ "Mcp-Session-Id": "s1", "MCP-Protocol-Version": "2025-06-18" });
    expect(calls[2]?.body.params).toEqual({ name: "now", arguments: { zone: "UTC" } });
  });

  it("goes without a session to a server that knows none", async () => {
    serve((one) =>
      one.body.method === "initialize"
        ? Response.json({ jsonrpc: "2.0", id: 1, error: { code: -32601, message: "no such method" } })
        : result(one, said),
    );
    expect(await call()).toEqual(said);
    expect(calls[1]?.headers).toMatchObject({ "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "now" });
    expect(calls).toHaveLength(2);
  });

  it("says what the server refuses, and who is not allowed", async () => {
    serve((one) => Response.json({ jsonrpc: "2.0", id: one.body.id, error: { code: -32000, message: "unknown tool" } }));
    await expect(call()).rejects.toThrow(new RpcError(-32000, "unknown tool"));
    serve(() => Response.json({ error: 'ada may not "create" "mcpservers/invoke"', reason: "forbidden" }, { status: 403 }));
    await expect(call()).rejects.toThrow(new ApiError(403, 'ada may not "create" "mcpservers/invoke"'));
  });
});

it.each([
  ["now", "now"],
  ["two words", "two words"],
  ["é", "=?base64?w6k=?="],
  [" a", "=?base64?IGE=?="],
])("the header for %j is %s", (name, header) => {
  expect(headerText(name)).toBe(header);
});
