import { describe, expect, inject, it } from "vitest";

import { apply, kubectl, object, until } from "./cluster.ts";
import { rowOf, stage } from "./page.ts";

const namespace = inject("namespace");
const ui = stage("none");


const names = async (): Promise<string[]> => await ui.page.locator(".table-row .row-name").allTextContents();
const opened = async (search = ""): Promise<void> => {
  await ui.page.goto(`${ui.control.url}/ui/?namespace=${namespace}${search}`);
  await ui.page.locator(".table-row").first().waitFor();
};

describe("the fleet", () => {
  it("is at the root, and shows what is not as it should be first, with the reason", async () => {
    await ui.page.goto(ui.control.url);
    await ui.page.waitForURL("**/ui/");
    await opened();
    expect((await names())[0]).toBe("lonely");
    const row = rowOf(ui.page, "Agent", namespace, "lonely");
    expect(await row.innerText()).toContain("Resolving");
    expect(await row.innerText()).toContain('Tool "shop-cart" not found');
    const counted = await ui.page.getByRole("button", { name: /^Resolving/ }).innerText();
    expect(Number(/\d+/.exec(counted)?.[0])).toBeGreaterThanOrEqual(1);
  });

  it("is filtered, searched and sorted, and the address says how", async () => {
    await opened();
    await until("all that there is", async () => (await names()).length === 9);
    await ui.page.getByRole("button", { name: /^Agents/ }).click();
    await until("agents alone", async () => (await names()).length === 2);
    await ui.page.keyboard.press("/");
    await ui.page.keyboard.type("calc");
    await ui.page.getByText("Nothing matches").waitFor();
    await ui.page.getByLabel("Search the fleet").fill("SHOP-cart");
    await until("one row", async () => (await names()).join() === "lonely");
    await ui.page.getByLabel("Search the fleet").fill("");
    await ui.page.getByRole("columnheader").getByRole("button", { name: "Name", exact: true }).click();
    await until("sorted up", async () => (await names()).join() === "echo,lonely");
    await ui.page.getByRole("columnheader").getByRole("button", { name: "Name", exact: true }).click();
    await until("sorted down", async () => (await names()).join() === "lonely,echo");
    expect(await ui.page.getByRole("columnheader", { name: "Name", exact: true }).getAttribute("aria-sort")).toBe("descending");
    const url = new URL(ui.page.url());
    expect(url.search).toBe(`?namespace=${namespace}&kind=Agent&sort=name&order=desc`);

    await ui.page.reload();
    await until("the same after a reload", async () => (await names()).join() === "lonely,echo");
    await ui.page.getByRole("button", { name: /^Resolving/ }).click();
    await until("those that resolve", async () => (await names()).join() === "lonely");
  });

  it("goes from row to row by keys, and into an object", async () => {
    await opened();
    await ui.page.locator(".table").focus();
    await ui.page.keyboard.press("ArrowDown");
    await ui.page.locator('[data-index="0"] a:focus').waitFor();
    await ui.page.keyboard.press("ArrowDown");
    await ui.page.locator('[data-index="1"] a:focus').waitFor();
    const name = await ui.page.locator('[data-index="1"] .row-name').innerText();
    await ui.page.keyboard.press("Enter");
    await ui.page.getByRole("heading", { level: 1, name, exact: true }).waitFor();
  });

  it("shows a new object, its phases, and its end, without a reload", async () => {
    await opened();
    await ui.page.evaluate(() => ((globalThis as unknown as { mark: number }).mark = 1));
    await apply(object(namespace, "Tool", "late", { name: "late", type: "http" }));
    const row = rowOf(ui.page, "Tool", namespace, "late");
    await row.getByText("Error", { exact: true }).waitFor();
    expect(await row.innerText()).toContain("requires an endpoint");
    await apply(object(namespace, "Tool", "late", { name: "late", type: "http", endpoint: "https://example.com" }));
    await row.getByText("Available", { exact: true }).waitFor();
    await kubectl("-n", namespace, "delete", "tools.agents.recif.dev/late");
    await row.waitFor({ state: "detached" });
    expect(await ui.page.evaluate(() => (globalThis as unknown as { mark: number }).mark)).toBe(1);
  });

  it("says how old it is while the control plane is away, and goes on when it is back", async () => {
    await opened();
    await ui.page.locator('[data-live="live"]').first().waitFor();
    await ui.control.stop();
    await ui.page.getByText(/What you see is .* old/).waitFor();
    await apply(object(namespace, "Tool", "meanwhile", { name: "meanwhile", type: "builtin" }));
    await ui.control.start();
    await ui.page.locator('[data-live="live"]').first().waitFor();
    await rowOf(ui.page, "Tool", namespace, "meanwhile").waitFor();
    await kubectl("-n", namespace, "delete", "tools.agents.recif.dev/meanwhile");
    await rowOf(ui.page, "Tool", namespace, "meanwhile").waitFor({ state: "detached" });
  });

  it("tells of every move on the page of the activity, live", async () => {
    await ui.page.goto(`${ui.control.url}/ui/activity?q=${namespace}`);
    await ui.page.locator('[data-live="live"]').first().waitFor();
    await apply(object(namespace, "Tool", "moving", { name: "moving", type: "builtin" }));
    const row = ui.page.locator(".transition", { hasText: "moving" }).filter({ hasText: "Available" });
    await row.waitFor();
    expect(await row.locator(".transition-time").innerText()).toMatch(/\d:\d\d:\d\d/);
    await kubectl("-n", namespace, "delete", "tools.agents.recif.dev/moving");
  });
});
