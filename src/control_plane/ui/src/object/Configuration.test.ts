import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { expect, it } from "vitest";

import { Files } from "./Configuration.tsx";

it("shows a table per object, with a row per key, and JSON in lines", () => {
  const files = [
    { object: "ConfigMap/a-config", name: "CORAIL_MODEL", text: "echo" },
    { object: "Secret/a-secret", name: "*", text: "***" },
    { object: "ConfigMap/a-config", name: "CORAIL_TOOLS", text: '[{"name":"t"}]' },
    { object: "ConfigMap/a-config", name: "broken", text: "{no json" },
  ];
  const html = renderToStaticMarkup(createElement(Files, { files }));
  const tables = html.split("<section").slice(1);
  const rows = tables.map((table) => [...table.matchAll(/<th [^>]*>([^<]*)/g)].map((match) => match[1]));
  expect(rows).toEqual([["CORAIL_MODEL", "CORAIL_TOOLS", "broken"], ["*"]]);
  expect(tables[0]).toContain("ConfigMap/a-config");
  expect(html).toContain("<code>echo</code>");
  expect(html).toContain("<code>{no json</code>");
  expect(html).toMatch(/<pre[^>]*>\[\n {2}\{\n/);
});

it("is a table to screen readers, also where a phone shows its rows as grids", () => {
  const html = renderToStaticMarkup(createElement(Files, { files: [{ object: "ConfigMap/a", name: "KEY", text: "echo" }] }));
  const roles = [...html.matchAll(/<(table|tbody|tr|th|td)[^>]*/g)].map(([tag, element]) => `${element} ${/ role="(\w+)"/.exec(tag)?.[1]}`);
  expect(roles).toEqual(["table table", "tbody rowgroup", "tr row", "th rowheader", "td cell", "td cell"]);
});
