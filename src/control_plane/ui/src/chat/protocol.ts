/** Protocol in which a target is talked to: `spec.protocol` of an Agent. */

import { GATEWAY } from "../api/client.ts";
import { pluralOf } from "../api/kinds.ts";
import { objectQuery, queryClient } from "../api/queries.ts";
import type { KubeObject } from "../api/types.ts";
import { rootOf, type Target } from "./talk.ts";

export type Protocol = "chat" | "a2a" | "http";

export const targetQuery = ({ kind, namespace, name }: Target) => objectQuery({ plural: pluralOf(kind), namespace, name });

/** Returns the protocol of an Agent; that of other kinds, and of an Agent that the user may not see, is chat. */
export function protocolOf(target: Target, object: KubeObject | undefined): Protocol {
  const protocol = target.kind === "Agent" ? object?.spec.protocol : undefined;
  return protocol === "a2a" || protocol === "http" ? protocol : "chat";
}

/** Returns the protocol of a target, which is looked up unless it is known. */
export async function readProtocol(target: Target): Promise<Protocol> {
  if (target.kind !== "Agent") return "chat";
  const object = await queryClient.fetchQuery(targetQuery(target)).catch(() => undefined);
  return protocolOf(target, object);
}

/** Says what to do with an agent that cannot be talked to from here. */
export function speaksPlainHttp(target: Target): string {
  return `${target.name} speaks plain HTTP, no chat: call it at ${rootOf(target).slice(GATEWAY.length)}/ of the gateway.`;
}
