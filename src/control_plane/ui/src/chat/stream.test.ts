import { describe, expect, it } from "vitest";

import { atEnd, type Ended, isTooLong, LONGEST, type Reply, stopped, textOfReply, WAITING, withEvent } from "./stream.ts";

function replied(events: [event: string, data: unknown][], ended?: (end: Ended) => void): Reply {
  return events.reduce(
    (reply, [event, data], index) => withEvent(reply, { event, data: JSON.stringify(data), id: "" }, (index + 1) * 10, ended),
    WAITING,
  );
}

describe("a reply", () => {
  it("is its tokens joined, with the time to the first one and the conversation at the end", () => {
    let end: Ended | null = null;
    const reply = replied(
      [["message", { token: "Hello " }], ["message", { token: "there" }], ["done", { conversation_id: "c1", title: "Hi" }]],
      (one) => (end = one),
    );
    expect(textOfReply(reply)).toBe("Hello there");
    expect(reply).toMatchObject({ status: "done", firstMs: 10, totalMs: 30, error: null });
    expect(reply.pieces).toHaveLength(1);
    expect(end).toEqual({ conversation: "c1", title: "Hi" });
  });

  it("shows tool calls where they happened, and how they went", () => {
    const reply = replied([
      ["message", { token: "Let me see. " }],
      ["tool_call", { id: "1", name: "weather", arguments: { city: "Paris" } }],
      ["tool_call", { id: "2", name: "clock", arguments: null }],
      ["tool_result", { id: "2", ok: false, tookMs: 5 }],
      ["message", { token: "Sunny" }],
    ]);
    expect(reply.pieces.map((piece) => (piece.type === "text" ? piece.text : [piece.name, piece.ok, piece.tookMs]))).toEqual([
      "Let me see. ", ["weather", null, null], ["clock", false, 5], "Sunny",
    ]);
  });

  it("that ends in an error, without an end, or by the user's will says so and keeps what came", () => {
    const begun: [string, unknown] = ["message", { token: "a" }];
    expect(replied([begun, ["error", { error: "no model" }]])).toMatchObject({ status: "failed", error: "no model" });
    expect(atEnd(replied([begun]), 50)).toMatchObject({ status: "failed", error: "The answer was cut off.", totalMs: 50 });
    expect(atEnd(replied([begun, ["done", {}]]), 50)).toMatchObject({ status: "done", totalMs: 20 });
    expect(textOfReply(stopped(replied([begun]), 50))).toBe("a");
  });

  it("has an end", () => {
    expect(isTooLong(replied([["message", { token: "a".repeat(LONGEST) }]]))).toBe(false);
    expect(isTooLong(replied([["message", { token: "a".repeat(LONGEST) }], ["tool_call", {}], ["message", { token: "a" }]]))).toBe(true);
  });

  it("passes over events that it does not know", () => {
    expect(withEvent(WAITING, { event: "usage", data: "x", id: "" }, 1)).toEqual(WAITING);
  });
});
