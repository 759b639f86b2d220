import { expect, it } from "vitest";

import type { Graph, GraphNode } from "../api/types.ts";
import { neighbours } from "./neighbours.ts";

const node = (kind: string, namespace: string, name: string, missing = false): GraphNode => ({ kind, namespace, name, phase: missing ? null : "Available", ready: missing ? "Unknown" : "True", missing });
const edge = (from: string, to: string) => ({ from, to, broken: false });
const graph: Graph = {
  nodes: [node("Tool", "a", "ask"), node("Flow", "a", "flow"), node("Agent", "b", "z"), node("Agent", "a", "y"), node("Prompt", "a", "lost", true), node("Tool", "a", "other")],
  edges: [
    edge("Tool/a/ask", "Flow/a/flow"),
    edge("Tool/a/ask", "Flow/a/flow"),
    edge("Tool/a/ask", "Prompt/a/lost"),
    edge("Agent/b/z", "Tool/a/ask"),
    edge("Agent/a/y", "Tool/a/ask"),
    edge("Agent/a/y", "Tool/a/other"),
    edge("Agent/a/y", "Tool/a/unknown"),
  ],
};
const told = (id: string): string[] => {
  const { uses, usedBy } = neighbours(graph, id);
  return [uses, usedBy].map((list) => list.map((one) => one.name).join(" "));
};

it("lists what an object refers to and what refers to it, each once, missing ones first, then by kind and name", () => {
  expect(told("Tool/a/ask")).toEqual(["lost flow", "y z"]);
  expect(told("Agent/a/y")).toEqual(["ask other", ""]);
  expect(told("Flow/a/flow")).toEqual(["", "ask"]);
  expect(told("Flow/b/flow")).toEqual(["", ""]);
});
