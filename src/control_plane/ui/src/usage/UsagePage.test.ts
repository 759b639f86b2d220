import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { expect, it } from "vitest";

import type { UsageItem } from "../api/types.ts";
import { UsageTable } from "./UsagePage.tsx";

it("marks what is estimated, and tells apart what costs nothing from what has no price", () => {
  const item: UsageItem = {
    provider: "openai",
    name: "gpt",
    calls: 2,
    failed: 1,
    input: 30,
    cacheRead: 4,
    cacheWrite: 0,
    output: 5,
    reasoning: 0,
    estimated: 35,
    unpriced: 35,
    cost: [],
    p95Ms: 2048,
  };
  const free: UsageItem = { ...item, name: "free", estimated: 0, unpriced: 0, cost: [{ currency: "EUR", amount: "0.000000000" }], p95Ms: null };
  const text = renderToStaticMarkup(createElement(UsageTable, { items: [item, free] }));
  expect(text).toContain(">~30</td>");
  expect(text).toContain("35 tokens are estimated");
  expect(text).toContain(">–</td>");
  expect(text).toContain(">0.00 EUR</td>");
  expect(text).toContain(">30</td>");
});
