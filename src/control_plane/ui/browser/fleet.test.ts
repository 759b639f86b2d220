import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";

import { apply, ControlPlane, kubectl, object, until } from "./cluster.ts";
import { openBrowser, openPage, rowOf } from "./page.ts";

const namespace = inject("namespace");
let browser: Browser;
let control: ControlPlane;
let page: Page;

beforeAll(async () => {
  [browser, control] = await Promise.all([openBrowser(), ControlPlane.start("none")]);
});
afterAll(async () => {
  await Promise.all([browser?.close(), control?.stop()]);
});
beforeEach(async () => {
  page = await openPage(browser);
  return async () => await page.context().close();
});

const names = async (): Promise<string[]> => await page.locator(".table-row .row-name").allTextContents();
const opened = async (search = ""): Promise<void> => {
  await page.goto(`${control.url}/ui/?namespace=${namespace}${search}`);
  await page.locator(".table-row").first().waitFor();
};

describe("the fleet", () => {
  it("is at the root, and shows what is not as it should be first, with the reason", async () => {
    await page.goto(control.url);
    await page.waitForURL("**/ui/");
    await opened();
    expect((await names())[0]).toBe("lonely");
    const row = rowOf(page, "Agent", namespace, "lonely");
    expect(await row.innerText()).toContain("Resolving");
    expect(await row.innerText()).toContain('tool "shop-cart" not found');
    const counted = await page.getByRole("button", { name: /^Resolving/ }).innerText();
    expect(Number(/\d+/.exec(counted)?.[0])).toBeGreaterThanOrEqual(1);
  });

  it("is filtered, searched and sorted, and the address says how", async () => {
    await opened();
    expect((await names()).length).toBe(4);
    await page.getByRole("button", { name: /^Agents/ }).click();
    await until("agents alone", async () => (await names()).length === 2);
    await page.keyboard.press("/");
    await page.keyboard.type("calc");
    await page.getByText("Nothing matches").waitFor();
    await page.getByLabel("Search the fleet").fill("SHOP-cart");
    await until("one row", async () => (await names()).join() === "lonely");
    await page.getByLabel("Search the fleet").fill("");
    await page.getByRole("columnheader").getByRole("button", { name: "Name" }).click();
    await until("sorted up", async () => (await names()).join() === "echo,lonely");
    await page.getByRole("columnheader").getByRole("button", { name: "Name" }).click();
    await until("sorted down", async () => (await names()).join() === "lonely,echo");
    expect(await page.getByRole("columnheader", { name: "Name" }).getAttribute("aria-sort")).toBe("descending");
    const url = new URL(page.url());
    expect(url.search).toBe(`?namespace=${namespace}&kind=Agent&sort=name&order=desc`);

    await page.reload();
    await until("the same after a reload", async () => (await names()).join() === "lonely,echo");
    await page.getByRole("button", { name: /^Resolving/ }).click();
    await until("those that resolve", async () => (await names()).join() === "lonely");
  });

  it("goes from row to row by keys, and into an object", async () => {
    await opened();
    await page.locator(".table").focus();
    await page.keyboard.press("ArrowDown");
    await page.locator('[data-index="0"] a:focus').waitFor();
    await page.keyboard.press("ArrowDown");
    await page.locator('[data-index="1"] a:focus').waitFor();
    const name = await page.locator('[data-index="1"] .row-name').innerText();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name, exact: true }).waitFor();
  });

  it("shows a new object, its phases, and its end, without a reload", async () => {
    await opened();
    await page.evaluate(() => ((globalThis as unknown as { mark: number }).mark = 1));
    await apply(object(namespace, "Tool", "late", { name: "late", type: "http" }));
    const row = rowOf(page, "Tool", namespace, "late");
    await row.getByText("Error", { exact: true }).waitFor();
    expect(await row.innerText()).toContain("requires an endpoint");
    await apply(object(namespace, "Tool", "late", { name: "late", type: "http", endpoint: "https://example.com" }));
    await row.getByText("Available", { exact: true }).waitFor();
    await kubectl("-n", namespace, "delete", "tools.agents.recif.dev/late");
    await row.waitFor({ state: "detached" });
    expect(await page.evaluate(() => (globalThis as unknown as { mark: number }).mark)).toBe(1);
  });

  it("says how old it is while the control plane is away, and goes on when it is back", async () => {
    await opened();
    await page.locator('[data-live="live"]').first().waitFor();
    await control.stop();
    await page.getByText(/so this is .* old/).waitFor();
    await apply(object(namespace, "Tool", "meanwhile", { name: "meanwhile", type: "builtin" }));
    await control.start();
    await page.locator('[data-live="live"]').first().waitFor();
    await rowOf(page, "Tool", namespace, "meanwhile").waitFor();
    await kubectl("-n", namespace, "delete", "tools.agents.recif.dev/meanwhile");
    await rowOf(page, "Tool", namespace, "meanwhile").waitFor({ state: "detached" });
  });

  it("tells of every move on the page of the activity, live", async () => {
    await page.goto(`${control.url}/ui/activity?q=${namespace}`);
    await page.locator('[data-live="live"]').first().waitFor();
    await apply(object(namespace, "Tool", "moving", { name: "moving", type: "builtin" }));
    await page.locator(".transition", { hasText: "moving" }).filter({ hasText: "Available" }).waitFor();
    await kubectl("-n", namespace, "delete", "tools.agents.recif.dev/moving");
  });
});
