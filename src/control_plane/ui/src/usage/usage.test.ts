import { expect, it } from "vitest";

import type { Usage, UsageItem } from "../api/types.ts";
import { amountText, chartOf, costText, currenciesOf, labelOf } from "./usage.ts";

function item(name: string, hour: number, tokens: number, amount?: string, currency = "EUR"): UsageItem {
  return {
    at: `2026-01-01T${String(hour).padStart(2, "0")}:00:00Z`,
    namespace: "shop",
    name,
    calls: 1,
    failed: 0,
    input: tokens,
    cacheRead: 0,
    cacheWrite: 0,
    output: 0,
    reasoning: 0,
    estimated: 0,
    unpriced: 0,
    cost: amount ? [{ currency, amount }] : [],
    p95Ms: null,
  };
}

const usage = (items: UsageItem[]): Usage => ({ since: "2026-01-01T00:00:00Z", until: "2026-01-01T03:00:00Z", items, truncated: false });

it("draws a value for each hour, also for those without any", () => {
  const { at, series } = chartOf(usage([item("a", 0, 5), item("a", 2, 7), item("b", 1, 100)]), "hour", null);
  expect(at.map((time) => new Date(time * 1000).getUTCHours())).toEqual([0, 1, 2]);
  expect(series).toEqual([
    { label: "shop/b", values: [0, 100, 0] },
    { label: "shop/a", values: [5, 0, 7] },
  ]);
});

it("draws what has no place of its own as one series", () => {
  const items = ["a", "b", "c", "d", "e", "f", "g"].map((name, place) => item(name, 0, 10 - place));
  const { series } = chartOf(usage(items), "hour", null);
  expect(series.map((one) => one.label)).toEqual(["shop/a", "shop/b", "shop/c", "shop/d", "shop/e", "others"]);
  expect(series[5]?.values).toEqual([5 + 4, 0, 0]);
});

it("draws the cost in one currency, without what has none", () => {
  const items = [item("a", 0, 9), item("b", 1, 5, "0.500000000"), item("c", 1, 5, "2.000000000", "USD")];
  expect(currenciesOf(items)).toEqual(["EUR", "USD"]);
  expect(chartOf(usage(items), "hour", "EUR").series).toEqual([{ label: "shop/b", values: [0, 0.5, 0] }]);
});

it("names models with their provider, and callers that did not sign in", () => {
  expect([labelOf({ name: "gpt", provider: "openai" }), labelOf({ name: "ada" }), labelOf({ name: "" })]).toEqual(["openai/gpt", "ada", "not signed in"]);
});

it("shows small amounts as what they are", () => {
  expect(["0.000000000", "0.000000001", "0.012345678", "12.345678900"].map(amountText)).toEqual(["0.00", "<0.0001", "0.0123", "12.35"]);
  expect(costText(item("a", 0, 1, "1.500000000"))).toBe("1.50 EUR");
  expect(costText(item("a", 0, 1))).toBe("–");
});
