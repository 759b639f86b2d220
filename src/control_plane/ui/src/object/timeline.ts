/**
 * History as a sequence of stretches: the time that the object was in each phase, and the events meanwhile.
 *
 * An entry with from = to is a wait or a retry, recorded once per reason; it belongs to the stretch in which it came.
 */

import type { TraceEntry } from "../api/types.ts";

export interface Stretch {
  phase: string;
  /** Milliseconds of the epoch. */
  start: number;
  /** Null for the current stretch. */
  end: number | null;
  /** Entry that led here; null if the history does not reach back to it. */
  entry: TraceEntry | null;
  waits: TraceEntry[];
  /** Entries before this one are no longer kept. */
  afterGap: boolean;
  /** True if begin and end are known to less than a second. */
  exact: boolean;
}

/** Reports whether a time is more precise than a second; in the statuses of older operators it is not. */
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

/** Returns the duration in milliseconds; in whole seconds if begin or end is known to the second only. */
export function lasted(stretch: Stretch, now: number): number {
  const end = stretch.end ?? now;
  if (stretch.exact) return Math.max(0, end - stretch.start);
  return Math.max(0, Math.floor(end / 1000) - Math.floor(stretch.start / 1000)) * 1000;
}

/** Formats the duration of a phase. Zero means less than the precision of one second. */
export function lastedText(milliseconds: number): string {
  return milliseconds === 0 ? "under 1 s" : duration(milliseconds);
}

/** Returns the stretches that led to the current state: from the last Pending on, or as far as the history reaches. */
export function currentRun(list: readonly Stretch[]): Stretch[] {
  const start = list.findLastIndex((stretch) => stretch.phase === "Pending");
  return list.slice(Math.max(0, start));
}

/** Phases in which an object stays until something changes. */
const STAYS = new Set(["Running", "Available", "Terminated", "Failed", "Error"]);

/** Returns the index of the stretch that began the last cycle, such as a rollout: the one after the last phase in which the object stayed. */
export function lastCycle(run: readonly Stretch[]): number {
  return run.slice(0, -1).findLastIndex((stretch) => STAYS.has(stretch.phase)) + 1;
}

/** Returns the width of a stretch as a weight, by the logarithm of its duration, so that milliseconds stay visible beside days. */
export function weight(milliseconds: number): number {
  return 1 + Math.log10(1 + milliseconds / 100);
}

const UNITS: [number, string][] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
];

/** Formats a duration, such as 340 ms, 7.4 s, 3 min 5 s, 2 d 4 h. */
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

/** Formats an age in one unit: now, 12 s, 5 min, 3 h, 8 d. */
export function ago(milliseconds: number): string {
  if (milliseconds < 1000) return "now";
  for (const [size, unit] of UNITS) if (milliseconds >= size) return `${Math.floor(milliseconds / size)} ${unit}`;
  return `${Math.floor(milliseconds / 1000)} s`;
}
