/** Layout of a state machine: positions of the phases, and paths of the moves between them. */

import type { Machine } from "../api/types.ts";

export const BOX = { width: 126, height: 40 };
const STEP = { x: 170, y: 118 };
const MARGIN = { x: 8, top: 54, bottom: 12 };

/** Column and row of the known phases; others stand in an extra row below. */
const PLACES: Record<string, readonly [column: number, row: number]> = {
  Pending: [0, 0],
  Resolving: [1, 0],
  Rendering: [2, 0],
  Deploying: [3, 0],
  Running: [4, 0],
  Available: [2, 0],
  Terminating: [0, 1],
  Failed: [2, 1],
  Error: [2, 1],
  Terminated: [4, 1],
};

export interface Box {
  phase: string;
  x: number;
  y: number;
}
export interface Arrow {
  from: string;
  to: string;
  /** An SVG path. */
  path: string;
  /** Reasons of all moves from one phase to the other: "accept: the spec is valid". */
  why: string[];
}
export interface Diagram {
  boxes: Box[];
  arrows: Arrow[];
  width: number;
  height: number;
}

/**
 * Reports whether a move is drawn. Moves that may begin in any phase are left to the text, because their arrows would hide the
 * rest.
 */
export function isDrawn(edge: { from: string; to: string; by: string }, machine: Machine): boolean {
  if (!machine.phases.includes(edge.from) || edge.from === edge.to) return false;
  return machine.edges.filter((other) => other.by === edge.by && other.to === edge.to).length < 4;
}

export function diagram(machine: Machine): Diagram {
  let unknown = 0;
  const boxes = machine.phases.map((phase): Box => {
    const [column, row] = PLACES[phase] ?? [unknown++, 2];
    return { phase, x: MARGIN.x + column * STEP.x, y: MARGIN.top + row * STEP.y };
  });
  const at = new Map(boxes.map((box) => [box.phase, box]));
  const arrows = new Map<string, Arrow>();
  for (const edge of machine.edges) {
    const [from, to] = [at.get(edge.from), at.get(edge.to)];
    if (!from || !to || !isDrawn(edge, machine)) continue;
    const key = `${edge.from} ${edge.to}`;
    const arrow = arrows.get(key) ?? { from: edge.from, to: edge.to, path: line(from, to), why: [] };
    arrow.why.push(`${edge.by}: ${edge.why}`);
    arrows.set(key, arrow);
  }
  return {
    boxes,
    arrows: [...arrows.values()],
    width: Math.max(...boxes.map((box) => box.x + BOX.width)) + MARGIN.x,
    height: Math.max(...boxes.map((box) => box.y + BOX.height)) + MARGIN.bottom,
  };
}

function line(from: Box, to: Box): string {
  const columns = Math.round((to.x - from.x) / STEP.x);
  if (from.y === to.y) {
    const y = from.y + BOX.height / 2;
    // A move to the next column is a straight line; one back or over other columns is an arch above them.
    if (columns === 1) return `M${from.x + BOX.width} ${y} H${to.x - 2}`;
    const [start, end] = [from.x + BOX.width * (columns > 0 ? 0.6 : 0.4), to.x + BOX.width * (columns > 0 ? 0.4 : 0.6)];
    const top = from.y - 14 - 10 * Math.abs(columns);
    return `M${start} ${from.y} C${start} ${top} ${end} ${top} ${end} ${to.y - 2}`;
  }
  const down = to.y > from.y;
  // Two moves between the same boxes are drawn side by side.
  const shift = down ? -12 : 12;
  const [startX, endX] = [from.x + BOX.width / 2 + shift + columns * 8, to.x + BOX.width / 2 + shift - columns * 8];
  const [startY, endY] = down ? [from.y + BOX.height, to.y - 2] : [from.y, to.y + BOX.height + 2];
  const middle = (startY + endY) / 2;
  return `M${startX} ${startY} C${startX} ${middle} ${endX} ${middle} ${endX} ${endY}`;
}
