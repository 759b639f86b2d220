/** Filter of the rows, and the number of objects by kind and phase. */

import type { Counts, Summary } from "../api/types.ts";
import type { Order, SortKey } from "./order.ts";

export interface FleetSearch {
  kind?: string[];
  phase?: string[];
  namespace?: string;
  /** Set: only what is not as it should be. */
  attention?: boolean;
  q?: string;
  sort?: SortKey;
  order?: Order;
}

const haystacks = new WeakMap<Summary, string>();

function haystack(object: Summary): string {
  let text = haystacks.get(object);
  if (text === undefined) {
    const { kind, namespace, name, phase, reason, why, columns } = object;
    text = [kind, `${namespace}/${name}`, phase, reason, why, ...Object.values(columns)].join("\n").toLowerCase();
    haystacks.set(object, text);
  }
  return text;
}

/** Name of the missing phase in filters and counts, here and in the control plane. */
export const NO_PHASE = "none";

/** Returns the reason without the parts that the row's other cells show: kind, name and phase. */
export function shortWhy({ kind, namespace, name, why }: Pick<Summary, "kind" | "namespace" | "name" | "why">): string {
  const whole = `${kind} ${namespace}/${name} `;
  if (!why?.startsWith(whole)) return why ?? "";
  const rest = why.slice(whole.length).replace(/^is [A-Z][a-z]+(?: and waits)?: /, "");
  return rest.charAt(0).toUpperCase() + rest.slice(1);
}

export function matches(search: FleetSearch): (object: Summary) => boolean {
  const words = (search.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  return (object) =>
    (!search.kind?.length || search.kind.includes(object.kind)) &&
    (!search.phase?.length || search.phase.includes(object.phase ?? NO_PHASE)) &&
    (!search.namespace || object.namespace === search.namespace) &&
    (!search.attention || object.why !== null) &&
    words.every((word) => haystack(object).includes(word));
}

export function countsOf(objects: Iterable<Summary>): Counts {
  const counts: Counts = {};
  for (const { kind, phase } of objects) {
    const phases = (counts[kind] ??= {});
    const name = phase ?? NO_PHASE;
    phases[name] = (phases[name] ?? 0) + 1;
  }
  return counts;
}

/** Sums objects per phase, for the chosen kinds or all. */
export function phaseCounts(counts: Counts, kinds: readonly string[] | undefined): Record<string, number> {
  const totals: Record<string, number> = {};
  for (const [kind, phases] of Object.entries(counts)) {
    if (kinds?.length && !kinds.includes(kind)) continue;
    for (const [phase, count] of Object.entries(phases)) totals[phase] = (totals[phase] ?? 0) + count;
  }
  return totals;
}

export function total(phases: Record<string, number> | undefined): number {
  return Object.values(phases ?? {}).reduce((sum, count) => sum + count, 0);
}
