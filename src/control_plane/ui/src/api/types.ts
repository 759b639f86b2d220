/** What the control plane's REST API answers, under short names; all but the live change comes from its OpenAPI document. */

import type { components } from "./schema.d.ts";

type Schemas = components["schemas"];

export type Summary = Schemas["Summary"];
export type FleetPage = Schemas["FleetPage"];
/** Objects per kind and phase. */
export type Counts = FleetPage["counts"];
/** One entry of an object's history: a move, or a wait or retry, which stays in its phase. */
export type TraceEntry = Schemas["Step"];
export type Trace = Schemas["Trace"];
/** A history entry of some object. */
export type Transition = Schemas["Transition"];
/** An object; its metadata and status hold more than what is named here. */
export type KubeObject = Omit<Schemas["Object"], "metadata" | "status"> & {
  metadata: { generation?: number; [field: string]: unknown };
  status: { phase?: string; observedGeneration?: number; conditions?: Condition[]; [field: string]: unknown } | null;
};
/** How far what happened is stored in the database. */
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
export type Me = Schemas["Me"];
export type Problem = Schemas["Problem"];

/** Where a move begins that may begin in any phase. */
export const ANYWHERE = "*";

/** A condition as Kubernetes has it, in a status. */
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

/** `event: change` of the live stream. */
export interface Change {
  type: "applied" | "deleted";
  object: Summary;
}
