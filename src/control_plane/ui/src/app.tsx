/** Routes of the pages; each page but the first is loaded on its first visit. */

import { createRootRoute, createRoute, createRouter, lazyRouteComponent, Link } from "@tanstack/react-router";

import { FleetPage } from "./fleet/FleetPage.tsx";
import { fleetSearch, listOf, parseSearch, stringifySearch, textOf } from "./fleet/urlState.ts";
import { type Tab, TABS } from "./object/tabs.ts";
import { Shell } from "./shell/Shell.tsx";
import { Failure, Loading, State } from "./shell/states.tsx";
import { GROUPS, MEASURES, SPANS, type UsageSearch } from "./usage/usage.ts";

const root = createRootRoute({
  component: Shell,
  notFoundComponent: () => (
    <State icon="empty" title="No such page" action={<Link to="/" className="button">Back to fleet</Link>}>
      There is no page at this address.
    </State>
  ),
  errorComponent: ({ error, reset }) => <Failure error={error instanceof Error ? error : new Error(String(error))} retry={reset} what="this page" />,
});

const fleet = createRoute({ getParentRoute: () => root, path: "/", validateSearch: fleetSearch, component: FleetPage });

const object = createRoute({
  getParentRoute: () => root,
  path: "/objects/$plural/$namespace/$name",
  validateSearch: (raw: Record<string, unknown>): { tab?: Tab | undefined } => {
    const tab = TABS.find((one) => one === textOf(raw.tab));
    return tab && tab !== "overview" ? { tab } : {};
  },
  component: lazyRouteComponent(() => import("./object/ObjectPage.tsx"), "ObjectPage"),
});

const graph = createRoute({
  getParentRoute: () => root,
  path: "/graph",
  validateSearch: (raw: Record<string, unknown>): { namespace?: string; focus?: string } => {
    const [namespace, focus] = [textOf(raw.namespace), textOf(raw.focus)];
    return { ...(namespace && { namespace }), ...(focus && { focus }) };
  },
  component: lazyRouteComponent(() => import("./graph/GraphPage.tsx"), "GraphPage"),
});

const tools = createRoute({
  getParentRoute: () => root,
  path: "/tools",
  validateSearch: (raw: Record<string, unknown>): { server?: string; tool?: string } => {
    const [server, tool] = [textOf(raw.server), textOf(raw.tool)];
    return { ...(server && { server }), ...(tool && { tool }) };
  },
  component: lazyRouteComponent(() => import("./tools/ToolsPage.tsx"), "ToolsPage"),
});

const chat = createRoute({
  getParentRoute: () => root,
  path: "/chat",
  validateSearch: (raw: Record<string, unknown>): { with?: string } => {
    const target = textOf(raw.with);
    return target ? { with: target } : {};
  },
  component: lazyRouteComponent(() => import("./chat/ChatPage.tsx"), "ChatPage"),
});

const approvals = createRoute({
  getParentRoute: () => root,
  path: "/approvals",
  component: lazyRouteComponent(() => import("./approvals/ApprovalsPage.tsx"), "ApprovalsPage"),
});

const activity = createRoute({
  getParentRoute: () => root,
  path: "/activity",
  validateSearch: (raw: Record<string, unknown>): { q?: string; kind?: string[] } => {
    const [q, kind] = [textOf(raw.q), listOf(raw.kind)];
    return { ...(q && { q }), ...(kind.length && { kind }) };
  },
  component: lazyRouteComponent(() => import("./activity/ActivityPage.tsx"), "ActivityPage"),
});

const usage = createRoute({
  getParentRoute: () => root,
  path: "/usage",
  validateSearch: (raw: Record<string, unknown>): UsageSearch => {
    const [group, span, measure] = [textOf(raw.group), textOf(raw.span), textOf(raw.measure)];
    const chosen = { group: GROUPS.find((one) => one === group), span: SPANS.find((one) => one === span), measure: MEASURES.find((one) => one === measure) };
    return { ...(chosen.group && { group: chosen.group }), ...(chosen.span && { span: chosen.span }), ...(chosen.measure && { measure: chosen.measure }) };
  },
  component: lazyRouteComponent(() => import("./usage/UsagePage.tsx"), "UsagePage"),
});

export const router = createRouter({
  routeTree: root.addChildren([fleet, object, graph, tools, chat, approvals, activity, usage]),
  basepath: "/ui",
  parseSearch,
  stringifySearch,
  defaultPreload: "intent",
  defaultPendingComponent: () => (
    <div className="page">
      <Loading />
    </div>
  ),
  scrollRestoration: false,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
