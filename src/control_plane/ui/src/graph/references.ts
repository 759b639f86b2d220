/** Graph as a list: each object with what it refers to. */

import { rankOf } from "../api/kinds.ts";
import type { Graph, GraphNode } from "../api/types.ts";
import { idOf } from "./excerpt.ts";

export interface References {
  node: GraphNode;
  uses: { node: GraphNode; broken: boolean }[];
}

/**
 * Lists the objects that refer to others, those with broken references first, and then those without any reference. Objects that
 * others only refer to are in the lists of those. With a focus, its own entry comes first.
 */
export function references({ nodes, edges }: Graph, focus: string | undefined): References[] {
  const byId = new Map(nodes.map((node) => [idOf(node), node]));
  const uses = new Map<string, References["uses"]>();
  const used = new Set<string>();
  for (const { from, to, broken } of edges) {
    const node = byId.get(to);
    if (!node || !byId.has(from)) continue;
    uses.set(from, [...(uses.get(from) ?? []), { node, broken }]);
    used.add(to);
  }
  const rank = (one: References): number => {
    if (idOf(one.node) === focus) return 0;
    if (one.uses.some((use) => use.broken)) return 1;
    return one.uses.length ? 2 : 3;
  };
  return nodes
    .map((node) => ({ node, uses: uses.get(idOf(node)) ?? [] }))
    .filter((one) => one.uses.length || !used.has(idOf(one.node)) || idOf(one.node) === focus)
    .sort((a, b) => rank(a) - rank(b) || rankOf(a.node.kind) - rankOf(b.node.kind) || idOf(a.node).localeCompare(idOf(b.node)));
}
