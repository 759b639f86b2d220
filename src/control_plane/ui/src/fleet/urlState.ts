/** User's choices as a query string that can be read and shared: kind=Agent&kind=Flow&q=weather. */

import type { FleetSearch } from "./filter.ts";
import { SORT_KEYS, type SortKey } from "./order.ts";

export type RawSearch = Record<string, string | string[]>;

/** Parses a query string; repeated names become a list. */
export function parseSearch(text: string): RawSearch {
  const raw: RawSearch = {};
  for (const [name, value] of new URLSearchParams(text)) {
    const before = raw[name];
    raw[name] = before === undefined ? value : [...(Array.isArray(before) ? before : [before]), value];
  }
  return raw;
}

export function stringifySearch(search: Record<string, unknown>): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(search)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") params.append(name, String(one));
    }
  }
  const text = params.toString();
  return text && `?${text}`;
}

export function listOf(value: unknown): string[] {
  const values = Array.isArray(value) ? value : [value];
  return [...new Set(values.filter((one): one is string => typeof one === "string" && one !== ""))];
}

export function textOf(value: unknown): string | undefined {
  const one: unknown = Array.isArray(value) ? value[0] : value;
  return typeof one === "string" && one !== "" ? one : undefined;
}

/** Reads the table's choices from a query string; invalid values are dropped. */
export function fleetSearch(raw: Record<string, unknown>): FleetSearch {
  const search: FleetSearch = {};
  const kind = listOf(raw.kind);
  const phase = listOf(raw.phase);
  const namespace = textOf(raw.namespace);
  const q = textOf(raw.q);
  const sort = textOf(raw.sort);
  if (kind.length) search.kind = kind;
  if (phase.length) search.phase = phase;
  if (namespace) search.namespace = namespace;
  if (raw.attention === true || textOf(raw.attention) === "true") search.attention = true;
  if (q) search.q = q;
  if (sort && (SORT_KEYS as readonly string[]).includes(sort)) {
    search.sort = sort as SortKey;
    if (textOf(raw.order) === "desc") search.order = "desc";
  }
  return search;
}

/** Toggles `value` in the list; an empty list becomes undefined. */
export function toggled(list: readonly string[] | undefined, value: string): string[] | undefined {
  const next = list?.includes(value) ? list.filter((one) => one !== value) : [...(list ?? []), value];
  return next.length ? next : undefined;
}

/** Returns the next sorting of a column: ascending, descending, and back to the default order. */
export function nextSort(search: FleetSearch, column: SortKey): Pick<FleetSearch, "sort" | "order"> {
  if (search.sort !== column) return { sort: column };
  return search.order === "desc" ? {} : { sort: column, order: "desc" };
}
