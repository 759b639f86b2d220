import { expect, it } from "vitest";

import type { Machine } from "../api/types.ts";
import { BOX, diagram } from "./machineLayout.ts";

const machine: Machine = {
  phases: ["Pending", "Resolving", "Available", "Error", "Paused"],
  edges: [
    { from: "", to: "Pending", by: "Admit", why: "first seen" },
    { from: "Pending", to: "Resolving", by: "accept", why: "the spec is valid" },
    { from: "Resolving", to: "Available", by: "check", why: "all is there" },
    { from: "Available", to: "Resolving", by: "monitor", why: "a reference changed" },
    { from: "Available", to: "Resolving", by: "monitor", why: "it was deleted" },
    { from: "*", to: "Pending", by: "SpecChanged", why: "the spec changed" },
    ...["Pending", "Resolving", "Available", "Paused"].map((from) => ({ from, to: "Error", by: "Fail", why: "failed permanently" })),
  ],
};

it("draws each phase once and within its size, also one that this build does not know", () => {
  const { boxes, width, height } = diagram(machine);
  expect(boxes.map((box) => box.phase)).toEqual(machine.phases);
  expect(new Set(boxes.map((box) => `${box.x} ${box.y}`)).size).toBe(machine.phases.length);
  for (const box of boxes) expect(box.x + BOX.width <= width && box.y + BOX.height <= height).toBe(true);
});

it("draws a move between two phases once, with all its reasons, and none that may begin anywhere", () => {
  const arrows = diagram(machine).arrows;
  expect(arrows.map((arrow) => `${arrow.from} ${arrow.to} ${arrow.why.length}`)).toEqual([
    "Pending Resolving 1",
    "Resolving Available 1",
    "Available Resolving 2",
  ]);
});
