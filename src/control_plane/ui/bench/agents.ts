/** Agents as the operator leaves them, made through the API server. */

import { execFileSync } from "node:child_process";

const GROUP = "/apis/agents.recif.dev/v1";
const NAMESPACES = Array.from({ length: 10 }, (_, index) => `team-${index}`);
/** Requests at the same time. */
const AT_ONCE = 16;

interface KubeConfig {
  clusters: { cluster: { server: string } }[];
  users: { user: { token: string } }[];
}

/** The API server of KUBECONFIG; NODE_EXTRA_CA_CERTS has its authority. */
export class Api {
  #server: string;
  #token: string;

  constructor() {
    const config = JSON.parse(execFileSync("kubectl", ["config", "view", "--raw", "-o", "json"], { encoding: "utf8" })) as KubeConfig;
    this.#server = config.clusters[0]?.cluster.server ?? "";
    this.#token = config.users[0]?.user.token ?? "";
  }

  /** Sends, and takes in the answer. */
  async send(method: string, path: string, body: object, type = "application/json"): Promise<void> {
    const headers = { Authorization: `Bearer ${this.#token}`, "Content-Type": type };
    const answer = await fetch(`${this.#server}${path}`, { method, headers, body: JSON.stringify(body) });
    const text = await answer.text();
    if (!answer.ok && answer.status !== 409) throw new Error(`${method} ${path}: ${answer.status} ${text.slice(0, 300)}`);
  }

  async make(agents: number): Promise<void> {
    for (const name of NAMESPACES) await this.send("POST", "/api/v1/namespaces", { metadata: { name } });
    let next = 0;
    const worker = async (): Promise<void> => {
      while (next < agents) {
        const number = next++;
        const { namespace, name } = placeOf(number);
        const spec = { name, framework: "corail", tools: ["shared"], systemPrompt: "You are a helpful assistant. ".repeat(8) };
        const object = { apiVersion: "agents.recif.dev/v1", kind: "Agent", metadata: { name }, spec };
        await this.send("POST", `${GROUP}/namespaces/${namespace}/agents`, object);
        await this.move(number, "Running", 0);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
  }

  /** Writes the status that an agent has in a phase. */
  async move(number: number, phase: string, step: number): Promise<void> {
    const { namespace, name } = placeOf(number);
    const body = { status: statusOf(number, phase, step) };
    await this.send("PATCH", `${GROUP}/namespaces/${namespace}/agents/${name}/status`, body, "application/merge-patch+json");
  }
}

export function placeOf(number: number): { namespace: string; name: string } {
  return { namespace: NAMESPACES[number % NAMESPACES.length] ?? "", name: `agent-${String(number).padStart(5, "0")}` };
}

function statusOf(number: number, phase: string, step: number): object {
  const now = new Date().toISOString().replace(/\.\d+/, "");
  const phases = ["", "Pending", "Resolving", "Rendering", "Deploying"];
  const moves = [...phases.slice(1).map((to, at) => [phases[at], to] as const), ["Deploying", phase] as const];
  const history = moves.map(([from, to], at) => ({
    seq: step + at + 1, at: now, from, to, action: "deploy", tookMs: 12, reason: "the configuration is written", traceId: (number * 7919 + at).toString(16).padStart(32, "0"),
  }));
  const condition = (type: string, status: boolean): object => ({
    type, status: status ? "True" : "False", reason: phase, message: `step ${step}`, observedGeneration: 1, lastTransitionTime: now,
  });
  const running = phase === "Running";
  const conditions = [condition("Ready", running), condition("Reconciling", !running), condition("Stalled", false), condition("Available", true)];
  return { phase, observedGeneration: 1, replicas: 1, currentReplicas: 1, conditions, history };
}
