/** A namespace with a small fleet, for all tests; gone afterwards. */

import type { TestProject } from "vitest/node";

import { apply, kubectl, object } from "./cluster.ts";

declare module "vitest" {
  interface ProvidedContext {
    namespace: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const namespace = `ui-${process.pid}`;
  await kubectl("create", "namespace", namespace);
  const remove = async (): Promise<void> => void (await kubectl("delete", "namespace", namespace, "--timeout=90s"));
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
      object(namespace, "MCPServer", "desk", {
        transportType: "stdio",
        deployment: { image: "recif.local/workload:dev", cmd: "/workload", args: ["mcp", "echo", "add"] },
      }),
    );
    await kubectl("-n", namespace, "wait", "--for=condition=Ready", "--timeout=90s", "agents.agents.recif.dev/echo", "mcpservers.agents.recif.dev/desk");
  } catch (error) {
    await remove();
    throw error;
  }
  project.provide("namespace", namespace);
  return remove;
}
