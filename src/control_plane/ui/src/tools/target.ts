/** What a Tool calls, read from its spec. */

import type { KubeObject } from "../api/types.ts";

/** A text, such as a method and a URL, or another object. */
export type Target = { text: string } | { kind: string; namespace: string; name: string };

const text = (value: unknown): string => (typeof value === "string" ? value : "");

/** Returns what a Tool calls; null if its spec does not say it. */
export function targetOf(spec: KubeObject["spec"], namespace: string): Target | null {
  const object = (kind: string, ref: unknown): Target | null => {
    const { name, namespace: elsewhere } = (ref ?? {}) as { name?: unknown; namespace?: unknown };
    return text(name) ? { kind, namespace: text(elsewhere) || namespace, name: text(name) } : null;
  };
  const told = (words: string): Target | null => (words ? { text: words } : null);
  switch (spec.type) {
    case "http":
      return told(spec.endpoint ? `${text(spec.method) || "GET"} ${text(spec.endpoint)}` : "");
    case "cli":
      return told([text(spec.binary), Array.isArray(spec.allowedCommands) ? spec.allowedCommands.join(" | ") : ""].filter(Boolean).join(" "));
    case "mcp":
      return object(text((spec.mcpServerRef as { kind?: unknown } | undefined)?.kind), spec.mcpServerRef) ?? told(text(spec.mcpEndpoint));
    case "builtin":
      return { text: "a function of the runtime" };
    case "flow":
      return object("Flow", spec.flowRef);
    case "agent":
      return object("Agent", spec.agentRef) ?? told(text(spec.endpoint));
    default:
      return null;
  }
}

/** Returns the JSON Schema of the input, or the list of parameters where the spec has that; undefined if it has none. */
export function inputOf(spec: KubeObject["spec"]): unknown {
  return spec.inputSchema ?? (Array.isArray(spec.parameters) && spec.parameters.length ? spec.parameters : undefined);
}
