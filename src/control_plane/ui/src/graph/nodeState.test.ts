import { expect, it } from "vitest";

import type { GraphNode } from "../api/types.ts";
import { knownStateOfNode, stateOfNode } from "./nodeState.ts";

it.each([
  ["Running", "True", false, "Running", "good"],
  ["Running", "False", false, "Running, degraded", "warn"],
  ["Failed", "False", false, "Failed", "bad"],
  ["Resolving", "False", false, "Resolving", "busy"],
  [null, "Unknown", false, "No phase yet", "unknown"],
  [null, "Unknown", true, "missing", "bad"],
] as const)("a node in %s that is Ready %s, and missing %s, is %s, and %s", (phase, ready, missing, text, tone) => {
  const node: GraphNode = { kind: "FlowSet", namespace: "n", name: "half", phase, ready, missing };
  expect(stateOfNode(node)).toEqual({ text, tone });
  expect(knownStateOfNode(node)).toEqual(phase || missing ? { text, tone } : undefined);
});
