import { describe, expect, it } from "vitest";

import type { TraceEntry } from "../api/types.ts";
import { ago, currentRun, duration, lastCycle, lasted, lastedText, stretches } from "./timeline.ts";

const START = Date.parse("2026-11-21T12:30:00.005Z");
let seq = 0;
function entry(second: number, from: string, to: string, more: Partial<TraceEntry> = {}): TraceEntry {
  const at = new Date(START + second * 1000).toISOString();
  return { seq: ++seq, at, from, to, action: "resolve", reason: "", tookMs: 0, traceId: "", ...more };
}

describe("stretches of time", () => {
  it("come from the moves, with waits where they happened", () => {
    seq = 0;
    const list = stretches([
      entry(0, "", "Pending"),
      entry(0.1, "Pending", "Resolving"),
      entry(0.2, "Resolving", "Resolving", { reason: 'tool "shop" not found' }),
      entry(3.2, "Resolving", "Rendering"),
      entry(3.3, "Rendering", "Deploying"),
      entry(10.7, "Deploying", "Running"),
    ]);
    const now = START + 20_700;
    expect(list.map((one) => [one.phase, lasted(one, now), one.waits.length])).toEqual([
      ["Pending", 100, 0],
      ["Resolving", 3100, 1],
      ["Rendering", 100, 0],
      ["Deploying", 7400, 0],
      ["Running", 10_000, 0],
    ]);
    expect(list.at(-1)?.end).toBeNull();
    expect(list.some((one) => one.afterGap)).toBe(false);
  });

  it("are a run from the last Pending on", () => {
    seq = 0;
    const list = stretches([
      entry(0, "", "Pending"),
      entry(1, "Pending", "Running"),
      entry(5, "Running", "Pending"),
      entry(7, "Pending", "Running"),
    ]);
    expect(currentRun(list).map((one) => one.start - START)).toEqual([5000, 7000]);
  });

  it.each([
    [["Pending", "Resolving", "Running"], "Pending Resolving Running"],
    [["Pending", "Running", "Resolving", "Running", "Resolving", "Deploying", "Running"], "Resolving Deploying Running"],
    [["Pending", "Running", "Resolving", "Deploying"], "Resolving Deploying"],
    [["Pending", "Deploying", "Failed", "Resolving", "Failed"], "Resolving Failed"],
    [["Running"], "Running"],
    [[], ""],
  ])("of %j have the last cycle %s", (phases, expected) => {
    seq = 0;
    const list = stretches(phases.map((phase, index) => entry(index, phases[index - 1] ?? "", phase)));
    expect(list.slice(lastCycle(list)).map((one) => one.phase).join(" ")).toBe(expected);
  });

  it("show where the history has a gap, and that it does not reach back", () => {
    const list = stretches([
      entry(0, "Running", "Running", { seq: 41 }),
      entry(9, "Pending", "Resolving", { seq: 44 }),
      entry(10, "Resolving", "Running", { seq: 45 }),
    ]);
    expect(list.map((one) => [one.phase, one.afterGap, one.entry?.seq ?? null])).toEqual([
      ["Running", true, null],
      ["Resolving", true, 44],
      ["Running", false, 45],
    ]);
  });

  it("are in order however the entries come, and empty without any", () => {
    seq = 0;
    const [first, second] = [entry(0, "", "Pending"), entry(1, "Pending", "Resolving")];
    expect(stretches([second, first]).map((one) => one.phase)).toEqual(["Pending", "Resolving"]);
    expect(stretches([])).toEqual([]);
  });
});

it("times known to the second yield no fractions", () => {
  seq = 0;
  const at = (second: string, from: string, to: string): TraceEntry => ({ ...entry(0, from, to), at: `2026-11-21T12:30:${second}Z` });
  const list = stretches([at("34", "", "Pending"), at("34.789114", "Pending", "Resolving"), at("35.000000", "Resolving", "Rendering"), at("39", "Rendering", "Running")]);
  const now = Date.parse("2026-11-21T12:30:40.900Z");
  expect(list.map((one) => lastedText(lasted(one, now)))).toEqual(["under 1 s", "1 s", "4 s", "1 s"]);
  seq = 0;
  const exact = stretches([at("34.500000", "", "Pending"), at("34.789114", "Pending", "Resolving"), at("39.250000", "Resolving", "Running")]);
  expect(exact.map((one) => lastedText(lasted(one, now)))).toEqual(["289 ms", "4.5 s", "1.6 s"]);
});

describe("durations", () => {
  it.each([
    [0, "0 ms"],
    [340, "340 ms"],
    [7400, "7.4 s"],
    [59_900, "60 s"],
    [60_000, "1 min"],
    [185_000, "3 min 5 s"],
    [3_600_000, "1 h"],
    [3_605_000, "1 h"],
    [187_200_000, "2 d 4 h"],
  ])("%d ms is %s", (milliseconds, text) => {
    expect(duration(milliseconds)).toBe(text);
  });

  it.each([
    [300, "now"],
    [12_300, "12 s"],
    [3_599_000, "59 min"],
    [90_000_000, "1 d"],
  ])("%d ms ago is %s", (milliseconds, text) => {
    expect(ago(milliseconds)).toBe(text);
  });
});
