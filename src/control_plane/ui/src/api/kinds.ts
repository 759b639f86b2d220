/** Kinds of the API: their names in paths and in the UI. */

export interface Kind {
  kind: string;
  plural: string;
  /** Plural for the UI. */
  label: string;
  workload: boolean;
  /** Path segment below the gateway, if the kind can be called there. */
  gateway?: string;
}

export const KINDS: readonly Kind[] = [
  { kind: "Agent", plural: "agents", label: "Agents", workload: true, gateway: "agents" },
  { kind: "Flow", plural: "flows", label: "Flows", workload: true, gateway: "flows" },
  { kind: "FlowSet", plural: "flowsets", label: "Flow sets", workload: true, gateway: "flowsets" },
  { kind: "MCPServer", plural: "mcpservers", label: "MCP servers", workload: true, gateway: "mcp" },
  { kind: "RemoteMCPServer", plural: "remotemcpservers", label: "Remote servers", workload: false },
  { kind: "Tool", plural: "tools", label: "Tools", workload: false },
  { kind: "Model", plural: "models", label: "Models", workload: false },
  { kind: "PluginConfig", plural: "pluginconfigs", label: "Plugin configs", workload: false },
  { kind: "Prompt", plural: "prompts", label: "Prompts", workload: false },
];

const byKind = new Map(KINDS.map((kind) => [kind.kind, kind]));
const byPlural = new Map(KINDS.map((kind) => [kind.plural, kind]));

export function kindOf(name: string): Kind | undefined {
  return byKind.get(name);
}

export function kindOfPlural(plural: string): Kind | undefined {
  return byPlural.get(plural);
}

/** Returns the plural, such as agents; for a kind that this build does not know, as Kubernetes would form it. */
export function pluralOf(kind: string): string {
  return byKind.get(kind)?.plural ?? `${kind.toLowerCase()}s`;
}

/** Returns the rank of a kind in lists. */
export function rankOf(kind: string): number {
  const index = KINDS.findIndex((known) => known.kind === kind);
  return index < 0 ? KINDS.length : index;
}

/** Assessment of a phase, shown by colour and sign. */
export type PhaseTone = "good" | "busy" | "bad" | "idle" | "leaving" | "unknown";
/** Assessment of an object, which may be in a good phase and need attention. */
export type Tone = PhaseTone | "warn";

const TONES: Record<string, PhaseTone> = {
  Running: "good",
  Available: "good",
  Pending: "busy",
  Resolving: "busy",
  Rendering: "busy",
  Deploying: "busy",
  Failed: "bad",
  Error: "bad",
  Terminated: "idle",
  Terminating: "leaving",
};

export function toneOf(phase: string | null | undefined): PhaseTone {
  return (phase && TONES[phase]) || "unknown";
}

/** Reports whether an object serves, but only in part: it is in a good phase, and its Ready condition is False. */
export function isDegraded(phase: string | null | undefined, ready: string | undefined): boolean {
  return toneOf(phase) === "good" && ready === "False";
}

/** Returns the phase of an object as words, and its tone. */
export function stateOf(phase: string | null, ready: string | undefined): { text: string; tone: Tone } {
  if (isDegraded(phase, ready)) return { text: `${phase}, degraded`, tone: "warn" };
  return { text: phase ?? "No phase yet", tone: toneOf(phase) };
}

/** Text in the column `Approvals` of an agent while calls of its tools wait for a person: the reason of its condition `ApprovalsPending`. */
export const CALLS_WAIT = "CallsWait";

/** Phases in the order in which a healthy object sees them, failures last. */
export const PHASES = [
  "Pending",
  "Resolving",
  "Rendering",
  "Deploying",
  "Running",
  "Available",
  "Failed",
  "Error",
  "Terminated",
  "Terminating",
] as const;
