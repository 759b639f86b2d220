/**
 * Excerpt of a graph that is too large for one picture, chosen by breadth-first search.
 *
 * It starts with the focused object and the ends of broken references, followed by their neighbours, the nearest first. If
 * there is room left, the other nodes follow in their order, each with its connected ones. So the excerpt keeps connected nodes
 * together.
 */

import type { Graph, GraphNode } from "../api/types.ts";

export const idOf = (node: GraphNode): string => `${node.kind}/${node.namespace}/${node.name}`;

/** Returns the graph with at most `most` nodes, and the references between those. */
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
