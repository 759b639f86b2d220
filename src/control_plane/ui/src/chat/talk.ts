/** What is asked of an agent, a flow or a flow of a set, and how the answer streams back through the gateway. */

import { GATEWAY, request } from "../api/client.ts";
import { kindOf } from "../api/kinds.ts";
import { eventsOf, type ServerEvent } from "../api/sse.ts";

export interface Target {
  kind: string;
  namespace: string;
  name: string;
}

/** Reads "Agent/default/my-agent". */
export function targetOf(text: string | undefined): Target | null {
  const [kind, namespace, name, more] = text?.split("/") ?? [];
  return kind && namespace && name && more === undefined && kindOf(kind)?.gateway ? { kind, namespace, name } : null;
}

/** Where it is asked; `flow` names one of a set. */
export function pathOf(target: Target, flow: string | null): string {
  const base = `${GATEWAY}/v1/${kindOf(target.kind)?.gateway}/${encodeURIComponent(target.namespace)}/${encodeURIComponent(target.name)}`;
  return target.kind === "Agent" ? `${base}/chat` : `${base}/${flow ? encodeURIComponent(flow) : ""}`;
}

/** Asks, and hands on the events as they come. */
export async function ask(path: string, body: object, signal: AbortSignal, take: (event: ServerEvent) => void): Promise<void> {
  const response = await request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
    body: JSON.stringify(body),
    signal,
  });
  if (!response.body) return;
  for await (const event of eventsOf(response.body)) take(event);
}
