/** Requests to an agent, a flow or a flow of a set through the gateway, with streamed responses. */

import { GATEWAY, request } from "../api/client.ts";
import { kindOf } from "../api/kinds.ts";
import { eventsOf, type ServerEvent } from "../api/sse.ts";

export interface Target {
  kind: string;
  namespace: string;
  name: string;
}

/** Parses a target such as "Agent/default/my-agent". */
export function targetOf(text: string | undefined): Target | null {
  const [kind, namespace, name, more] = text?.split("/") ?? [];
  return kind && namespace && name && more === undefined && kindOf(kind)?.gateway ? { kind, namespace, name } : null;
}

/** Returns the path of a target at the gateway, without a slash at its end. */
export function rootOf(target: Target): string {
  return `${GATEWAY}/v1/${kindOf(target.kind)?.gateway}/${encodeURIComponent(target.namespace)}/${encodeURIComponent(target.name)}`;
}

/** Returns the request path of a target; `flow` names one of a set. */
export function pathOf(target: Target, flow: string | null): string {
  const base = rootOf(target);
  return target.kind === "Agent" ? `${base}/chat` : `${base}/${flow ? encodeURIComponent(flow) : ""}`;
}

/** Sends a request and passes on the events as they come. */
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
