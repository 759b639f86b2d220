import { describe, expect, it } from "vitest";

import { around, components, layout, SIZES, settle } from "./layout.ts";

const node = (id: string): { id: string } => ({ id });
const edges = (...pairs: string[]): { from: string; to: string }[] =>
  pairs.map((pair) => ({ from: pair[0] as string, to: pair[1] as string }));

describe("a layout", () => {
  it("puts who refers left of what is referred to, however long the way", () => {
    const result = layout([..."amtp"].map(node), edges("at", "am", "mp", "ap", "tp"));
    const x = (id: string): number => result.nodes.get(id)?.x ?? Number.NaN;
    expect(x("a")).toBe(0);
    expect(x("t")).toBe(x("m"));
    expect(x("p")).toBe(2 * (SIZES.nodeWidth + SIZES.columnGap));
  });

  it("lets no two nodes overlap, and stays within its size", () => {
    const ids = Array.from({ length: 60 }, (_, index) => `n${index}`);
    const many = ids.flatMap((id, index) => [
      { from: id, to: `n${(index * 7 + 3) % 60}` },
      { from: id, to: `n${(index * 11 + 5) % 60}` },
    ]).filter(({ from, to }) => Number(from.slice(1)) % 3 < Number(to.slice(1)) % 3);
    const { nodes, width, height } = layout(ids.map(node), many);
    const all = [...nodes.values()];
    expect(all).toHaveLength(60);
    for (const [index, a] of all.entries()) {
      expect(a.x >= 0 && a.y >= 0 && a.x + SIZES.nodeWidth <= width && a.y + SIZES.nodeHeight <= height + 1e-6).toBe(true);
      for (const b of all.slice(index + 1)) {
        const apart = Math.abs(a.x - b.x) >= SIZES.nodeWidth || Math.abs(a.y - b.y) >= SIZES.nodeHeight - 1e-6;
        expect(apart, `${a.id} and ${b.id}`).toBe(true);
      }
    }
  });

  it("ends with cycles, references to itself and edges to nowhere", () => {
    const { nodes } = layout([..."abc"].map(node), edges("ab", "bc", "ca", "aa", "ax"));
    expect(nodes.size).toBe(3);
    expect(new Set([...nodes.values()].map((one) => one.x)).size).toBe(3);
  });

  it("of nothing is empty", () => {
    expect(layout([], [])).toEqual({ nodes: new Map(), width: 0, height: 0 });
  });
});

it("what hangs together is one component", () => {
  expect(components([..."abcde"], edges("ab", "cb")).map((part) => part.sort().join(""))).toEqual(["abc", "d", "e"]);
});

it("places settle as near as they can, one apart", () => {
  expect(settle([0, 0, 0])).toEqual([-1, 0, 1]);
  expect(settle([0, 5, 5.5])).toEqual([0, 4.75, 5.75]);
});

it("around a node are its users and what it uses, not what else those use", () => {
  expect([...around("t", edges("at", "tp", "am", "bt", "cp"))].sort()).toEqual(["a", "b", "p", "t"]);
});
