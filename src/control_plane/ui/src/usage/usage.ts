/** Usage of models as the page shows it: the series of the chart, and the texts of the table. */

import type { Usage, UsageItem } from "../api/types.ts";

export const GROUPS = ["agents", "flows", "models", "callers", "namespaces"] as const;
export type Group = (typeof GROUPS)[number];

/** Times that are summed, as the API takes them. */
export const SPANS = ["24h", "7d", "30d"] as const;
export type Span = (typeof SPANS)[number];

export const MEASURES = ["tokens", "cost"] as const;
export type Measure = (typeof MEASURES)[number];

/** Choices of the user, in the address. */
export interface UsageSearch {
  group?: Group;
  span?: Span;
  measure?: Measure;
}

export interface Series {
  label: string;
  values: number[];
}

export interface Chart {
  /** Start of each hour or day, in seconds. */
  at: number[];
  series: Series[];
}

/** Number of series with a name; all others are one. */
const NAMED = 5;

export function stepOf(span: Span): "hour" | "day" {
  return span === "24h" ? "hour" : "day";
}

export function labelOf(item: Pick<UsageItem, "name" | "namespace" | "provider">): string {
  const scope = item.namespace ?? item.provider;
  return scope ? `${scope}/${item.name}` : item.name || "not signed in";
}

/** Returns the currencies of the sums, the one with the most tokens first. */
export function currenciesOf(items: readonly UsageItem[]): string[] {
  return [...new Set(items.flatMap((item) => item.cost.map((cost) => cost.currency)))];
}

function valueOf(item: UsageItem, currency: string | null): number {
  if (currency === null) return item.input + item.output;
  return Number(item.cost.find((cost) => cost.currency === currency)?.amount ?? 0);
}

/** Returns the tokens of each interval, or the cost in this currency, for the largest groups and for all others together. */
export function chartOf(usage: Usage, step: "hour" | "day", currency: string | null): Chart {
  const width = step === "hour" ? 3600 : 86_400;
  const end = Date.parse(usage.until) / 1000;
  const at: number[] = [];
  for (let time = Math.floor(Date.parse(usage.since) / 1000 / width) * width; time < end; time += width) at.push(time);
  const places = new Map(at.map((time, place) => [time, place]));
  const sums = new Map<string, number>();
  for (const item of usage.items) sums.set(labelOf(item), (sums.get(labelOf(item)) ?? 0) + valueOf(item, currency));
  const largest = [...sums].filter(([, sum]) => sum > 0).sort(([, one], [, other]) => other - one);
  const labels = largest.slice(0, NAMED).map(([label]) => label);
  const series: Series[] = labels.map((label) => ({ label, values: at.map(() => 0) }));
  if (largest.length > NAMED) series.push({ label: "others", values: at.map(() => 0) });
  for (const item of usage.items) {
    const place = item.at ? places.get(Date.parse(item.at) / 1000) : undefined;
    const own = labels.indexOf(labelOf(item));
    const values = series[own < 0 ? NAMED : own]?.values;
    if (place !== undefined && values) values[place] = (values[place] ?? 0) + valueOf(item, currency);
  }
  return { at, series };
}

/** Formats an amount: to the cent, and small ones to four digits behind the point. */
export function amountText(amount: string): string {
  const value = Number(amount);
  if (value > 0 && value < 0.0001) return "<0.0001";
  return value.toFixed(value === 0 || value >= 1 ? 2 : 4);
}

export function costText(item: Pick<UsageItem, "cost">): string {
  return item.cost.map((cost) => `${amountText(cost.amount)} ${cost.currency}`).join(", ") || "–";
}
