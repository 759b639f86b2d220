import { describe, expect, inject, it } from "vitest";

import type { KubeObject, Trace, TraceEntry, Transition } from "../src/api/types.ts";
import { stretches } from "../src/object/timeline.ts";
import { apply, kubectl, object, until } from "./cluster.ts";
import { openPage, stage } from "./page.ts";

const namespace = inject("namespace");
const ui = stage("none");


const open = (name: string, tab = ""): Promise<unknown> => ui.page.goto(`${ui.control.url}/ui/objects/agents/${namespace}/${name}${tab && `?tab=${tab}`}`);
const read = async <T>(path: string): Promise<T> => (await (await fetch(`${ui.control.url}/v1/agents/${namespace}/${path}`)).json()) as T;

describe("an object", () => {
  it("has a timeline that is its trace", async () => {
    await open("echo");
    await ui.page.locator("[data-seq]").first().waitFor();
    const trace = await read<Trace>("echo/trace");
    const expected = [...trace.entries].sort((a, b) => b.seq - a.seq).map((entry) => String(entry.seq));
    const shown = await ui.page.locator("[data-seq]").evaluateAll((steps) => steps.map((step) => step.getAttribute("data-seq")));
    expect(shown).toEqual(expected.slice(0, shown.length));
    expect(shown.length).toBeGreaterThanOrEqual(5);
    const drawn = await ui.page.locator("[data-stretch]").evaluateAll((parts) => parts.map((part) => part.getAttribute("data-stretch")));
    expect(drawn).toEqual(stretches(trace.entries).map((stretch) => stretch.phase).slice(-drawn.length));
    expect(drawn.at(-1)).toBe("Running");
  });

  it("has only the last cycle of its timeline open on a phone", async () => {
    const phases = ["Pending", "Running", "Resolving", "Running", "Resolving", "Deploying", "Running"];
    const entries = phases.map((phase, index): TraceEntry => {
      const at = new Date(Date.UTC(2026, 0, 1, 12, index)).toISOString();
      return { seq: index + 1, at, from: phases[index - 1] ?? "", to: phase, action: "", reason: "", tookMs: 0, traceId: "" };
    });
    const real = await read<Trace>("echo/trace");
    const page = await openPage(ui.browser, { phone: true });
    await page.route("**/echo/trace", (route) => route.fulfill({ json: { ...real, entries, gaps: [] } }));
    await page.goto(`${ui.control.url}/ui/objects/agents/${namespace}/echo`);
    const drawn = async (): Promise<string> => (await page.locator("[data-stretch]").evaluateAll((parts) => parts.map((part) => part.getAttribute("data-stretch")))).join(" ");
    await page.getByRole("button", { name: "4 earlier phases" }).waitFor();
    expect(await drawn()).toBe("Resolving Deploying Running");
    await page.getByRole("button", { name: "4 earlier phases" }).click();
    await page.getByRole("button", { name: "Last cycle only" }).waitFor();
    expect(await drawn()).toBe(phases.join(" "));
    await page.context().close();
  });

  it("says why it waits, in the words of the API", async () => {
    await open("lonely");
    const { sentence } = await read<{ sentence: string }>("lonely/why");
    expect(await ui.page.getByTestId("why").innerText()).toBe(sentence);
    await ui.page.getByText("MissingDependency").first().waitFor();
    await ui.page.getByText("Nothing was made for it.").waitFor();
    expect(await ui.page.getByText("recif why").count(), "without a Pod there is no container whose error could be read").toBe(0);
    const messages = await ui.page.locator(".condition p").allTextContents();
    expect(messages.join("\n")).toContain('"shop-cart" not found');
    expect(new Set(messages).size).toBe(messages.length);
  });

  it("has its phase lit in the state machine", async () => {
    await open("lonely", "machine");
    await ui.page.locator('[data-lit="true"]', { hasText: "Resolving" }).waitFor();
    expect(await ui.page.locator("[data-lit]").count()).toBe(1);
  });

  it("shows its children, its configuration and its YAML", async () => {
    await open("echo");
    await ui.page.locator(".child", { hasText: "Deployment" }).getByText("1/1 ready").waitFor();
    await ui.page.getByRole("link", { name: "Configuration" }).click();
    await ui.page.getByText("CORAIL_TOOLS").waitFor();
    await ui.page.getByRole("link", { name: "YAML" }).click();
    const yaml = await ui.page.getByLabel("YAML", { exact: true }).innerText();
    expect(yaml).toContain("kind: Agent\n");
    expect(yaml).toContain("  framework: corail\n");
  });

  it("lists what it uses and what uses it, each with its state and a link", async () => {
    const card = (title: string) => ui.page.locator(".card", { has: ui.page.getByRole("heading", { name: title, exact: true }) });
    await open("lonely");
    await card("Uses").locator(".child", { hasText: "shop-cart" }).getByText("missing").waitFor();
    await card("Used by").getByText("No object that you may see refers to it.").waitFor();
    await open("echo");
    await card("Uses").getByRole("link", { name: "calculator" }).click();
    await ui.page.getByRole("heading", { level: 1, name: "calculator" }).waitFor();
    await card("Used by").locator(".child", { hasText: "Agent" }).getByRole("link", { name: "echo" }).waitFor();
    expect(await card("Uses").count(), "the tool refers to nothing").toBe(0);
  });

  it("names the object that made it", async () => {
    const page = await openPage(ui.browser);
    await page.route(`**/api/v1/tools/${namespace}/calculator`, async (route) => {
      const real = (await (await route.fetch()).json()) as KubeObject;
      const ownerReferences = [{ apiVersion: "agents.recif.dev/v1", kind: "MCPServer", name: "desk", controller: true }];
      await route.fulfill({ json: { ...real, metadata: { ...real.metadata, ownerReferences } } });
    });
    await page.goto(`${ui.control.url}/ui/objects/tools/${namespace}/calculator`);
    await page.locator(".facts", { hasText: "Made by" }).getByRole("link", { name: "desk" }).click();
    await page.getByRole("heading", { level: 1, name: "desk" }).waitFor();
    await page.context().close();
  });

  it("that is not there says so", async () => {
    await open("nobody");
    await ui.page.getByRole("heading", { name: "Not found" }).waitFor();
  });

  it("that was deleted still tells what happened to it", async () => {
    const answer = async (path: string): Promise<Response> => await fetch(`${ui.control.url}/v1/${path}`);
    await apply(object(namespace, "Tool", "brief", { name: "brief", type: "builtin" }));
    await until("its history to be kept", async () => {
      const { items } = (await (await answer("transitions")).json()) as { items: Transition[] };
      return items.some((one) => one.namespace === namespace && one.name === "brief" && one.to === "Available");
    });
    await kubectl("-n", namespace, "delete", "tools.agents.recif.dev/brief");
    await until("it to be gone", async () => (await answer(`tools/${namespace}/brief`)).status === 404);
    await ui.page.goto(`${ui.control.url}/ui/objects/tools/${namespace}/brief`);
    await ui.page.getByRole("heading", { name: "No longer here" }).waitFor();
    await ui.page.getByRole("heading", { name: "What happened to it" }).waitFor();
    const drawn = await ui.page.locator("[data-stretch]").evaluateAll((parts) => parts.map((part) => part.getAttribute("data-stretch")));
    expect(drawn).toContain("Available");
  });

  it("is in the graph, with what it lacks", async () => {
    await ui.page.goto(`${ui.control.url}/ui/graph?namespace=${namespace}`);
    await ui.page.locator(".node.missing", { hasText: "shop-cart" }).waitFor();
    await ui.page.getByText("1 broken reference").waitFor();
    await ui.page.getByRole("link", { name: /^echo Agent/ }).click();
    await ui.page.getByRole("heading", { level: 1, name: "echo" }).waitFor();
  });
});
