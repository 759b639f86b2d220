/**
 * What is drawn of a graph that is too large for one picture.
 *
 * First the object that is looked at, then broken references, then whatever hangs on these, the nearest first; if there is
 * room left, the others in their order, each with what hangs on it. So what is drawn hangs together.
 */

import type { Graph, GraphNode } from "../api/types.ts";

export const idOf = (node: GraphNode): string => `${node.kind}/${node.namespace}/${node.name}`;

/** The graph with `most` nodes at most, and the references between those. */
export function excerpt(graph: Graph, focus: string | undefined, most: number): Graph {
  if (graph.nodes.length <= most) return graph;
  const near = new Map<string, string[]>(graph.nodes.map((node) => [idOf(node), []]));
  for (const { from, to } of graph.edges) {
    near.get(from)?.push(to);
    near.get(to)?.push(from);
  }
  const chosen = new Set<string>();
  const open: string[] = [];
  const choose = (id: string): void => {
    if (chosen.size >= most || chosen.has(id) || !near.has(id)) return;
    chosen.add(id);
    open.push(id);
  };
  const spread = (): void => {
    for (let at = 0; at < open.length && chosen.size < most; at++) near.get(open[at] ?? "")?.forEach(choose);
    open.length = 0;
  };
  if (focus) choose(focus);
  for (const { from, to, broken } of graph.edges) {
    if (!broken) continue;
    choose(from);
    choose(to);
  }
  spread();
  for (const id of near.keys()) {
    choose(id);
    spread();
  }
  return {
    nodes: graph.nodes.filter((node) => chosen.has(idOf(node))),
    edges: graph.edges.filter((edge) => chosen.has(edge.from) && chosen.has(edge.to)),
  };
}
