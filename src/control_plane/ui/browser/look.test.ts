import { expect, inject, it } from "vitest";

import { isPresentable, LOOKS, openPage, stage } from "./page.ts";
import { LONG } from "./setup.ts";

const namespace = inject("namespace");
const ui = stage("none");

const PAGES: [path: string, there: string][] = [
  ["", ".table-row"],
  [`objects/agents/${namespace}/echo`, "[data-seq]"],
  [`objects/agents/${namespace}/lonely?tab=machine`, "[data-lit]"],
  [`objects/agents/${namespace}/echo?tab=config`, ".files"],
  [`objects/agents/${namespace}/echo?tab=events`, ".lines, .state"],
  [`objects/agents/${namespace}/echo?tab=yaml`, "pre"],
  [`objects/agents/${namespace}/nobody`, ".state"],
  [`objects/prompts/${namespace}/${LONG}`, "[data-seq]"],
  [`graph?namespace=${namespace}`, "[data-node]"],
  [`tools?server=MCPServer/${namespace}/desk&tool=greet`, ".tool-form"],
  [`tools?server=Tool/${namespace}/calculator`, ".tool"],
  [`chat?with=Agent/${namespace}/echo`, ".composer"],
  ["approvals", ".state"],
  ["activity", ".transition, .state"],
  ["usage", ".usage-table, .state"],
  ["usage?group=models&span=30d&measure=cost", ".usage-table, .state"],
];

it.each(PAGES)("/ui/%s can be used by everybody: light, dark, and on a phone", async (path, there) => {
  for (const options of LOOKS) {
    const page = await openPage(ui.browser, options);
    const problems: string[] = [];
    page.on("pageerror", (error) => problems.push(String(error)));
    // Violations of the CSP and warnings of React count as problems. Unsuccessful responses are up to the control plane.
    page.on("console", (said) => said.type() === "error" && !said.text().startsWith("Failed to load resource") && problems.push(said.text()));
    await page.goto(`${ui.control.url}/ui/${path}`);
    await page.locator(there).first().waitFor();
    await isPresentable(page);
    expect(problems).toEqual([]);
    await page.context().close();
  }
});

it("sends requests to the control plane alone, and its first view is small", async () => {
  const page = ui.page;
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
  await page.goto(`${ui.control.url}/ui/`);
  await page.locator(".table-row").first().waitFor();
  await page.waitForLoadState("load");
  expect(asked.filter((url) => !url.startsWith(`${ui.control.url}/`))).toEqual([]);
  expect(bytes).toBeGreaterThan(10_000);
  expect(bytes).toBeLessThan(200_000);
});
