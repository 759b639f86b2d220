import { expect, inject, it } from "vitest";

import { stage } from "./page.ts";
import { LONG, MARKUP } from "./setup.ts";

const namespace = inject("namespace");
const ui = stage("none");

const PLACES: [path: string, shown: string][] = [
  [`objects/prompts/${namespace}/${LONG}?tab=yaml`, "pre"],
  [`tools?server=MCPServer/${namespace}/desk&tool=greet`, ".tool"],
  [`chat?with=Agent/${namespace}/${encodeURIComponent(MARKUP)}`, "h2"],
  [`?q=${encodeURIComponent(MARKUP)}`, ".table-row"],
  [`graph?focus=Agent/${namespace}/${encodeURIComponent(MARKUP)}`, ".state"],
];

it.each(PLACES)("what a user wrote is shown as it is, never run: /ui/%s", async (path, shown) => {
  const harmed = async (): Promise<unknown> => await ui.page.evaluate(() => "harmed" in globalThis);
  await ui.page.goto(`${ui.control.url}/ui/${path}`);
  await ui.page.locator(shown).first().waitFor();
  expect(await ui.page.locator(".main :is(img, script)").count()).toBe(0);
  expect(await harmed()).toBe(false);
});

it("what a server says of its tools is shown as it is", async () => {
  await ui.page.goto(`${ui.control.url}/ui/tools?server=MCPServer/${namespace}/desk&tool=greet`);
  await ui.page.locator(".tool-description", { hasText: MARKUP }).waitFor();
  await ui.page.locator(".tool-form", { hasText: MARKUP }).waitFor();
});
