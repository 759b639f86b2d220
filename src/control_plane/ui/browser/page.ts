/** Pages in Chromium, and the checks of each: no error on its console, no serious violation found by axe. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import type { AxeResults } from "axe-core";
import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, expect } from "vitest";

import { type Auth, ControlPlane } from "./cluster.ts";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export async function openBrowser(): Promise<Browser> {
  return await chromium.launch({ executablePath: process.env.RECIF_CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
}

export interface Options {
  dark?: boolean;
  phone?: boolean;
}

/** Light, dark, and on a phone. */
export const LOOKS: Options[] = [{}, { dark: true }, { phone: true }];

/** Opens a page without stored state. */
export async function openPage(browser: Browser, options: Options = {}): Promise<Page> {
  const context = await browser.newContext({
    colorScheme: options.dark ? "dark" : "light",
    viewport: options.phone ? { width: 390, height: 844 } : { width: 1280, height: 860 },
  });
  // Long enough for a busy machine of two cores.
  context.setDefaultTimeout(60_000);
  return await context.newPage();
}

/** Fixture of a test file: a browser, a control plane, and for each test a page with a context of its own. */
export interface Stage {
  browser: Browser;
  control: ControlPlane;
  page: Page;
}

/** Sets up the fixture for the tests of a file, and tears it down afterwards. A failed test logs the text of its page. */
export function stage(auth: Auth): Stage {
  const it = {} as Stage;
  beforeAll(async () => {
    it.browser = await openBrowser();
    it.control = await ControlPlane.start(auth);
  });
  afterAll(async () => {
    await it.control?.stop();
    await it.browser?.close();
  });
  beforeEach(async ({ task }) => {
    it.page = await openPage(it.browser);
    return async () => {
      if (task.result?.state === "fail") {
        const shown = await it.page.locator("body").innerText({ timeout: 5000 }).catch(String);
        console.error(`${it.page.url()} showed:\n${shown.slice(0, 3000)}`);
      }
      await it.page.context().close();
    };
  });
  return it;
}

export async function signIn(page: Page, url: string, token: string): Promise<void> {
  await page.goto(url);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
}

/** Locates the row of an object in the fleet's table. */
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

/** Checks accessibility, and that the page does not scroll sideways. */
export async function isPresentable(page: Page): Promise<void> {
  await isAccessible(page);
  const sideways = await page.evaluate(() => [document.documentElement, ...document.querySelectorAll(".main")].some((one) => one.scrollWidth > one.clientWidth));
  expect(sideways, `${page.url()} scrolls sideways`).toBe(false);
}
