/** Transitions from pages and from the live stream, as one list: newest first, each once. */

import type { History, Transition } from "../api/types.ts";
import { ago } from "../object/timeline.ts";

const keyOf = (one: Transition): string => `${one.uid} ${one.seq}`;

/** So many are kept while the page is open, the newest. */
export const KEPT = 5000;

/** The list with more in it. */
export function merged(list: readonly Transition[], more: readonly Transition[], kept = KEPT): Transition[] {
  const known = new Set(list.map(keyOf));
  const fresh = more.filter((one) => !known.has(keyOf(one)) && known.add(keyOf(one)));
  if (!fresh.length) return list as Transition[];
  const all = [...list, ...fresh].sort((a, b) => Date.parse(b.at) - Date.parse(a.at) || b.seq - a.seq);
  return all.length > kept ? all.slice(0, kept) : all;
}

/** How many of a list are newer than those that were shown when it was paused. */
export function newer(list: readonly Transition[], shown: readonly Transition[]): number {
  const first = shown[0];
  if (!first) return list.length;
  const at = list.findIndex((one) => keyOf(one) === keyOf(first));
  return at < 0 ? list.length : at;
}

export function wanted(kinds: readonly string[] | undefined, q: string | undefined): (one: Transition) => boolean {
  const words = (q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  return (one) => {
    if (kinds?.length && !kinds.includes(one.kind)) return false;
    const text = `${one.kind} ${one.namespace}/${one.name} ${one.from} ${one.to} ${one.action} ${one.reason}`.toLowerCase();
    return words.every((word) => text.includes(word));
  };
}

/** What is wrong with the history, in a sentence; null: nothing is. */
export function troubleOf(history: History | undefined): string | null {
  if (!history?.problem) return null;
  const behind = history.behindSeconds * 1000;
  return behind < 1000 ? `History cannot be written: ${history.problem}.` : `History is ${ago(behind)} behind: ${history.problem}.`;
}
