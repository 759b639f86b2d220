/** Namespace with a small fleet, for all tests; deleted afterwards. */

import type { TestProject } from "vitest/node";

import { apply, kubectl, object } from "./cluster.ts";

/** Longest name that an object may have, as a label value has at most 63 characters. */
export const LONG = `${"prompt-with-a-name-that-goes-on-and-on-".repeat(2).slice(0, 62)}z`;
/** Markup of an attacker who tries to run scripts in other users' browsers. */
export const MARKUP = `<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>`;

/** Prompt of the flow `greeter`, with a schema from which its form is made. */
const GREETING = `---
input:
  schema:
    name: string, the person to greet
    tone?: string, how to sound
  default:
    tone: friendly
---
Greet {{name}} and sound {{tone}}.`;

declare module "vitest" {
  interface ProvidedContext {
    namespace: string;
  }
}

/** Returns the tools of the server `desk`. */
function tools(namespace: string): object[] {
  const greet = {
    name: "greet",
    type: "flow",
    description: MARKUP,
    endpoint: `http://greeter.${namespace}.svc.cluster.local:8080/`,
    inputSchema: {
      type: "object",
      required: ["name"],
      properties: { name: { type: "string", minLength: 1, title: "Guest", description: MARKUP }, tone: { enum: ["friendly", "curt"], default: "friendly" } },
    },
  };
  return [{ name: "calculator", type: "builtin" }, greet];
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const namespace = `ui-${process.pid}`;
  await kubectl("create", "namespace", namespace);
  const remove = async (): Promise<void> => void (await kubectl("delete", "namespace", namespace, "--wait=false"));
  try {
    const binding = (name: string, role: string, account: string): object => ({
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "RoleBinding",
      metadata: { namespace, name },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: role },
      subjects: [{ kind: "ServiceAccount", name: account, namespace }],
    });
    const account = (name: string): object => ({ apiVersion: "v1", kind: "ServiceAccount", metadata: { namespace, name } });
    await apply(
      account("ada"),
      account("bob"),
      account("eve"),
      binding("ada-sees", "recif-view", "ada"),
      binding("ada-calls", "recif-invoker", "ada"),
      // Bob sees everything and may call nothing; Eve may do nothing at all.
      binding("bob-sees", "recif-view", "bob"),
      object(namespace, "Tool", "calculator", { name: "calculator", type: "builtin", description: "Evaluates an expression" }),
      object(namespace, "Agent", "echo", { name: "Echo", framework: "corail", tools: ["calculator"] }),
      object(namespace, "Agent", "lonely", { name: "Lonely", framework: "corail", tools: ["shop-cart"] }),
      object(namespace, "Prompt", LONG, { content: MARKUP, description: MARKUP }),
      object(namespace, "PluginConfig", "stub", { type: "stub" }),
      object(namespace, "Model", "stub", { provider: "stub", model: "echo", pluginConfigRef: { name: "stub" } }),
      object(namespace, "Flow", "greeter", {
        prompts: [{ prompt: { name: "greeting", content: GREETING } }],
        modelRef: { name: "stub" },
      }),
      object(namespace, "MCPServer", "desk", {
        transportType: "stdio",
        deployment: { image: "recif.local/runner:dev", cmd: "/recif-runner", args: ["mcp"], env: { CORAIL_TOOLS: JSON.stringify(tools(namespace)) } },
      }),
      object(namespace, "RemoteMCPServer", "far", { url: `http://desk.${namespace}.svc.cluster.local:3000/mcp`, resync: "2s" }),
    );
    const ready = ["agents.agents.recif.dev/echo", "flows.agents.recif.dev/greeter", "mcpservers.agents.recif.dev/desk", "remotemcpservers.agents.recif.dev/far"];
    await kubectl("-n", namespace, "wait", "--for=condition=Ready", "--timeout=240s", ...ready);
  } catch (error) {
    await remove();
    throw error;
  }
  project.provide("namespace", namespace);
  return remove;
}
