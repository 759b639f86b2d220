/**
 * Requests to the control plane.
 *
 * Paths begin with /api/v1, which also works where an ingress gives /v1 to the gateway. The token of the signed-in user is
 * kept here, in memory, and nowhere else: a reload asks for it again.
 */

import type { Problem } from "./types.ts";

export const API = "/api/v1";
export const GATEWAY = "/gateway";

/** An answer that is no success. Status 0: there was none. */
export class ApiError extends Error {
  override name = "ApiError";
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

let token: string | null = null;
const refused = new Set<() => void>();

export function setToken(next: string | null): void {
  token = next;
}

/** Calls `listener` whenever the token (or its absence) is refused. */
export function onRefused(listener: () => void): () => void {
  refused.add(listener);
  return () => refused.delete(listener);
}

const isBelowGateway = (path: string): boolean => path === GATEWAY || path.startsWith(`${GATEWAY}/`);

/** The headers of a request of this user. What goes to workloads has the token where they never see it. */
export function authorized(path: string, headers: Record<string, string> = {}): Record<string, string> {
  return token ? { ...headers, [isBelowGateway(path) ? "X-Recif-Authorization" : "Authorization"]: `Bearer ${token}` } : headers;
}

/** A workload must not lead this page, with its token, to another one. */
export function redirects(path: string): RequestRedirect {
  return isBelowGateway(path) ? "error" : "follow";
}

/** `fetch` with the user's token; answers that are no success are thrown as an `ApiError`. */
export async function request(path: string, init: RequestInit & { headers?: Record<string, string> } = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers: authorized(path, init.headers), redirect: redirects(path), cache: "no-cache" });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    const elsewhere = isBelowGateway(path) ? " Or the workload leads elsewhere, which is not followed." : "";
    throw new ApiError(0, `The control plane does not answer. It may be restarting, or the connection to it is gone.${elsewhere}`);
  }
  if (response.ok) return response;
  const message = await problemOf(response);
  if (response.status === 401 && path.startsWith(API)) for (const listener of refused) listener();
  throw new ApiError(response.status, message);
}

/** How long an answer may take: nobody looks at an empty page for longer. */
const PATIENCE_MS = 30_000;

/** GET below /api/v1, as JSON. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const late = AbortSignal.timeout(PATIENCE_MS);
  try {
    const response = await request(`${API}${path}`, { headers: { Accept: "application/json" }, signal: signal ? AbortSignal.any([signal, late]) : late });
    return (await response.json()) as T;
  } catch (error) {
    if (signal?.aborted || error instanceof ApiError) throw error;
    if (late.aborted) throw new ApiError(0, `The control plane does not answer within ${PATIENCE_MS / 1000} s.`);
    throw new ApiError(0, "Something between here and the control plane answered instead of it, or broke its answer off.");
  }
}

/** What an answer says went wrong: problem JSON of the control plane, `{error, reason}` of the gateway, or plain text. */
export async function problemOf(response: Response): Promise<string> {
  const text = await response.text().catch(() => "");
  try {
    const body = JSON.parse(text) as Problem & { error?: unknown; reason?: unknown };
    if (body.detail ?? body.title) return String(body.detail ?? body.title);
    const error = body.error;
    if (typeof error === "string") return error;
    if (error && typeof error === "object" && "message" in error) return String(error.message);
  } catch {
    // Not JSON: as it is.
  }
  const short = text.trim();
  return short && short.length < 400 && !short.startsWith("<") ? short : `The answer was ${response.status} ${response.statusText}`.trim();
}

/** `a=1&b=2` of what is set, with a leading question mark. */
export function query(params: Record<string, string | number | readonly string[] | null | undefined>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value === null || value === undefined || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) search.append(name, String(one));
  }
  const text = search.toString();
  return text && `?${text}`;
}
