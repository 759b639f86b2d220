import { describe, expect, it } from "vitest";

import type { Graph } from "../api/types.ts";
import { excerpt } from "./excerpt.ts";

/** Builds a graph from edges such as `ab`, broken ones such as `a!b`; all of kind Tool, in the namespace n. */
function graph(names: string, ...edges: string[]): Graph {
  const id = (name: string | undefined): string => `Tool/n/${name}`;
  return {
    nodes: names.split("").map((name) => ({ kind: "Tool", namespace: "n", name, phase: null, ready: "Unknown", missing: false })),
    edges: edges.map((edge) => ({ from: id(edge[0]), to: id(edge.at(-1)), broken: edge.includes("!") })),
  };
}
const drawn = ({ nodes, edges }: Graph): string => `${nodes.map((node) => node.name).join("")} ${edges.map((edge) => edge.from.at(-1) + edge.to.slice(-1)).join(" ")}`;

describe("of a graph that is too large", () => {
  it.each([
    ["all, if it is not", graph("abc", "ab"), undefined, 3, "abc ab"],
    ["broken references first", graph("abcdef", "ab", "bc", "e!f"), undefined, 2, "ef ef"],
    ["then what hangs on these, the nearest first", graph("abcdef", "ab", "bc", "c!d"), undefined, 3, "bcd bc cd"],
    ["what is looked at before all", graph("abcdef", "ab", "e!f"), "Tool/n/a", 3, "aef ef"],
    ["then others, each with what hangs on it", graph("abcdef", "af", "be"), undefined, 4, "abef af be"],
    ["no more than asked for", graph("abcdef", "fa", "fb", "fc", "fd", "fe"), "Tool/n/f", 4, "abcf fa fb fc"],
    ["without a focus that is not there", graph("abc", "ab", "bz"), "Tool/n/z", 2, "ab ab"],
  ])("is drawn %s", (_what, whole, focus, most, expected) => {
    expect(drawn(excerpt(whole, focus, most))).toBe(expected);
  });
});
