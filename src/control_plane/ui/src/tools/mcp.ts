/**
 * Client that calls a tool by [MCP](https://modelcontextprotocol.io) over Streamable HTTP, through the gateway.
 *
 * Servers of the older era need a session: initialize, the call, and a DELETE at its end. Servers of the newer one (2026-07-28)
 * have no session and take the call at once; a server that does not know `initialize` is of the newer era.
 */

import { ApiError, GATEWAY, request } from "../api/client.ts";
import { eventsOf } from "../api/sse.ts";

const OLDER = "2025-11-25";
const NEWER = "2026-07-28";
const CLIENT = { name: "recif-ui", version: "1" };

export interface Content {
  type: string;
  text?: string;
  data?: string;
  mimeType?: string;
  [field: string]: unknown;
}
export interface ToolResult {
  content: Content[];
  structuredContent?: unknown;
  /** True if the tool ran and failed. */
  isError?: boolean;
}

/** JSON-RPC error of the server. */
export class RpcError extends Error {
  override name = "RpcError";
  readonly code: number;
  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

interface Answer {
  message: Record<string, unknown> | null;
  session: string | null;
}

/** Calls `tool` of the server at `callPath` of the gateway. */
export async function callTool(
  callPath: string,
  tool: string,
  args: Record<string, unknown>,
  signal: AbortSignal,
): Promise<ToolResult> {
  const url = `${GATEWAY}${callPath}`;
  let opened: Answer;
  try {
    opened = await post(url, rpc(1, "initialize", { protocolVersion: OLDER, capabilities: {}, clientInfo: CLIENT }), {}, signal);
  } catch (error) {
    if (knowsNoHandshake(error)) return await newer(url, tool, args, signal);
    throw error;
  }
  const agreed = (resultOf(opened) as { protocolVersion?: string }).protocolVersion ?? OLDER;
  const headers: Record<string, string> = { "MCP-Protocol-Version": agreed };
  if (opened.session) headers["Mcp-Session-Id"] = opened.session;
  try {
    await post(url, { jsonrpc: "2.0", method: "notifications/initialized" }, headers, signal);
    return resultOf(await post(url, rpc(2, "tools/call", { name: tool, arguments: args }), headers, signal)) as ToolResult;
  } finally {
    // Also after an aborted call.
    if (opened.session) request(url, { method: "DELETE", headers }).catch(() => undefined);
  }
}

async function newer(url: string, tool: string, args: Record<string, unknown>, signal: AbortSignal): Promise<ToolResult> {
  const headers = { "MCP-Protocol-Version": NEWER, "Mcp-Method": "tools/call", "Mcp-Name": headerText(tool) };
  const _meta = {
    "io.modelcontextprotocol/protocolVersion": NEWER,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  const call = rpc(1, "tools/call", { name: tool, arguments: args, _meta });
  return resultOf(await post(url, call, headers, signal)) as ToolResult;
}

/** Returns a text for a header, in base64 if a header cannot hold it as it is, as the specification requires. */
export function headerText(text: string): string {
  const plain = /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !text.startsWith("=?base64?");
  if (plain) return text;
  return `=?base64?${btoa(String.fromCharCode(...new TextEncoder().encode(text)))}?=`;
}

/**
 * Reports whether an error means that the server does not know `initialize`: JSON-RPC's "method not found", an unsupported
 * version, or a 400 for the whole request.
 */
function knowsNoHandshake(error: unknown): boolean {
  if (error instanceof RpcError) return [-32601, -32020, -32022, -32602].includes(error.code);
  return error instanceof ApiError && error.status === 400;
}

function rpc(id: number, method: string, params: object): Record<string, unknown> {
  return { jsonrpc: "2.0", id, method, params };
}

async function post(url: string, body: Record<string, unknown>, headers: Record<string, string>, signal: AbortSignal): Promise<Answer> {
  const response = await request(url, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json, text/event-stream", ...headers },
    body: JSON.stringify(body),
    signal,
  });
  const session = response.headers.get("Mcp-Session-Id");
  if (body.id === undefined || response.status === 202) {
    await response.body?.cancel();
    return { message: null, session };
  }
  if (response.headers.get("Content-Type")?.startsWith("text/event-stream") && response.body) {
    for await (const event of eventsOf(response.body)) {
      const message = event.data ? (JSON.parse(event.data) as Record<string, unknown>) : {};
      if (message.id === body.id && ("result" in message || "error" in message)) return checked(message, session);
    }
    throw new ApiError(0, "The server ended its answer before the result came.");
  }
  return checked((await response.json()) as Record<string, unknown>, session);
}

function checked(message: Record<string, unknown>, session: string | null): Answer {
  const error = message.error as { code?: number; message?: string } | undefined;
  if (error) throw new RpcError(error.code ?? 0, error.message ?? "The server refused without saying why.");
  return { message, session };
}

function resultOf(answer: Answer): object {
  const result = answer.message?.result;
  if (typeof result !== "object" || result === null) throw new ApiError(0, "The server sent an answer that does not fit the request.");
  return result;
}
