/**
 * Turn of a conversation, built from a stream of tokens and tool calls up to its end.
 *
 * The runtime sends events without a name, `{"token"}`; `tool_call` and `tool_result` around each tool that the model calls;
 * `approval` for calls that wait until the user decides; and as the last one `done`, with the conversation, or `error`. A stream that ends without one of those was cut off.
 */

import type { ServerEvent } from "../api/sse.ts";

export interface ToolCall {
  id: string;
  name: string;
  arguments: unknown;
  /** Null while it runs. */
  ok: boolean | null;
  tookMs: number | null;
}

/** Part of a reply, in the order of arrival. */
export type Piece = { type: "text"; text: string } | ({ type: "tool" } & ToolCall);

/** Calls that wait until a person decides on them. */
export interface Approval {
  task: string;
  /** Who decides: the user, or an approver other than the user. */
  by: "Caller" | "Approver";
  /** Time at which they are refused (RFC 3339); empty where it is not known. */
  expires: string;
  /** With the JSON of their arguments as the runtime wrote it: numbers of 64 bits are not exact in JavaScript. */
  calls: { id: string; name: string; args: string }[];
}

export interface Reply {
  pieces: Piece[];
  status: "waiting" | "streaming" | "done" | "stopped" | "failed";
  /** Set while the turn waits for the user, and until it goes on. */
  approval: Approval | null;
  /** Set once the user has decided, until the turn has ended or waits again. */
  decided: boolean;
  /** Error text of a failed reply. */
  error: string | null;
  /** Milliseconds from the request to the first token, and to the end. */
  firstMs: number | null;
  totalMs: number | null;
}

export const WAITING: Reply = { pieces: [], status: "waiting", approval: null, decided: false, error: null, firstMs: null, totalMs: null };

export interface Ended {
  conversation: string | null;
  title: string | null;
}

/** Returns the reply after an event that came `ms` after the request; `ended` gets the conversation. */
export function withEvent(before: Reply, event: ServerEvent, ms: number, ended?: (end: Ended) => void): Reply {
  const data = parsed(event.data);
  // What was decided stays until the end: an error may mean that the decision is to be sent again.
  const isOver = before.decided && (event.event === "approval" || event.event === "done");
  const reply = isOver ? { ...before, approval: null, decided: false } : before;
  switch (event.event) {
    case "message": {
      const token = typeof data.token === "string" ? data.token : "";
      return { ...reply, status: "streaming", pieces: withText(reply.pieces, token), firstMs: reply.firstMs ?? ms };
    }
    case "tool_call": {
      const call = { id: String(data.id ?? ""), name: String(data.name ?? ""), arguments: data.arguments, ok: null, tookMs: null };
      return { ...reply, status: "streaming", pieces: [...reply.pieces, { type: "tool", ...call }] };
    }
    case "tool_result": {
      const settle = (piece: Piece): Piece =>
        piece.type === "tool" && piece.ok === null && piece.id === String(data.id ?? "")
          ? { ...piece, ok: data.ok === true, tookMs: typeof data.tookMs === "number" ? data.tookMs : null }
          : piece;
      return { ...reply, pieces: reply.pieces.map(settle) };
    }
    case "approval": {
      const approval = approvalOf(data);
      return approval ? { ...reply, pieces: withoutNote(reply.pieces), approval } : reply;
    }
    case "done":
      ended?.({ conversation: asText(data.conversation_id), title: asText(data.title) });
      return { ...reply, status: "done", totalMs: ms };
    case "error":
      return failed(reply, asText(data.error) ?? "The agent failed without saying why.", ms);
    default:
      return reply;
  }
}

/** Returns the reply of a turn whose decision is sent. What waits is kept until the turn ends: the decision may not arrive. */
export function resumed(reply: Reply): Reply {
  return { ...reply, status: "streaming", decided: true, error: null, totalMs: null };
}

/** Returns the reply of a turn that does not wait any more. */
export function decidedBefore(reply: Reply): Reply {
  return { ...reply, approval: null, decided: false };
}

/** Limit of the characters of a reply; a longer one is cut off. */
export const LONGEST = 1 << 20;

export function isTooLong(reply: Reply): boolean {
  return reply.pieces.reduce((sum, piece) => sum + (piece.type === "text" ? piece.text.length : 100), 0) > LONGEST;
}

/** Returns the reply after the end of the stream. */
export function atEnd(reply: Reply, ms: number): Reply {
  if (reply.status === "done" || reply.status === "failed") return reply;
  return failed(reply, "The answer was cut off.", ms);
}

export function stopped(reply: Reply, ms: number): Reply {
  return { ...reply, status: "stopped", decided: false, totalMs: ms };
}

export function failed(reply: Reply, error: string, ms: number): Reply {
  return { ...reply, status: "failed", error, decided: false, totalMs: ms };
}

export function textOfReply(reply: Reply): string {
  return reply.pieces.map((piece) => (piece.type === "text" ? piece.text : "")).join("");
}

function withText(pieces: Piece[], token: string): Piece[] {
  const last = pieces.at(-1);
  if (!token) return pieces;
  if (last?.type !== "text") return [...pieces, { type: "text", text: token }];
  return [...pieces.slice(0, -1), { type: "text", text: last.text + token }];
}

/** Removes the note on calls that wait, which is for clients that know the text alone. */
function withoutNote(pieces: Piece[]): Piece[] {
  const last = pieces.at(-1);
  if (last?.type !== "text") return pieces;
  const text = last.text.replace(/\n?\[waiting until (?:you approve|an approver other than you approves) [^\]]*\]$/, "");
  return text ? [...pieces.slice(0, -1), { type: "text", text }] : pieces.slice(0, -1);
}

/** Reads what waits: `task`, and `approval` with the calls. */
export function approvalOf(data: Record<string, unknown>): Approval | null {
  const task = asText(data.task);
  const asked = data.approval;
  if (!task || typeof asked !== "object" || asked === null) return null;
  const { by, expires, tools } = asked as { by?: unknown; expires?: unknown; tools?: unknown };
  if (!Array.isArray(tools)) return null;
  const calls = (tools as unknown[]).map((call) => {
    const { id, name, args, args_text } = (call ?? {}) as { id?: unknown; name?: unknown; args?: unknown; args_text?: unknown };
    return { id: asText(id) ?? "", name: asText(name) ?? "", args: asText(args_text) ?? JSON.stringify(args ?? {}, null, 2) };
  });
  return { task, by: by === "Approver" ? by : "Caller", expires: asText(expires) ?? "", calls };
}

function parsed(data: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(data);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function asText(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}
