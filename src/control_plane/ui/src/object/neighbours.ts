/** Objects that an object refers to, and those that refer to it. */

import { rankOf } from "../api/kinds.ts";
import type { Graph, GraphNode } from "../api/types.ts";
import { idOf } from "../graph/excerpt.ts";

export interface Neighbours {
  uses: GraphNode[];
  usedBy: GraphNode[];
}

/** Returns the neighbours of the object with this id, each once: the missing ones first, then by kind and name. */
export function neighbours({ nodes, edges }: Graph, id: string): Neighbours {
  const order = (a: GraphNode, b: GraphNode): number =>
    Number(b.missing) - Number(a.missing) || rankOf(a.kind) - rankOf(b.kind) || idOf(a).localeCompare(idOf(b));
  const listed = (ids: string[]): GraphNode[] => {
    const wanted = new Set(ids);
    return nodes.filter((node) => wanted.has(idOf(node))).sort(order);
  };
  return {
    uses: listed(edges.filter((edge) => edge.from === id).map((edge) => edge.to)),
    usedBy: listed(edges.filter((edge) => edge.to === id).map((edge) => edge.from)),
  };
}
