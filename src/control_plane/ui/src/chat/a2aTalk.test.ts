import { afterEach, beforeEach, expect, it, vi } from "vitest";

import type { ServerEvent } from "../api/sse.ts";
import { askAgent, newChat } from "./a2aTalk.ts";

interface Call {
  url: string;
  method: string | null;
  version: string | undefined;
  params: Record<string, Record<string, unknown>>;
}
const calls: Call[] = [];
const target = { kind: "Agent", namespace: "ns", name: "x" };
const card = { capabilities: { streaming: true }, supportedInterfaces: [{ url: "http://localhost:8000/rpc", protocolBinding: "JSONRPC", protocolVersion: "1.0" }] };
const result = (value: object): string => JSON.stringify({ jsonrpc: "2.0", id: 1, result: value });
const task = (state: string, text: string): object => ({ id: "t", contextId: "c", status: { state, message: { parts: [{ text }] } } });
const stream = (...results: object[]): Response => new Response(results.map((one) => `data: ${result(one)}\n\n`).join(""), { headers: { "Content-Type": "text/event-stream" } });

/** Stubs `fetch` with an agent that has this card and responds by `answer`. */
function serve(answer: (call: Call) => Response): void {
  vi.stubGlobal("fetch", (url: string, init: RequestInit) => {
    init.signal?.throwIfAborted();
    const body = init.body ? (JSON.parse(init.body as string) as { method: string; params: Call["params"] }) : null;
    const call = { url, method: body?.method ?? null, version: (init.headers as Record<string, string>)["A2A-Version"], params: body?.params ?? {} };
    calls.push(call);
    return Promise.resolve(body ? answer(call) : Response.json(card));
  });
}

/** Asks, and returns the events as their names and data. */
async function asked(chat = newChat(), signal = new AbortController().signal): Promise<[string, unknown][]> {
  const events: [string, unknown][] = [];
  await askAgent(chat, target, "hi", signal, ({ event, data }: ServerEvent) => void events.push([event, JSON.parse(data) as unknown]));
  return events;
}

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] }));
afterEach(() => {
  calls.length = 0;
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it("an answer is streamed, and the next message continues its context and the task that waits", async () => {
  const chat = newChat();
  serve(() => stream({ task: task("TASK_STATE_SUBMITTED", "") }, { task: task("TASK_STATE_INPUT_REQUIRED", "Which city?") }));
  expect(await asked(chat)).toEqual([["message", { token: "Which city?" }], ["done", { conversation_id: "c" }]]);
  await asked(chat);
  expect(calls.map((call) => call.url)).toEqual(["/gateway/v1/agents/ns/x/.well-known/agent-card.json", "/gateway/v1/agents/ns/x/rpc", "/gateway/v1/agents/ns/x/rpc"]);
  expect(calls[1]?.params.message).not.toHaveProperty("contextId");
  expect(calls[2]?.params.message).toMatchObject({ contextId: "c", taskId: "t", parts: [{ text: "hi" }] });
  expect(calls[2]).toMatchObject({ method: "SendStreamingMessage", version: "1.0" });
});

it("calls that a person decides on are shown as those of a chat, and the next message names no task", async () => {
  const chat = newChat();
  const waiting = { task: "t.1", approval: { expires: "", tools: [] } };
  const status = { state: "TASK_STATE_INPUT_REQUIRED", message: { parts: [{ text: "pay?" }], metadata: { "recif.dev/waiting": waiting } } };
  serve(() => stream({ task: { id: "t", contextId: "c", status } }));
  expect(await asked(chat)).toEqual([["message", { token: "pay?" }], ["approval", waiting], ["done", { conversation_id: "c" }]]);
  await asked(chat);
  expect(calls[2]?.params.message).toMatchObject({ contextId: "c" });
  expect(calls[2]?.params.message).not.toHaveProperty("taskId");
});

it("a stream that breaks off goes on by asking for the task", async () => {
  let polls = 0;
  serve((call) => (call.method === "GetTask" ? new Response(result(task(++polls < 2 ? "TASK_STATE_WORKING" : "TASK_STATE_COMPLETED", "done"))) : stream({ task: task("TASK_STATE_WORKING", "") })));
  const answer = asked();
  await vi.advanceTimersByTimeAsync(3000);
  expect(await answer).toEqual([["message", { token: "done" }], ["done", { conversation_id: "c" }]]);
  expect(polls).toBe(2);
});

it("a failed task says why, and an agent that refuses is asked for its card again", async () => {
  const chat = newChat();
  serve(() => stream({ task: task("TASK_STATE_FAILED", "no seat") }));
  expect(await asked(chat)).toEqual([["error", { error: "The agent failed: no seat" }]]);
  serve(() => new Response(JSON.stringify({ error: { code: -32004, message: "not today" } })));
  await expect(asked(chat)).rejects.toThrow("not today (error -32004)");
  await expect(asked(chat)).rejects.toThrow("not today (error -32004)");
  expect(calls.filter((call) => call.method === null)).toHaveLength(2);
});

it("a turn that is stopped cancels its task", async () => {
  const stop = new AbortController();
  serve((call) => (call.method === "CancelTask" ? new Response(result(task("TASK_STATE_CANCELED", ""))) : stream({ task: task("TASK_STATE_WORKING", "") })));
  const answer = expect(asked(newChat(), stop.signal)).rejects.toThrow();
  await vi.advanceTimersByTimeAsync(500);
  stop.abort();
  await answer;
  expect(calls.at(-1)).toMatchObject({ method: "CancelTask", params: { id: "t" } });
});

it("what has no card says so", async () => {
  vi.stubGlobal("fetch", () => Promise.resolve(new Response("{}", { status: 404 })));
  await expect(asked()).rejects.toThrow("It has no agent card: is it an A2A agent?");
});
