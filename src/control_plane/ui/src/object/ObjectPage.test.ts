import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { expect, it } from "vitest";

import { childrenQuery, whyQuery } from "../api/queries.ts";
import type { Child, KubeEvent } from "../api/types.ts";
import { EventText, Why } from "./ObjectPage.tsx";

const name = { plural: "agents", namespace: "shop", name: "cart" };
const child = (kind: string): Child => ({ kind, name: "cart", uid: "1", state: "", message: "" });

it.each([
  ["Resolving", "False", [], false],
  ["Deploying", "False", ["Deployment"], false],
  ["Deploying", "False", ["Deployment", "Pod"], true],
  ["Failed", "False", ["Pod"], true],
  ["Running", "False", ["Pod"], true],
  ["Running", "True", ["Pod"], false],
])("of a workload that is %s, Ready %s, with %j, it names the command for a container's error: %s; for the logs, of any Pod", (phase, ready, kinds, named) => {
  const client = new QueryClient();
  client.setQueryData(whyQuery(name).queryKey, { sentence: "It is so.", phase, condition: null, waitingFor: [], children: [], steps: [] });
  client.setQueryData(childrenQuery(name).queryKey, { items: kinds.map(child) });
  const why = createElement(Why, { name, phase, ready, workload: true });
  const html = renderToStaticMarkup(createElement(QueryClientProvider, { client }, why));
  expect(html).toContain("It is so.");
  expect(html.includes("recif why agents/cart -n shop")).toBe(named);
  const hasPod = kinds.map(child).some(({ kind }) => kind === "Pod");
  expect(html.includes("recif logs agents/cart -n shop")).toBe(hasPod);
  expect(html.split(">Copy<").length - 1).toBe(Number(named) + Number(hasPod));
});

it.each([
  ["Agent/cart", false],
  ["Pod/cart-7d4b9-x2x9z", true],
])("an Event about %s says what it is about only if that is not the page's object", (object, named) => {
  const at = "2026-01-01T00:00:00Z";
  const event: KubeEvent = { object, type: "Warning", reason: "BackOff", message: "it ends", count: 3, firstAt: at, lastAt: at };
  const html = renderToStaticMarkup(createElement(EventText, { event, own: "Agent/cart" }));
  expect(html).toContain("it ends");
  expect(html).toContain("×3");
  expect(html.includes("Pod cart-7d4b9-x2x9z: ")).toBe(named);
});
