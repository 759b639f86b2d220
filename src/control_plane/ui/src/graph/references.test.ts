import { expect, it } from "vitest";

import type { Graph, GraphNode } from "../api/types.ts";
import { references } from "./references.ts";

const node = (id: string): GraphNode => {
  const [kind = "", name = ""] = id.split("/");
  return { kind, namespace: "n", name, phase: "Running", ready: "True", missing: false };
};
const edge = (from: string, to: string, broken = false) => ({ from: from.replace("/", "/n/"), to: to.replace("/", "/n/"), broken });
const graph: Graph = {
  nodes: ["Tool/alone", "Tool/shared", "Tool/lost", "Agent/b", "Agent/a", "Flow/f", "Model/m"].map(node),
  edges: [edge("Agent/b", "Tool/shared"), edge("Agent/a", "Tool/shared"), edge("Flow/f", "Tool/lost", true), edge("Flow/f", "Model/m"), edge("Model/m", "Tool/gone")],
};
const told = (focus?: string): string[] =>
  references(graph, focus).map((one) => `${one.node.name}: ${one.uses.map((use) => (use.broken ? `${use.node.name}!` : use.node.name)).join(" ")}`.trim());

it("lists each object with what it refers to, broken references first, and last what has none", () => {
  expect(told()).toEqual(["f: lost! m", "a: shared", "b: shared", "alone:"]);
});

it("begins with the object that one looks at, also if it only is referred to", () => {
  expect(told("Tool/n/shared")).toEqual(["shared:", "f: lost! m", "a: shared", "b: shared", "alone:"]);
  expect(told("Agent/n/b")[0]).toBe("b: shared");
});
