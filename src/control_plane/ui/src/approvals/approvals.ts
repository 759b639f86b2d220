/**
 * Calls of tools that wait for the user, at the agents of which the fleet says that some wait.
 *
 * Only the agent knows what waits, and for whom, so it is asked through the gateway, as the user. Others are not asked: a request
 * starts a Pod where none runs.
 */

import { queryOptions } from "@tanstack/react-query";

import { ApiError, request } from "../api/client.ts";
import { CALLS_WAIT } from "../api/kinds.ts";
import type { Summary } from "../api/types.ts";
import { type Approval, approvalOf } from "../chat/stream.ts";
import { rootOf, type Target } from "../chat/talk.ts";
import { duration } from "../object/timeline.ts";

/** Turn that waits for the user, or goes on after a decision. */
export interface WaitingTask extends Approval {
  /** Name of the user who asked; null: without sign-in, or the runtime does not say. */
  user: string | null;
  /** Set once it is decided: the same decision again goes on with it where its process died. */
  decided: boolean;
}

/** Longest reason of a rejection that the runtime keeps. */
export const MAX_REASON = 1000;
/** Longest answer of the agent that is shown. */
const MAX_REPLY = 300;

export const keyOf = ({ namespace, name }: Pick<Target, "namespace" | "name">): string => `${namespace}/${name}`;

/** Reports whether calls of an agent wait, for the user or for others. */
export const waits = (agent: Pick<Summary, "columns">): boolean => agent.columns.Approvals === CALLS_WAIT;

/** Returns the agents at which calls wait, and those whose keys are `kept`, by namespace and name. */
export function agentsThatAsk(rows: readonly Summary[], kept: ReadonlySet<string>): Summary[] {
  const asking = rows.filter((row) => row.kind === "Agent" && (waits(row) || kept.has(keyOf(row))));
  return asking.sort((a, b) => a.namespace.localeCompare(b.namespace) || a.name.localeCompare(b.name));
}

/** Reads what an agent lists; throws if it is another runtime's answer. */
export function tasksOf(body: unknown): WaitingTask[] {
  const listed = typeof body === "object" && body !== null ? (body as { approvals?: unknown }).approvals : undefined;
  if (!Array.isArray(listed)) throw new ApiError(404, "It does not say what waits as Récif's runtime does.");
  return (listed as unknown[]).flatMap((entry) => {
    const data = (entry ?? {}) as Record<string, unknown>;
    const approval = approvalOf(data);
    const user = typeof data.user === "string" ? data.user : null;
    return approval ? [{ ...approval, user, decided: data.decided === true }] : [];
  });
}

/** What waits at an agent. It is read again when the user comes back, and not polled: that would keep a Pod of an agent that scales to zero. */
export const tasksQuery = (agent: Target) =>
  queryOptions({
    queryKey: ["approvals", agent.namespace, agent.name],
    queryFn: async ({ signal }) => {
      const response = await request(`${rootOf(agent)}/approvals`, { headers: { Accept: "application/json" }, signal });
      return tasksOf(await response.json().catch(() => null));
    },
    refetchOnWindowFocus: true,
  });

/** Reports whether only another user than this one decides. */
export const isForOthers = ({ by, user: asker }: Pick<WaitingTask, "by" | "user">, user: string | null): boolean => by === "Approver" && user !== null && asker === user;

/** Returns the body of a decision on all calls of a task; null goes on with the decision of another user. */
export function decisionOn(task: WaitingTask, approved: boolean | null, reason: string): object {
  if (approved === null) return { approvals: [] };
  const rejection = !approved && reason.trim() ? { rejection_reason: reason.trim() } : {};
  return { approvals: task.calls.map(({ id }) => ({ id, approved, ...rejection })) };
}

/** Sends a decision, waits until the turn has ended or waits again, and returns the answer of the agent. */
export async function decide(agent: Target, task: WaitingTask, approved: boolean | null, reason: string): Promise<string> {
  const response = await request(`${rootOf(agent)}/approvals/${encodeURIComponent(task.task)}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify(decisionOn(task, approved, reason)),
  });
  const body = (await response.json().catch(() => ({}))) as { reply?: unknown } | null;
  const reply = typeof body?.reply === "string" ? body.reply : "";
  return reply.length > MAX_REPLY ? `${reply.slice(0, MAX_REPLY)}…` : reply;
}

/** Says how long a task still waits. */
export function timeLeft(expires: string, now: number): string {
  const end = Date.parse(expires);
  if (Number.isNaN(end)) return "";
  // Below a minute by the second, above it by the minute.
  const left = Math.ceil((end - now) / 1000) * 1000;
  return left > 0 ? `${duration(left >= 60_000 ? Math.floor(left / 60_000) * 60_000 : left)} left` : "expired";
}
