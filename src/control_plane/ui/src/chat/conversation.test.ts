import { afterEach, expect, it, vi } from "vitest";

import { Conversation } from "./conversation.ts";

afterEach(() => void vi.unstubAllGlobals());

it.each([
  ["forbidden", "You may not talk to it: ada may not"],
  ["foreign-origin", "ada may not"],
  [null, "ada may not"],
])("a refusal (403) with the gateway's reason %s is shown as: %s", async (reason, expected) => {
  const headers = new Headers(reason ? { "x-recif-reason": reason } : {});
  vi.stubGlobal("fetch", () => Promise.resolve(Response.json({ error: "ada may not" }, { status: 403, headers })));
  const conversation = new Conversation({ kind: "Flow", namespace: "ns", name: "x" });
  await conversation.send("{}", null, {});
  expect(conversation.turns().map((turn) => turn.reply.error)).toEqual([expected]);
});
