/**
 * Layered drawing of the graph of references, as by [Sugiyama](https://en.wikipedia.org/wiki/Layered_graph_drawing): an object
 * stands left of the objects to which it refers.
 *
 * Each connected component is laid out by itself: longest path for the layers, barycentres for the order, then each node is
 * moved towards its neighbours. Components stand below each other, largest first, and nodes without references fill a grid at
 * the end. A cycle is cut at the reference that closes it.
 */

export interface LayoutNode {
  id: string;
}
export interface LayoutEdge {
  from: string;
  to: string;
}
export interface Placed {
  id: string;
  x: number;
  y: number;
}
export interface Layout {
  nodes: Map<string, Placed>;
  width: number;
  height: number;
}
export interface Sizes {
  nodeWidth: number;
  nodeHeight: number;
  columnGap: number;
  rowGap: number;
  /** Columns of the grid of nodes without references. */
  gridColumns: number;
}

export const SIZES: Sizes = { nodeWidth: 200, nodeHeight: 46, columnGap: 90, rowGap: 14, gridColumns: 4 };

export function layout(nodes: readonly LayoutNode[], edges: readonly LayoutEdge[], sizes: Sizes = SIZES): Layout {
  const ids = new Set(nodes.map((node) => node.id));
  const known = edges.filter((edge) => edge.from !== edge.to && ids.has(edge.from) && ids.has(edge.to));
  const placed = new Map<string, Placed>();
  const [stepX, stepY] = [sizes.nodeWidth + sizes.columnGap, sizes.nodeHeight + sizes.rowGap];
  let bottom = 0;
  let width = 0;

  const parts = components([...ids], known);
  for (const part of parts.filter((one) => one.length > 1).sort((a, b) => b.length - a.length)) {
    const members = new Set(part);
    const within = known.filter((edge) => members.has(edge.from));
    const layers = layered(part, within);
    const rows = spread(order(layers, within), within);
    const top = Math.min(...rows.values());
    let deepest = 0;
    layers.forEach((layer, column) => {
      for (const id of layer) {
        const y = bottom + ((rows.get(id) ?? 0) - top) * stepY;
        deepest = Math.max(deepest, y);
        placed.set(id, { id, x: column * stepX, y });
      }
    });
    width = Math.max(width, layers.length * stepX - sizes.columnGap);
    bottom = deepest + stepY + sizes.rowGap * 2;
  }

  const alone = parts.filter((one) => one.length === 1).flat();
  const gridStep = sizes.nodeWidth + sizes.rowGap * 2;
  alone.forEach((id, index) => {
    const column = index % sizes.gridColumns;
    placed.set(id, { id, x: column * gridStep, y: bottom + Math.floor(index / sizes.gridColumns) * stepY });
    width = Math.max(width, column * gridStep + sizes.nodeWidth);
  });
  const lowest = Math.max(0, ...[...placed.values()].map((node) => node.y + sizes.nodeHeight));
  return { nodes: placed, width, height: lowest };
}

/** Returns the connected components, in the order of their first nodes. */
export function components(ids: readonly string[], edges: readonly LayoutEdge[]): string[][] {
  const neighbours = new Map<string, string[]>(ids.map((id) => [id, []]));
  for (const { from, to } of edges) {
    neighbours.get(from)?.push(to);
    neighbours.get(to)?.push(from);
  }
  const seen = new Set<string>();
  const parts: string[][] = [];
  for (const id of ids) {
    if (seen.has(id)) continue;
    const part: string[] = [];
    const open = [id];
    seen.add(id);
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      part.push(next);
      for (const other of neighbours.get(next) ?? []) {
        if (seen.has(other)) continue;
        seen.add(other);
        open.push(other);
      }
    }
    parts.push(part);
  }
  return parts;
}

/** Assigns layers by the longest path: each node stands right of all nodes that refer to it. */
function layered(ids: readonly string[], edges: readonly LayoutEdge[]): string[][] {
  const users = new Map<string, string[]>(ids.map((id) => [id, []]));
  for (const { from, to } of edges) users.get(to)?.push(from);
  const depth = new Map<string, number>();
  const onPath = new Set<string>();
  const visit = (id: string): number => {
    const known = depth.get(id);
    if (known !== undefined) return known;
    onPath.add(id);
    let deepest = 0;
    for (const user of users.get(id) ?? []) if (!onPath.has(user)) deepest = Math.max(deepest, visit(user) + 1);
    onPath.delete(id);
    depth.set(id, deepest);
    return deepest;
  };
  const layers: string[][] = [];
  for (const id of [...ids].sort()) (layers[visit(id)] ??= []).push(id);
  return Array.from(layers, (layer) => layer ?? []).filter((layer) => layer.length);
}

function adjacency(edges: readonly LayoutEdge[]): Map<string, string[]> {
  const near = new Map<string, string[]>();
  const add = (id: string, other: string): void => void (near.get(id) ?? near.set(id, []).get(id))?.push(other);
  for (const { from, to } of edges) {
    add(from, to);
    add(to, from);
  }
  return near;
}

/** Orders each layer by the barycentres of its neighbours, in sweeps back and forth. */
function order(layers: string[][], edges: readonly LayoutEdge[]): string[][] {
  const near = adjacency(edges);
  const place = new Map<string, number>();
  const note = (layer: string[]): void => layer.forEach((id, index) => place.set(id, index / Math.max(1, layer.length - 1)));
  layers.forEach(note);
  for (let sweep = 0; sweep < 6; sweep++) {
    for (const layer of sweep % 2 ? [...layers].reverse() : layers) {
      const mean = new Map(layer.map((id) => [id, meanOf(near.get(id), place) ?? place.get(id) ?? 0]));
      layer.sort((a, b) => (mean.get(a) ?? 0) - (mean.get(b) ?? 0));
      note(layer);
    }
  }
  return layers;
}

function meanOf(ids: readonly string[] | undefined, place: ReadonlyMap<string, number>): number | null {
  if (!ids?.length) return null;
  return ids.reduce((sum, id) => sum + (place.get(id) ?? 0), 0) / ids.length;
}

/** Assigns rows, as fractional numbers: as near to the neighbours as the order and one row per node allow. */
function spread(layers: readonly string[][], edges: readonly LayoutEdge[]): Map<string, number> {
  const near = adjacency(edges);
  const rows = new Map<string, number>();
  const tallest = Math.max(...layers.map((layer) => layer.length));
  for (const layer of layers) layer.forEach((id, index) => rows.set(id, index + (tallest - layer.length) / 2));
  for (let round = 0; round < 8; round++) {
    for (const layer of round % 2 ? [...layers].reverse() : layers) {
      const wanted = layer.map((id) => meanOf(near.get(id), rows) ?? rows.get(id) ?? 0);
      settle(wanted).forEach((row, index) => rows.set(layer[index] as string, row));
    }
  }
  return rows;
}

/**
 * Returns the positions nearest to the wanted ones that are in order and at least one apart (isotonic regression by pool
 * adjacent violators).
 */
export function settle(wanted: readonly number[]): number[] {
  const blocks: { sum: number; count: number }[] = [];
  wanted.forEach((place, index) => {
    let block = { sum: place - index, count: 1 };
    for (let last = blocks.at(-1); last && last.sum / last.count > block.sum / block.count; last = blocks.at(-1)) {
      blocks.pop();
      block = { sum: last.sum + block.sum, count: last.count + block.count };
    }
    blocks.push(block);
  });
  return blocks.flatMap(({ sum, count }) => Array.from<number>({ length: count }).fill(sum / count)).map((row, index) => row + index);
}

/** Returns the nodes that `id` reaches by references in either direction, and itself. */
export function around(id: string, edges: readonly LayoutEdge[]): Set<string> {
  const reached = new Set([id]);
  for (const [from, to] of [["from", "to"], ["to", "from"]] as const) {
    const next = new Map<string, string[]>();
    for (const edge of edges) (next.get(edge[from]) ?? next.set(edge[from], []).get(edge[from]))?.push(edge[to]);
    const seen = new Set([id]);
    const open = [id];
    for (let one = open.pop(); one !== undefined; one = open.pop()) {
      for (const other of next.get(one) ?? []) {
        if (seen.has(other)) continue;
        seen.add(other);
        reached.add(other);
        open.push(other);
      }
    }
  }
  return reached;
}
