/** Order of the fleet's rows: objects that need attention first, unless the user chose a column. */

import { rankOf, toneOf } from "../api/kinds.ts";
import type { Summary } from "../api/types.ts";

export type SortKey = "name" | "kind" | "namespace" | "phase" | "pods" | "since" | "age";
export const SORT_KEYS: readonly SortKey[] = ["name", "kind", "namespace", "phase", "pods", "since", "age"];
export type Order = "asc" | "desc";

/** Returns the rank by attention; 0 needs it most. */
export function attention(object: Summary): number {
  switch (toneOf(object.phase)) {
    case "bad":
      return 0;
    case "good":
      return object.why ? 1 : 5;
    case "busy":
    case "unknown":
      return 2;
    case "leaving":
      return 3;
    case "idle":
      return 4;
  }
}

const keys = new WeakMap<Summary, string>();

/** Returns the key of the default order, compared as text. Summaries are immutable, so their keys are cached. */
function defaultKey(object: Summary): string {
  let key = keys.get(object);
  if (key === undefined) {
    key = `${attention(object)}${rankOf(object.kind)}${object.namespace}\0${object.name}`;
    keys.set(object, key);
  }
  return key;
}

export function byDefault(a: Summary, b: Summary): number {
  return compare(defaultKey(a), defaultKey(b));
}

/** Merges `changed` into rows in the default order, which is quicker than sorting thousands of rows for a few changes. */
export function withChanged(rows: readonly Summary[], changed: readonly Summary[]): Summary[] {
  const fresh = [...changed].sort(byDefault);
  const all: Summary[] = [];
  let next = 0;
  for (const row of rows) {
    for (let one = fresh[next]; one && byDefault(one, row) < 0; one = fresh[++next]) all.push(one);
    all.push(row);
  }
  return [...all, ...fresh.slice(next)];
}

function compare<T extends string | number>(a: T, b: T): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

const READ: Record<SortKey, (object: Summary) => string | number> = {
  name: (object) => object.name,
  kind: (object) => rankOf(object.kind),
  namespace: (object) => object.namespace,
  phase: (object) => object.phase ?? "",
  pods: (object) => object.replicas?.ready ?? -1,
  since: (object) => object.since ?? "",
  // The youngest object has the latest time, so ascending age is descending time.
  age: (object) => -Date.parse(object.createdAt),
};

/** Returns a sorted copy of rows in the default order; the sort is stable. */
export function sorted(rows: readonly Summary[], sort: SortKey | undefined, order: Order): readonly Summary[] {
  if (!sort) return rows;
  const sign = order === "desc" ? -1 : 1;
  const read = READ[sort];
  return rows
    .map((row) => ({ row, value: read(row) }))
    .sort((a, b) => sign * compare(a.value, b.value))
    .map(({ row }) => row);
}
