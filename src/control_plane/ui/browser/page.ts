/** Pages in Chromium, and what is asked of each: no error on its console, nothing serious that axe finds. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import type { AxeResults } from "axe-core";
import { type Browser, chromium, type Page } from "playwright-core";
import { expect } from "vitest";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export async function openBrowser(): Promise<Browser> {
  return await chromium.launch({ executablePath: process.env.RECIF_CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
}

export interface Options {
  dark?: boolean;
  phone?: boolean;
}

/** A page with nothing remembered. */
export async function openPage(browser: Browser, options: Options = {}): Promise<Page> {
  const context = await browser.newContext({
    colorScheme: options.dark ? "dark" : "light",
    viewport: options.phone ? { width: 390, height: 844 } : { width: 1280, height: 860 },
  });
  return await context.newPage();
}

export async function signIn(page: Page, url: string, token: string): Promise<void> {
  await page.goto(url);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
}

/** The row of an object in the fleet's table. */
export const rowOf = (page: Page, kind: string, namespace: string, name: string): ReturnType<Page["locator"]> =>
  page.locator(`[data-key="${kind}/${namespace}/${name}"]`);

export async function isAccessible(page: Page): Promise<void> {
  await page.evaluate(axe);
  const found = await page.evaluate(
    async () => await (globalThis as unknown as { axe: { run: () => Promise<AxeResults> } }).axe.run(),
  );
  const serious = found.violations.filter((violation) => violation.impact === "serious" || violation.impact === "critical");
  const said = serious.map((violation) => `${violation.id}: ${violation.nodes.map((node) => `${node.html} ${node.failureSummary ?? ""}`).join("\n  ")}`);
  expect(said, page.url()).toEqual([]);
}
