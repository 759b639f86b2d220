/** Canned responses of a control plane that no test cluster produces: empty, very large, or failing. */

import type { Page, Route } from "playwright-core";

import type { FleetPage, Graph, GraphNode, Summary, Transition } from "../src/api/types.ts";

const NAMESPACES = ["default", "team-analytics", "team-with-a-name-that-goes-on-and-on", "production"];
const PHASES: [phase: string | null, every: number][] = [["Failed", 97], ["Resolving", 61], [null, 199], ["Deploying", 43], ["Terminated", 83]];

/** Creates one of many agents. Some of them have problems. */
export function agent(number: number): Summary {
  const namespace = NAMESPACES[number % NAMESPACES.length] ?? "";
  const [phase] = PHASES.find(([, every]) => number % every === every - 1) ?? ["Running"];
  const waits = phase !== "Running" && phase !== "Terminated";
  return {
    kind: "Agent",
    namespace,
    name: `agent-${String(number).padStart(5, "0")}${number % 10 ? "" : "-whose-name-says-what-it-is-for-in-very-many-words"}`,
    uid: `uid-${number}`,
    resourceVersion: String(1000 + number),
    generation: 1,
    createdAt: "2026-01-01T00:00:00Z",
    phase,
    ready: phase === "Running" ? "True" : "False",
    reason: phase ?? "",
    message: "",
    why: waits ? `waits for tool "shop-cart-${number}", which is not in namespace ${namespace}: make it, or take it out of spec.tools` : null,
    since: "2026-01-02T00:00:00Z",
    replicas: { ready: phase === "Running" ? 1 : 0, desired: 1 },
    columns: { Framework: "corail", Model: "gpt-with-a-long-name-2026-01" },
  } as Summary;
}

/** Creates one of many equal waits of an agent. */
export function wait(seq: number): Transition {
  const at = new Date(Date.UTC(2026, 0, 1) + seq * 1000).toISOString();
  return { kind: "Agent", namespace: "default", name: "stuck", uid: "uid-stuck", seq, at, from: "Failed", to: "Failed", action: "retry", reason: "no quota", tookMs: 0, traceId: "" };
}

/** Makes the control plane respond with so many agents. */
export async function withAgents(page: Page, count: number): Promise<void> {
  const agents = Array.from({ length: count }, (_, number) => agent(number));
  const phases: Record<string, number> = {};
  for (const { phase } of agents) phases[phase ?? "none"] = (phases[phase ?? "none"] ?? 0) + 1;
  await page.route("**/api/v1/fleet?*", async (route) => {
    const asked = new URL(route.request().url()).searchParams;
    const [from, limit] = [Number(asked.get("continue") ?? 0), Number(asked.get("limit"))];
    const items = agents.slice(from, from + limit);
    const answer: FleetPage = { items, total: count, counts: count ? { Agent: phases } : {} };
    if (from + limit < count) answer.continue = String(from + limit);
    await route.fulfill({ json: answer });
  });
}

/** Makes the live stream hang, so that no event arrives. */
export async function withoutStream(page: Page): Promise<void> {
  await page.route("**/api/v1/events", hold);
}

/** Never responds. */
export const hold = (): Promise<void> => new Promise(() => undefined);

/** Responds with 503. */
export const refuse = (route: Route): Promise<void> =>
  route.fulfill({ status: 503, contentType: "application/problem+json", json: { type: "about:blank", title: "Service Unavailable", status: 503, detail: "not every watch has begun: try again in a moment" } });

/** Creates a graph of so many agents that all use one tool; the last one also refers to a missing tool. */
export function graph(agents: number): Graph {
  const node = (kind: string, name: string, missing = false): GraphNode => ({ kind, namespace: "default", name, phase: missing ? null : "Running", ready: missing ? "Unknown" : "True", missing });
  const names = Array.from({ length: agents }, (_, number) => `agent-${number}`);
  return {
    nodes: [...names.map((name) => node("Agent", name)), node("Tool", "shared"), node("Tool", "lost", true)],
    edges: [...names.map((name) => ({ from: `Agent/default/${name}`, to: "Tool/default/shared", broken: false })), { from: `Agent/default/${names.at(-1)}`, to: "Tool/default/lost", broken: true }],
  };
}
