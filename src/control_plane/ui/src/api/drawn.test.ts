import { expect, it } from "vitest";

import { Drawn } from "./drawn.ts";
import type { Change, Summary } from "./types.ts";

const change = (more: Partial<Summary> & { type?: Change["type"] } = {}): Change => {
  const { type = "applied", ...object } = more;
  return { type, object: { kind: "Tool", namespace: "a", name: "one", uid: "u", phase: "Available", generation: 1, ...object } as Summary };
};

it("tells what alters the graph from what does not", () => {
  const drawn = new Drawn();
  const steps: [Change, boolean][] = [
    [change(), true],
    [change({ resourceVersion: "2", why: "another sentence" }), false],
    [change({ phase: "Error" }), true],
    [change({ phase: "Error", generation: 2 }), true],
    [change({ phase: "Error", generation: 2, namespace: "b" }), true],
    [change({ phase: "Error", generation: 2 }), false],
    [change({ type: "deleted" }), true],
    [change({ uid: "another" }), true],
  ];
  for (const [one, expected] of steps) expect(drawn.altered(one), JSON.stringify(one)).toBe(expected);
  drawn.forget();
  expect(drawn.altered(change({ uid: "another" }))).toBe(true);
});
