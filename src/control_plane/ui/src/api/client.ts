/**
 * HTTP client of the control plane.
 *
 * Paths begin with /api/v1, which also works where an ingress routes /v1 to the gateway. The token of the signed-in user is
 * kept in memory only: after a reload the user has to enter it again.
 */

import type { Problem } from "./types.ts";

export const API = "/api/v1";
export const GATEWAY = "/gateway";

/** Unsuccessful response. Status 0: there was no response. */
export class ApiError extends Error {
  override name = "ApiError";
  readonly status: number;
  /** Reason for which the gateway or the sidecar refused (`x-recif-reason`); null where another server answered. */
  readonly reason: string | null;

  constructor(status: number, message: string, reason: string | null = null) {
    super(message);
    this.status = status;
    this.reason = reason;
  }
}

let token: string | null = null;
const refused = new Set<() => void>();

export function setToken(next: string | null): void {
  token = next;
}

/** Calls `listener` whenever a request is refused for its token or the lack of one. */
export function onRefused(listener: () => void): () => void {
  refused.add(listener);
  return () => refused.delete(listener);
}

const isBelowGateway = (path: string): boolean => path === GATEWAY || path.startsWith(`${GATEWAY}/`);

/** Adds the user's token to the headers of a request. On the way to a workload it goes into a header that no workload gets. */
export function authorized(path: string, headers: Record<string, string> = {}): Record<string, string> {
  return token ? { ...headers, [isBelowGateway(path) ? "X-Recif-Authorization" : "Authorization"]: `Bearer ${token}` } : headers;
}

/** Forbids redirects below the gateway: a workload must not lead this page, with its token, to another one. */
export function redirects(path: string): RequestRedirect {
  return isBelowGateway(path) ? "error" : "follow";
}

/** Calls `fetch` with the user's token; throws an `ApiError` for an unsuccessful response. */
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
  throw new ApiError(response.status, message, response.headers.get("x-recif-reason"));
}

/** Timeout of a response, so that the user does not look at an empty page for longer. */
const PATIENCE_MS = 30_000;

/** Sends a GET below /api/v1 and returns the JSON. */
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

/** Returns the error text of a response: problem JSON of the control plane, `{error, reason}` of the gateway, or plain text. */
export async function problemOf(response: Response): Promise<string> {
  const text = await response.text().catch(() => "");
  try {
    const body = JSON.parse(text) as Problem & { error?: unknown; reason?: unknown };
    if (body.detail ?? body.title) return String(body.detail ?? body.title);
    const error = body.error;
    if (typeof error === "string") return error;
    if (error && typeof error === "object" && "message" in error) return String(error.message);
  } catch {
    // Not JSON: the text is returned as it is.
  }
  const short = text.trim();
  return short && short.length < 400 && !short.startsWith("<") ? short : `The answer was ${response.status} ${response.statusText}`.trim();
}

/** Encodes the parameters that are set as a query string, with a leading question mark. */
export function query(params: Record<string, string | number | readonly string[] | null | undefined>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value === null || value === undefined || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) search.append(name, String(one));
  }
  const text = search.toString();
  return text && `?${text}`;
}
