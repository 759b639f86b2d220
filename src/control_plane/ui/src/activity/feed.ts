/** Transitions from pages and from the live stream, merged into one list: newest first, each once. */

import type { History, Transition } from "../api/types.ts";
import { ago } from "../object/timeline.ts";

const keyOf = (one: Transition): string => `${one.uid} ${one.seq}`;

/** Limit of the transitions that are kept while the page is open, the newest ones. */
export const KEPT = 5000;

/** Merges more transitions into the list. */
export function merged(list: readonly Transition[], more: readonly Transition[], kept = KEPT): Transition[] {
  const known = new Set(list.map(keyOf));
  const fresh = more.filter((one) => !known.has(keyOf(one)) && known.add(keyOf(one)));
  if (!fresh.length) return list as Transition[];
  const all = [...list, ...fresh].sort((a, b) => Date.parse(b.at) - Date.parse(a.at) || b.seq - a.seq);
  return all.length > kept ? all.slice(0, kept) : all;
}

/** Counts the transitions that are newer than those shown at the moment of the pause. */
export function newer(list: readonly Transition[], shown: readonly Transition[]): number {
  const first = shown[0];
  if (!first) return list.length;
  const at = list.findIndex((one) => keyOf(one) === keyOf(first));
  return at < 0 ? list.length : at;
}

/** Filters by kind and words, and drops waits without a reason: they say nothing but that the object is where it was. */
export function wanted(kinds: readonly string[] | undefined, q: string | undefined): (one: Transition) => boolean {
  const words = (q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  return (one) => {
    if (one.from === one.to && !one.reason) return false;
    if (kinds?.length && !kinds.includes(one.kind)) return false;
    const text = `${one.kind} ${one.namespace}/${one.name} ${one.from} ${one.to} ${one.action} ${one.reason}`.toLowerCase();
    return words.every((word) => text.includes(word));
  };
}

/** Equal steps that an object took one after the other. */
export interface Repeated {
  newest: Transition;
  oldest: Transition;
  times: number;
}

/** Groups the repeated steps of each object, whatever other objects did between them. Newest first, as the list. */
export function grouped(list: readonly Transition[]): Repeated[] {
  const groups: Repeated[] = [];
  const latest = new Map<string, Repeated>();
  for (const one of list) {
    const group = latest.get(one.uid);
    if (group && isSameStep(group.newest, one)) {
      group.oldest = one;
      group.times += 1;
      continue;
    }
    const begun = { newest: one, oldest: one, times: 1 };
    groups.push(begun);
    latest.set(one.uid, begun);
  }
  return groups;
}

function isSameStep(a: Transition, b: Transition): boolean {
  return a.from === b.from && a.to === b.to && a.action === b.action && a.reason === b.reason;
}

/** Returns the problem of the history as a sentence; null: there is none. */
export function troubleOf(history: History | undefined): string | null {
  if (!history?.problem) return null;
  const behind = history.behindSeconds * 1000;
  return behind < 1000 ? `History cannot be written: ${history.problem}.` : `History is ${ago(behind)} behind: ${history.problem}.`;
}
