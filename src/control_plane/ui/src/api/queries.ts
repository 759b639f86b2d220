/** Queries of the pages, and their invalidation by live changes. */

import { QueryClient, queryOptions } from "@tanstack/react-query";

import { ApiError, get, query } from "./client.ts";
import { Drawn } from "./drawn.ts";
import { pluralOf } from "./kinds.ts";
import { live } from "./live.ts";
import { type Key, Refresher } from "./refresh.ts";
import type { Child, Graph, History, KubeEvent, KubeObject, Load, Machine, Page, RenderedFile, ServerTools, ToolServer, Trace, Usage, Why } from "./types.ts";

export interface Name {
  plural: string;
  namespace: string;
  name: string;
}

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 10_000,
      refetchOnWindowFocus: false,
      // A refusal (4xx) is final; a failure may be temporary.
      retry: (failures, error) => failures < 2 && !(error instanceof ApiError && error.status >= 400 && error.status < 500),
      retryDelay: 500,
    },
  },
});

const path = ({ plural, namespace, name }: Name): string => `/${plural}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
const keyOf = ({ plural, namespace, name }: Name, part: string): string[] => ["object", plural, namespace, name, part];

function part<T>(name: Name, what: string) {
  return queryOptions({ queryKey: keyOf(name, what), queryFn: ({ signal }) => get<T>(`${path(name)}${what && `/${what}`}`, signal) });
}

export const objectQuery = (name: Name) => part<KubeObject>(name, "");
export const whyQuery = (name: Name) => part<Why>(name, "why");
export const traceQuery = (name: Name) => part<Trace>(name, "trace");
/** What an object refers to and what refers to it, as a part of the graph. */
export const referencesQuery = (name: Name) => part<Graph>(name, "references");
export const childrenQuery = (name: Name) => part<{ items: Child[] }>(name, "children");
export const eventsQuery = (name: Name) => part<{ items: KubeEvent[] }>(name, "events");
export const renderedQuery = (name: Name) => part<{ files: RenderedFile[] }>(name, "rendered");
export const loadQuery = (name: Name) => queryOptions({ ...part<Load>(name, "load"), refetchInterval: 1000, staleTime: 0, retry: false });

export const machineQuery = (kind: string) =>
  queryOptions({ queryKey: ["machine", kind], queryFn: ({ signal }) => get<Machine>(`/machines/${kind}`, signal), staleTime: Infinity });

/** Lag of the history. No live change reports it, so it is polled. */
export const historyQuery = () =>
  queryOptions({ queryKey: ["history"], queryFn: ({ signal }) => get<History>("/history", signal), refetchInterval: 15_000, retry: false });

/** Tokens and cost. No live change reports them, so they are polled. */
export const usageQuery = (group: string, since: string, step: "hour" | "day" | null) =>
  queryOptions({
    queryKey: ["usage", group, since, step ?? ""],
    queryFn: ({ signal }) => get<Usage>(`/usage${query({ group, since, step })}`, signal),
    refetchInterval: 15_000,
  });

export const graphQuery = (namespace: string | undefined) =>
  queryOptions({ queryKey: ["graph", namespace ?? ""], queryFn: ({ signal }) => get<Graph>(`/graph${query({ namespace })}`, signal) });

export const toolServersQuery = () =>
  queryOptions({ queryKey: ["toolservers"], queryFn: ({ signal }) => get<Page<ToolServer>>("/toolservers", signal) });

export const serverToolsQuery = (kind: string, namespace: string, name: string) =>
  queryOptions({
    queryKey: ["toolservers", kind, namespace, name],
    queryFn: ({ signal }) => get<ServerTools>(`/toolservers/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}/tools${query({ kind })}`, signal),
  });

/** Number of nodes from which a graph takes long to load and to draw. */
const LARGE_GRAPH = 500;

function gatherMs(key: Key): number {
  const large = ([, graph]: [unknown, Graph | undefined]): boolean => (graph?.nodes.length ?? 0) > LARGE_GRAPH;
  return key[0] === "graph" && queryClient.getQueriesData<Graph>({ queryKey: key }).some(large) ? 1000 : 50;
}

const refresher = new Refresher((queryKey) => queryClient.invalidateQueries({ queryKey }), gatherMs);
const isKept = (queryKey: Key): boolean => queryClient.getQueryCache().find({ queryKey, exact: false }) !== undefined;

/** Invalidates the queries of a changed object, if a page has used them. */
function later(key: Key): void {
  if (isKept(key)) refresher.later(key);
}

const drawn = new Drawn();

live.listen({
  change: (change) => {
    const { kind, namespace, name } = change.object;
    later(["object", pluralOf(kind), namespace, name]);
    if (!isKept(["graph"])) drawn.forget();
    else if (drawn.altered(change)) later(["graph"]);
    if (kind === "MCPServer" || kind === "RemoteMCPServer") later(["toolservers"]);
  },
  reset: () => {
    drawn.forget();
    for (const key of ["object", "graph", "toolservers"]) later([key]);
  },
});
