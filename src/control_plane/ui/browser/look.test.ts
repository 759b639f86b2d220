import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, inject, it } from "vitest";

import { ControlPlane } from "./cluster.ts";
import { isAccessible, openBrowser, openPage } from "./page.ts";

const namespace = inject("namespace");
let browser: Browser;
let control: ControlPlane;

beforeAll(async () => {
  [browser, control] = await Promise.all([openBrowser(), ControlPlane.start("none")]);
});
afterAll(async () => {
  await Promise.all([browser?.close(), control?.stop()]);
});

const PAGES: [path: string, there: string][] = [
  ["", ".table-row"],
  [`objects/agents/${namespace}/echo`, "[data-seq]"],
  [`objects/agents/${namespace}/lonely?tab=machine`, "[data-lit]"],
  [`objects/agents/${namespace}/echo?tab=config`, "pre"],
  [`objects/agents/${namespace}/echo?tab=events`, ".lines, .state"],
  [`objects/agents/${namespace}/echo?tab=yaml`, "pre"],
  [`objects/agents/${namespace}/nobody`, ".state"],
  [`graph?namespace=${namespace}`, ".node"],
  [`tools?server=MCPServer/${namespace}/desk&tool=add`, ".tool-form"],
  [`chat?with=Agent/${namespace}/echo`, ".composer"],
  ["activity", ".transition, .state"],
];

it.each(PAGES)("/ui/%s can be used by everybody: light, dark, and on a phone", async (path, there) => {
  for (const options of [{}, { dark: true }, { phone: true }]) {
    const page = await openPage(browser, options);
    const problems: string[] = [];
    page.on("pageerror", (error) => problems.push(String(error)));
    // What the policy refuses, or React warns of; an answer that is no success is the control plane's to say.
    page.on("console", (said) => said.type() === "error" && !said.text().startsWith("Failed to load resource") && problems.push(said.text()));
    await page.goto(`${control.url}/ui/${path}`);
    await page.locator(there).first().waitFor();
    await isAccessible(page);
    const sideways = await page.evaluate(() => [document.documentElement, ...document.querySelectorAll(".main")].some((one) => one.scrollWidth > one.clientWidth));
    expect(sideways, "it scrolls sideways").toBe(false);
    expect(problems).toEqual([]);
    await page.context().close();
  }
});

it("asks nobody but the control plane, and its first view is small", async () => {
  const page = await openPage(browser);
  const asked: string[] = [];
  page.on("request", (request) => asked.push(request.url()));
  const session = await page.context().newCDPSession(page);
  await session.send("Network.enable");
  const kept = new Map<string, string>();
  let bytes = 0;
  session.on("Network.responseReceived", ({ requestId, response }) => kept.set(requestId, response.url));
  session.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
    if (kept.get(requestId)?.includes("/ui/")) bytes += encodedDataLength;
  });
  await page.goto(`${control.url}/ui/`);
  await page.locator(".table-row").first().waitFor();
  await page.waitForLoadState("load");
  expect(asked.filter((url) => !url.startsWith(`${control.url}/`))).toEqual([]);
  expect(bytes).toBeGreaterThan(10_000);
  expect(bytes).toBeLessThan(200_000);
  await page.context().close();
});
