/**
 * A history as stretches of time: how long the object was in each phase, and what happened meanwhile.
 *
 * An entry with from = to is a wait or a retry, told once per reason; it belongs to the stretch in which it came.
 */

import type { TraceEntry } from "../api/types.ts";

export interface Stretch {
  phase: string;
  /** Milliseconds of the epoch. */
  start: number;
  /** Null: it is there now. */
  end: number | null;
  /** What led here; null when the history does not reach back to it. */
  entry: TraceEntry | null;
  waits: TraceEntry[];
  /** Entries before this one are no longer kept. */
  afterGap: boolean;
  /** Whether begin and end are known to less than a second. */
  exact: boolean;
}

/** Whether a time says more than its second, as statuses of older operators do not. */
const isExact = (at: string): boolean => /\.\d*[1-9]/.test(at);

export function stretches(entries: readonly TraceEntry[]): Stretch[] {
  const list: Stretch[] = [];
  let before: TraceEntry | null = null;
  for (const entry of [...entries].sort((a, b) => a.seq - b.seq)) {
    const at = Date.parse(entry.at);
    const last = list.at(-1);
    const gap = before ? entry.seq !== before.seq + 1 : entry.from !== "";
    const waits = entry.from === entry.to;
    if (waits && last && !gap && last.phase === entry.to) {
      last.waits.push(entry);
    } else {
      if (last) {
        last.end = at;
        last.exact &&= isExact(entry.at);
      }
      list.push({ exact: isExact(entry.at), phase: entry.to, start: at, end: null, entry: waits ? null : entry, waits: waits ? [entry] : [], afterGap: gap });
    }
    before = entry;
  }
  return list;
}

/** In milliseconds; where begin or end is known to the second only, in whole seconds. */
export function lasted(stretch: Stretch, now: number): number {
  const end = stretch.end ?? now;
  if (stretch.exact) return Math.max(0, end - stretch.start);
  return Math.max(0, Math.floor(end / 1000) - Math.floor(stretch.start / 1000)) * 1000;
}

/** How long a phase lasted, as people read it: within a second nothing is known of what is known to the second. */
export function lastedText(milliseconds: number): string {
  return milliseconds === 0 ? "under 1 s" : duration(milliseconds);
}

/** Milliseconds in each phase, in the order in which they were first seen. */
export function totals(list: readonly Stretch[], now: number): Map<string, number> {
  const sums = new Map<string, number>();
  for (const stretch of list) sums.set(stretch.phase, (sums.get(stretch.phase) ?? 0) + lasted(stretch, now));
  return sums;
}

/**
 * The way to where it is now: from the last time it was begun anew (Pending, or what the history still has) on.
 */
export function currentRun(list: readonly Stretch[]): Stretch[] {
  const start = list.findLastIndex((stretch) => stretch.phase === "Pending");
  return list.slice(Math.max(0, start));
}

/**
 * How wide a stretch is drawn, as a share of all: by the logarithm, so that milliseconds stay visible beside days.
 */
export function weight(milliseconds: number): number {
  return 1 + Math.log10(1 + milliseconds / 100);
}

const UNITS: [number, string][] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
];

/** Such as 340 ms, 7.4 s, 3 min 5 s, 2 d 4 h. */
export function duration(milliseconds: number): string {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 59_950) return `${(milliseconds / 1000).toFixed(milliseconds < 9950 && milliseconds % 1000 ? 1 : 0)} s`;
  let rest = Math.round(milliseconds / 1000) * 1000;
  const parts: string[] = [];
  for (const [size, unit] of [...UNITS, [1000, "s"] as const]) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count || parts.length) parts.push(count ? `${count} ${unit}` : "");
    if (parts.length === 2) break;
  }
  return parts.filter(Boolean).join(" ");
}

/** How long ago, in one unit: now, 12 s, 5 min, 3 h, 8 d. */
export function ago(milliseconds: number): string {
  if (milliseconds < 1000) return "now";
  for (const [size, unit] of UNITS) if (milliseconds >= size) return `${Math.floor(milliseconds / size)} ${unit}`;
  return `${Math.floor(milliseconds / 1000)} s`;
}
