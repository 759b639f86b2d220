import { expect, it } from "vitest";

import { stateOf } from "./kinds.ts";

it.each([
  ["Running", "True", "Running", "good"],
  ["Running", "False", "Running, degraded", "warn"],
  ["Available", "False", "Available, degraded", "warn"],
  ["Running", "Unknown", "Running", "good"],
  ["Running", undefined, "Running", "good"],
  ["Deploying", "False", "Deploying", "busy"],
  ["Failed", "False", "Failed", "bad"],
  ["Terminated", "False", "Terminated", "idle"],
  [null, "False", "No phase yet", "unknown"],
])("an object in %s that is Ready %s is %s, and %s", (phase, ready, text, tone) => {
  expect(stateOf(phase, ready)).toEqual({ text, tone });
});
