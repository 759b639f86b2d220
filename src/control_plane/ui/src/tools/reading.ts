/** Reading of the two lists of the page Tools: the servers, and the Tools among the fleet. */

import type { FleetView } from "../fleet/store.ts";

export interface Reading {
  /** True after both lists were read completely. */
  isRead: boolean;
  /** The lists that cannot be shown, by the name that the page gives them. */
  problems: { what: string; error: Error }[];
}

/** Combines the states of both lists. A list that was read before is shown, also if its last reading failed. */
export function readingOf(servers: { data?: unknown; error: Error | null }, view: Pick<FleetView, "complete" | "error">): Reading {
  const problems = [];
  if (!servers.data && servers.error) problems.push({ what: "MCP servers", error: servers.error });
  if (!view.complete && view.error) problems.push({ what: "Tools", error: view.error });
  return { isRead: Boolean(servers.data) && view.complete, problems };
}
