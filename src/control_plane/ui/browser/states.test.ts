import type { Page } from "playwright-core";
import { describe, expect, it } from "vitest";

import type { GraphNode } from "../src/api/types.ts";
import { agent, graph, hold, refuse, wait, withAgents, withoutStream } from "./canned.ts";
import { isPresentable, LOOKS, openPage, stage } from "./page.ts";

const ui = stage("none");

/** Opens the fleet of a control plane that responds as `prepare` sets up, in each look. */
async function inEachLook(prepare: (page: Page) => Promise<unknown>, look: (page: Page) => Promise<unknown>, path = ""): Promise<void> {
  for (const options of LOOKS) {
    const page = await openPage(ui.browser, options);
    await withoutStream(page);
    await prepare(page);
    await page.goto(`${ui.control.url}/ui/${path}`);
    await look(page);
    await isPresentable(page);
    await page.context().close();
  }
}
const total = (page: Page): ReturnType<Page["locator"]> => page.getByTestId("total");

describe("the fleet", () => {
  it("of nothing says how to begin", async () => {
    await inEachLook(
      (page) => withAgents(page, 0),
      async (page) => {
        await page.getByRole("heading", { name: "An empty fleet" }).waitFor();
        await page.getByText("kind: Agent").waitFor();
      },
    );
  });

  it("of ten thousand is all there, from the first row to the last", async () => {
    await inEachLook(
      (page) => withAgents(page, 10_000),
      async (page) => {
        await total(page).filter({ hasText: /^10,000 objects$/ }).waitFor();
        expect(await page.locator(".table-row").count()).toBeLessThan(100);
        expect(await page.locator('[data-index="0"]').innerText()).toContain("Failed");
        await page.locator(".table").focus();
        await page.keyboard.press("End");
        await page.locator('[data-index="9999"] a:focus').waitFor();
      },
    );
  });

  it("shows what serves in part in another colour than what is well", async () => {
    const half = { ...agent(0), kind: "FlowSet", name: "half", ready: "False", reason: "Degraded", why: 'FlowSet default/half is Running: flow "bad" is broken (Degraded)' };
    await inEachLook(
      (page) => page.route("**/api/v1/fleet?*", (route) => route.fulfill({ json: { items: [half, agent(1)], total: 2, counts: { FlowSet: { Running: 1 }, Agent: { Running: 1 } } } })),
      async (page) => {
        await page.locator(".table-row", { hasText: "half" }).locator(".tone-warn", { hasText: /^Running, degraded$/ }).waitFor();
        await page.locator(".table-row", { hasText: "agent-00001" }).locator(".tone-good", { hasText: /^Running$/ }).waitFor();
      },
    );
  });

  it("that cannot be told says so, and comes as soon as it can be", async () => {
    await inEachLook(
      (page) => page.route("**/api/v1/fleet?*", refuse),
      async (page) => {
        await page.getByRole("heading", { name: "The fleet cannot be shown" }).waitFor();
        await page.getByText("Not every watch has begun: try again in a moment.", { exact: true }).waitFor();
      },
    );
    await withoutStream(ui.page);
    await ui.page.route("**/api/v1/fleet?*", refuse);
    await ui.page.goto(`${ui.control.url}/ui/`);
    const again = ui.page.getByRole("button", { name: "Try again" });
    await again.waitFor();
    await ui.page.unroute("**/api/v1/fleet?*");
    await withAgents(ui.page, 3);
    await again.click();
    await ui.page.locator(".table-row").first().waitFor();
  });

  it("is there where the live stream is refused, or held back", async () => {
    for (const handler of [refuse, hold]) {
      const page = await openPage(ui.browser);
      await page.route("**/api/v1/events", handler);
      await withAgents(page, 300);
      await page.goto(`${ui.control.url}/ui/`);
      await total(page).filter({ hasText: /^300 objects$/ }).waitFor();
      await page.locator(`[data-live="${handler === refuse ? "broken" : "connecting"}"]`).first().waitFor();
      await page.context().close();
    }
  });

  it("shows its first rows while the others are on their way", async () => {
    await withoutStream(ui.page);
    await withAgents(ui.page, 10_000);
    await ui.page.route(/fleet\?.*continue=/, hold);
    await ui.page.goto(`${ui.control.url}/ui/`);
    await ui.page.locator(".table-row").first().waitFor();
    expect(await total(ui.page).innerText()).toBe("200 objects of 10,000");
    await ui.page.getByRole("button", { name: /^Agents 10,000/ }).waitFor();
    await ui.page.getByLabel("Search the fleet").fill("agent-09999");
    await ui.page.getByRole("status", { name: "Reading the fleet" }).waitFor();
  });
});

it("a control plane that hangs is waited for visibly, and its sign-in says what is wrong", async () => {
  await inEachLook(
    (page) => page.route("**/api/v1/me", hold),
    (page) => page.getByRole("status", { name: "Connecting to the control plane" }).waitFor(),
  );
  await inEachLook(
    (page) => page.route("**/api/v1/me", refuse),
    (page) => page.getByRole("heading", { name: "No answer" }).waitFor(),
  );
});

it("a history that the database does not take is told where it is shown", async () => {
  await inEachLook(
    (page) => page.route("**/api/v1/history", (route) => route.fulfill({ json: { behindSeconds: 900, problem: "the database refuses writes" } })),
    async (page) => {
      await page.getByText("History is 15 min behind: the database refuses writes.").waitFor();
    },
    "activity",
  );
});

it("an activity of equal steps is loaded page by page, as the user asks", async () => {
  let asked: (string | null)[] = [];
  await inEachLook(
    async (page) => {
      asked = [];
      await page.route("**/api/v1/transitions?*", (route) => {
        const before = new URL(route.request().url()).searchParams.get("before");
        asked.push(before);
        const newest = Number(before ?? 10_000);
        return route.fulfill({ json: { items: Array.from({ length: 200 }, (_, index) => wait(newest - index)), continue: String(newest - 200) } });
      });
    },
    async (page) => {
      await page.getByText("×200", { exact: true }).waitFor();
      await page.getByRole("button", { name: "Look further back" }).click();
      await page.getByText("×400", { exact: true }).waitFor();
      expect(asked).toEqual([null, "9800"]);
    },
    "activity",
  );
});

it("tools that cannot be read are said to be so, and are not counted", async () => {
  await inEachLook(
    (page) => page.route("**/api/v1/fleet?*", refuse),
    async (page) => {
      await page.getByText("The Tools cannot be shown: not every watch has begun: try again in a moment").waitFor();
      await page.getByRole("heading", { name: "Cannot be shown", exact: true }).waitFor();
      expect(await page.getByText(/\d+ MCP servers?, /).count()).toBe(0);
    },
    "tools?server=Tool/default/any",
  );
});

it("a page is dark from the beginning where the system is", async () => {
  for (const [options, background] of [[{}, "rgb(247, 248, 248)"], [{ dark: true }, "rgb(13, 19, 20)"]] as const) {
    const page = await openPage(ui.browser, options);
    await page.route("**/*.js", (route) => route.abort());
    await page.goto(`${ui.control.url}/ui/`);
    expect(await page.evaluate(() => getComputedStyle(document.body).backgroundColor)).toBe(background);
    await page.context().close();
  }
});

it("a graph is a list where a picture would show a column and a half", async () => {
  for (const options of LOOKS) {
    const page = await openPage(ui.browser, options);
    await withoutStream(page);
    await page.route("**/api/v1/graph*", (route) => route.fulfill({ json: graph(3) }));
    await page.goto(`${ui.control.url}/ui/graph`);
    await page.locator("[data-node]").first().waitFor();
    expect(await page.locator(".graph > svg").count()).toBe(options.phone ? 0 : 1);
    const uses = await page.getByLabel("What agent-2 refers to").locator("[data-node]").evaluateAll((nodes) => nodes.map((node) => node.getAttribute("data-node")));
    expect(uses).toEqual(options.phone ? ["Tool/default/shared", "Tool/default/lost"] : []);
    await page.context().close();
  }
});

it("a graph shows what serves in part in another colour than what is well", async () => {
  const { nodes, edges } = graph(1);
  const half: GraphNode = { kind: "FlowSet", namespace: "default", name: "half", phase: "Running", ready: "False", missing: false };
  await inEachLook(
    (page) => page.route("**/api/v1/graph*", (route) => route.fulfill({ json: { nodes: [...nodes, half], edges } })),
    async (page) => {
      await page.locator(".tone-warn", { hasText: "half" }).filter({ hasText: "Running, degraded" }).waitFor();
      await page.locator(".tone-good", { hasText: "agent-0" }).filter({ hasNotText: "degraded" }).waitFor();
    },
    "graph",
  );
});

it("a graph that is too large is shown in part, what is broken first", async () => {
  await inEachLook(
    (page) => page.route("**/api/v1/graph*", (route) => route.fulfill({ json: graph(400) })),
    async (page) => {
      await page.getByText("152 more would be too many").waitFor();
      const shown = await page.locator("[data-node]").evaluateAll((nodes) => nodes.map((node) => node.getAttribute("data-node")));
      expect(new Set(shown).size).toBe(250);
      expect(await page.locator('[data-node="Tool/default/lost"]').textContent()).toContain("missing");
      await page.getByRole("heading", { name: "Most referred to" }).waitFor();
    },
    "graph",
  );
});

describe("the approvals", () => {
  const shop = { ...agent(1), namespace: "default", name: "shop", columns: { Approvals: "CallsWait" } };
  const list = "**/gateway/v1/agents/default/shop/approvals";
  const listed = (): object => {
    const call = { id: "call_1", name: "refund", args: { order: 7 }, args_text: '{\n  "order": 7\n}' };
    const expires = new Date(Date.now() + 3_600_000).toISOString();
    return { approvals: [{ task: "0a1b", conversation_id: "c", decided: false, approval: { expires, tools: [call] } }] };
  };
  const withShop = async (page: Page): Promise<void> => {
    await page.route("**/api/v1/fleet?*", (route) => route.fulfill({ json: { items: [shop, agent(2)], total: 2, counts: { Agent: { Running: 2 } } } }));
    await page.route(list, (route) => route.fulfill({ json: listed() }));
  };

  it("of all agents are shown with what the calls would do", async () => {
    await inEachLook(
      withShop,
      async (page) => {
        const task = page.locator('[data-task="0a1b"]');
        await task.getByText('"order": 7').waitFor();
        await task.getByText(/ left$/).waitFor();
      },
      "approvals",
    );
  });

  it("are rejected with a reason, and the answer stays", async () => {
    const { page } = ui;
    const sent: unknown[] = [];
    await withoutStream(page);
    await withShop(page);
    await page.route(`${list}/0a1b`, async (route) => {
      sent.push(route.request().postDataJSON());
      await page.unroute(list);
      await page.route(list, (again) => again.fulfill({ json: { approvals: [] } }));
      await route.fulfill({ json: { reply: "as you wish", conversation_id: "c" } });
    });
    await page.goto(`${ui.control.url}/ui/approvals`);
    await page.getByLabel("Reason of a rejection, for the model").fill("too much");
    await page.getByRole("button", { name: "Reject", exact: true }).click();
    await page.getByText("Rejected. shop answered: as you wish").waitFor();
    await page.getByText("Nothing waits for you here.").waitFor();
    expect(await page.locator("[data-task]").count()).toBe(0);
    expect(sent).toEqual([{ approvals: [{ id: "call_1", approved: false, rejection_reason: "too much" }] }]);
  });

  it("that cannot be decided on say why", async () => {
    const { page } = ui;
    await withoutStream(page);
    await withShop(page);
    await page.route(`${list}/0a1b`, (route) => route.fulfill({ status: 503, json: { error: "the decision cannot be kept now, try again" } }));
    await page.goto(`${ui.control.url}/ui/approvals`);
    await page.getByRole("button", { name: "Approve", exact: true }).click();
    await page.getByText("The decision cannot be kept now, try again.").waitFor();
    await page.locator('[data-task="0a1b"]').waitFor();
  });
});
