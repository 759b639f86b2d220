import { describe, expect, it } from "vitest";

import { atEnd, decidedBefore, type Ended, failed, isTooLong, LONGEST, type Reply, resumed, stopped, textOfReply, WAITING, withEvent } from "./stream.ts";

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

  it("has the calls that wait for the user in place of the note on them, until it goes on", () => {
    const note = "\n[waiting until you approve `pay`]";
    const asked = { conversation_id: "c1", task: "t1", approval: { expires: "2026-01-01T01:00:00Z", tools: [{ id: "1", name: "pay", args: { euros: 5 } }] } };
    const reply = replied([["message", { token: "Let me pay." }], ["message", { token: note }], ["approval", asked], ["done", { conversation_id: "c1" }]]);
    expect(textOfReply(reply)).toBe("Let me pay.");
    expect(reply).toMatchObject({
      status: "done",
      approval: { task: "t1", expires: "2026-01-01T01:00:00Z", calls: [{ id: "1", name: "pay", args: '{\n  "euros": 5\n}' }] },
    });
    expect(replied([["message", { token: note }], ["approval", asked]]).pieces).toEqual([]);
    expect(replied([["approval", { task: "t1" }]]).approval).toBeNull();
  });

  it("says who decides, and is for the user where the runtime does not say", () => {
    const note = "[waiting until an approver other than you approves `pay`]";
    const asked = (by?: string) => ({ task: "t1", approval: { by, expires: "", tools: [{ id: "1", name: "pay", args: {} }] } });
    const reply = replied([["message", { token: note }], ["approval", asked("Approver")], ["done", {}]]);
    expect(reply).toMatchObject({ pieces: [], approval: { by: "Approver" } });
    for (const by of ["Caller", undefined]) expect(replied([["approval", asked(by)]]).approval?.by).toBe("Caller");
  });

  it("shows the arguments that are sent, also numbers that JavaScript rounds", () => {
    const call = '{"id": "1", "name": "pay", "args": {"to": 9007199254740993}, "args_text": "{\\n  \\"to\\": 9007199254740993\\n}"}';
    const data = `{"task": "t1", "approval": {"tools": [${call}]}}`;
    const reply = withEvent(WAITING, { event: "approval", data, id: "" }, 5);
    expect(reply.approval?.calls[0]?.args).toBe('{\n  "to": 9007199254740993\n}');
  });

  it("shows what waits again if the decision did not arrive or the turn broke off, and no more once it has ended", () => {
    const asked = (task: string) => ({ task, approval: { tools: [{ id: "1", name: "pay", args: {} }] } });
    const decided = resumed(replied([["approval", asked("t1")], ["done", {}]]));
    expect(decided.status).toBe("streaming");
    const error = withEvent(decided, { event: "error", data: JSON.stringify({ error: "send it again" }), id: "" }, 5);
    for (const back of [failed(decided, "The connection broke.", 5), stopped(decided, 5), atEnd(decided, 5), error]) {
      expect(back).toMatchObject({ approval: { task: "t1" }, decided: false });
    }
    const begun = withEvent(decided, { event: "message", data: JSON.stringify({ token: "paid" }), id: "" }, 5);
    const broken = withEvent(begun, { event: "error", data: JSON.stringify({ error: "this replica ends" }), id: "" }, 6);
    for (const back of [failed(begun, "The connection broke.", 6), broken]) {
      expect(back).toMatchObject({ approval: { task: "t1" }, decided: false });
    }
    expect(withEvent(begun, { event: "done", data: "{}", id: "" }, 6)).toMatchObject({ status: "done", approval: null });
    const further = withEvent(begun, { event: "approval", data: JSON.stringify(asked("t2")), id: "" }, 6);
    expect(withEvent(further, { event: "done", data: "{}", id: "" }, 7)).toMatchObject({ status: "done", approval: { task: "t2" } });
    expect(decidedBefore(decided).approval).toBeNull();
  });

  it("has an end", () => {
    expect(isTooLong(replied([["message", { token: "a".repeat(LONGEST) }]]))).toBe(false);
    expect(isTooLong(replied([["message", { token: "a".repeat(LONGEST) }], ["tool_call", {}], ["message", { token: "a" }]]))).toBe(true);
  });

  it("passes over events that it does not know", () => {
    expect(withEvent(WAITING, { event: "usage", data: "x", id: "" }, 1)).toEqual(WAITING);
  });
});
