import { expect, it } from "vitest";

import { ApiError } from "../api/client.ts";
import { readingOf } from "./reading.ts";

const listed = { data: { items: [] }, error: null };
const refused = { data: undefined, error: new Error("refused") };
const unread = { complete: false, error: new ApiError(503, "not yet") };

it.each([
  ["waits for both", { data: undefined, error: null }, { complete: false, error: null }, false, []],
  ["waits for the rest of the Tools", listed, { complete: false, error: null }, false, []],
  ["has both", listed, { complete: true, error: null }, true, []],
  ["has no Tools", listed, unread, false, ["The Tools cannot be shown: not yet"]],
  ["has no servers", refused, { complete: true, error: null }, false, ["The MCP servers cannot be shown: refused"]],
  ["has neither", refused, unread, false, ["The MCP servers cannot be shown: refused", "The Tools cannot be shown: not yet"]],
  ["has what was read before", { ...listed, error: new Error("refused") }, { complete: true, error: unread.error }, true, []],
])("%s", (_, servers, view, isRead, told) => {
  const reading = readingOf(servers, view);
  expect(reading.isRead).toBe(isRead);
  expect(reading.problems.map(({ what, error }) => `The ${what} cannot be shown: ${error.message}`)).toEqual(told);
});
