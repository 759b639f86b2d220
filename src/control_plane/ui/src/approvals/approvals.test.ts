import { describe, expect, it } from "vitest";

import type { Summary } from "../api/types.ts";
import { agentsThatAsk, decisionOn, isForOthers, keyOf, tasksOf, timeLeft, type WaitingTask } from "./approvals.ts";

const row = (kind: string, namespace: string, name: string, approvals?: string): Summary =>
  ({ kind, namespace, name, columns: approvals ? { Approvals: approvals } : {} }) as unknown as Summary;

const task: WaitingTask = {
  task: "0a",
  by: "Caller",
  user: "ada",
  expires: "2026-01-01T01:00:00Z",
  decided: false,
  calls: [
    { id: "1", name: "pay", args: "{}" },
    { id: "2", name: "pay", args: "{}" },
  ],
};

it("asks the agents at which calls wait, and no others, because a request starts a Pod", () => {
  const rows = [row("Agent", "b", "x", "CallsWait"), row("Agent", "a", "z", "CallsWait"), row("Agent", "a", "y", "NothingWaits"), row("Agent", "a", "w"), row("Flow", "a", "v", "CallsWait"), row("Agent", "a", "c", "CallsWait")];
  expect(agentsThatAsk(rows, new Set()).map(keyOf)).toEqual(["a/c", "a/z", "b/x"]);
  expect(agentsThatAsk(rows, new Set(["a/y", "a/c"])).map(keyOf)).toEqual(["a/c", "a/y", "a/z", "b/x"]);
});

describe("what an agent lists", () => {
  it("has the arguments as the runtime wrote them", () => {
    const tools = [{ id: "1", name: "pay", args: { id: 1 }, args_text: '{"id": 9007199254740993}' }, { id: "2", name: "set" }];
    const listed = { task: "0a", user: "ada", decided: true, conversation_id: "c", approval: { by: "Approver", expires: "2026-01-01T01:00:00Z", tools } };
    expect(tasksOf({ approvals: [listed, { task: "0b" }, null] })).toEqual([
      {
        task: "0a",
        by: "Approver",
        user: "ada",
        expires: "2026-01-01T01:00:00Z",
        decided: true,
        calls: [
          { id: "1", name: "pay", args: '{"id": 9007199254740993}' },
          { id: "2", name: "set", args: "{}" },
        ],
      },
    ]);
  });

  it("is for its caller, of whom an older runtime does not say the name", () => {
    const listed = { task: "0a", approval: { expires: "", tools: [] } };
    expect(tasksOf({ approvals: [listed] })).toEqual([{ task: "0a", by: "Caller", user: null, expires: "", decided: false, calls: [] }]);
  });

  it.each([null, "hello", {}, { approvals: "none" }])("is not %j, which another runtime answers", (body) => {
    expect(() => tasksOf(body)).toThrow("as Récif's runtime does");
  });
});

it("names every call in a decision, and a reason only in a rejection", () => {
  expect(decisionOn(task, true, "no")).toEqual({ approvals: [{ id: "1", approved: true }, { id: "2", approved: true }] });
  const rejected = { approved: false, rejection_reason: "too much" };
  expect(decisionOn(task, false, " too much ")).toEqual({ approvals: [{ id: "1", ...rejected }, { id: "2", ...rejected }] });
  expect(decisionOn(task, false, " ")).toEqual({ approvals: [{ id: "1", approved: false }, { id: "2", approved: false }] });
  expect(decisionOn(task, null, "")).toEqual({ approvals: [] });
});

it.each<[WaitingTask["by"], string | null, string | null, boolean]>([
  ["Approver", "ada", "ada", true],
  ["Approver", "ada", "bob", false],
  ["Approver", null, null, false],
  ["Caller", "ada", "ada", false],
])("of a task by %s that %s asked for, the user %s only waits: %s", (by, asker, user, expected) => {
  expect(isForOthers({ by, user: asker }, user)).toBe(expected);
});

it.each([
  ["2026-01-01T01:00:00Z", "1 h left"],
  ["2026-01-01T00:59:59Z", "59 min left"],
  ["2026-01-01T00:00:30.500Z", "31 s left"],
  ["2026-01-01T00:00:00Z", "expired"],
  ["", ""],
])("of a call that expires at %s says %s", (expires, text) => {
  expect(timeLeft(expires, Date.parse("2026-01-01T00:00:00Z"))).toBe(text);
});
