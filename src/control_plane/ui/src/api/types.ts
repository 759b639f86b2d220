/** Responses of the control plane's REST API under short names; all but the live change are generated from its OpenAPI document. */

import type { components } from "./schema.d.ts";

type Schemas = components["schemas"];

export type Summary = Schemas["Summary"];
export type FleetPage = Schemas["FleetPage"];
/** Number of objects per kind and phase. */
export type Counts = FleetPage["counts"];
/** Entry of an object's history: a move, or a wait or retry, which stays in its phase. */
export type TraceEntry = Schemas["Step"];
export type Trace = Schemas["Trace"];
/** History entry with its object. */
export type Transition = Schemas["Transition"];
/** Object; its metadata and status have more fields than are declared here. */
export type KubeObject = Omit<Schemas["Object"], "metadata" | "status"> & {
  metadata: { generation?: number; [field: string]: unknown };
  status: { phase?: string; observedGeneration?: number; conditions?: Condition[]; [field: string]: unknown } | null;
};
/** State of the mirror that stores the history in the database. */
export type History = Schemas["History"];
export type Why = Schemas["Why"];
export type Child = Schemas["Child"];
export type RenderedFile = Schemas["File"];
export type KubeEvent = Schemas["Event"];
export type Load = Schemas["Load"];
export type Machine = Schemas["Machine"];
export type MachineEdge = Schemas["Edge"];
export type Graph = Schemas["Graph"];
export type GraphNode = Schemas["Node"];
export type GraphEdge = Schemas["Link"];
export type ToolServer = Schemas["ToolServer"];
export type ServerTool = Omit<Schemas["ToolDefinition"], "inputSchema"> & { inputSchema: Record<string, unknown> | null };
export type ServerTools = Omit<Schemas["Tools"], "items"> & { items: ServerTool[] };
export type Usage = Schemas["Usage"];
export type UsageItem = Schemas["UsageItem"];
export type Me = Schemas["Me"];
export type Problem = Schemas["Problem"];

/** Start of a move that is possible in any phase. */
export const ANYWHERE = "*";

/** Condition in a status, as Kubernetes defines it. */
export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

export interface Page<T> {
  items: T[];
  continue?: string | null;
}

/** Data of `event: change` in the live stream. */
export interface Change {
  type: "applied" | "deleted";
  object: Summary;
}
