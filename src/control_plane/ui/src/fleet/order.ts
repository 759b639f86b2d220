/** The order of the fleet's rows: what wants attention first, unless the user chose a column. */

import { rankOf, toneOf } from "../api/kinds.ts";
import type { Summary } from "../api/types.ts";

export type SortKey = "name" | "kind" | "namespace" | "phase" | "pods" | "since" | "age";
export const SORT_KEYS: readonly SortKey[] = ["name", "kind", "namespace", "phase", "pods", "since", "age"];
export type Order = "asc" | "desc";

/** 0 wants attention most. */
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

/** Sorts as the default order does, compared as text. A summary never changes, so neither does its key. */
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

/** Rows in the default order with `changed` put in among them: quicker than to sort thousands for a few. */
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
  // The youngest has the latest time: ascending age is descending time.
  age: (object) => -Date.parse(object.createdAt),
};

/** A sorted copy of rows that are in the default order; equal ones stay in it. */
export function sorted(rows: readonly Summary[], sort: SortKey | undefined, order: Order): readonly Summary[] {
  if (!sort) return rows;
  const sign = order === "desc" ? -1 : 1;
  const read = READ[sort];
  return rows
    .map((row) => ({ row, value: read(row) }))
    .sort((a, b) => sign * compare(a.value, b.value))
    .map(({ row }) => row);
}
