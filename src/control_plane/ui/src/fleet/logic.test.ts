import { describe, expect, it } from "vitest";

import type { Summary } from "../api/types.ts";
import { countsOf, matches, phaseCounts, shortWhy } from "./filter.ts";
import { details } from "./FleetRow.tsx";
import { Fleet, isNewer } from "./merge.ts";
import { byDefault, sorted, withChanged } from "./order.ts";
import { fleetSearch, nextSort, parseSearch, stringifySearch, toggled } from "./urlState.ts";

function object(name: string, more: Partial<Summary> = {}): Summary {
  return {
    kind: "Agent",
    namespace: "default",
    name,
    uid: `uid-${name}`,
    resourceVersion: "10",
    generation: 1,
    createdAt: "2026-01-01T00:00:00Z",
    phase: "Running",
    ready: "True",
    reason: "Running",
    message: "",
    why: null,
    since: null,
    replicas: null,
    columns: {},
    ...more,
  };
}
const names = (fleet: Fleet): string[] => [...fleet.objects.values()].map((one) => `${one.name}:${one.phase}`);

describe("changes and lists", () => {
  it("compares versions as numbers", () => {
    expect(isNewer("100", "99")).toBe(true);
    expect(isNewer("99", "100")).toBe(false);
    expect(isNewer("7", "7")).toBe(false);
  });

  it("keeps the newer of a change and a page, whichever comes first", () => {
    const fleet = new Fleet();
    fleet.begin();
    expect(fleet.change({ type: "applied", object: object("a", { resourceVersion: "12", phase: "Failed" }) })).toBe(true);
    expect(fleet.page([object("a")])).toBe(false);
    fleet.finish();
    expect(names(fleet)).toEqual(["a:Failed"]);
  });

  it("does not bring back what was deleted", () => {
    const fleet = new Fleet();
    fleet.page([object("a")]);
    expect(fleet.change({ type: "deleted", object: object("a", { resourceVersion: "11" }) })).toBe(true);
    expect(fleet.page([object("a")])).toBe(false);
    expect(names(fleet)).toEqual([]);
  });

  it("takes another object of the same name, and keeps it when the deletion of the first comes late", () => {
    const fleet = new Fleet();
    fleet.page([object("a")]);
    fleet.change({ type: "applied", object: object("a", { uid: "second", resourceVersion: "20", phase: null }) });
    expect(fleet.change({ type: "deleted", object: object("a") })).toBe(false);
    expect(names(fleet)).toEqual(["a:null"]);
  });

  it("drops what a full reading did not name, but not what came meanwhile", () => {
    const fleet = new Fleet();
    fleet.page([object("old"), object("kept")]);
    fleet.begin();
    fleet.page([object("kept")]);
    fleet.change({ type: "applied", object: object("new") });
    expect(fleet.finish()).toBe(true);
    expect(names(fleet).sort()).toEqual(["kept:Running", "new:Running"]);
  });
});

describe("order", () => {
  it("puts what wants attention first, then kind, namespace and name", () => {
    const rows = [
      object("b"),
      object("a", { kind: "Tool", phase: "Available" }),
      object("z", { phase: "Resolving", why: "waits" }),
      object("c", { why: "not all Pods are ready" }),
      object("d", { phase: "Failed" }),
      object("a", { namespace: "zoo" }),
      object("s", { phase: "Terminated" }),
    ];
    expect(rows.sort(byDefault).map((row) => row.name)).toEqual(["d", "c", "z", "s", "b", "a", "a"]);
  });

  it("puts a few changed rows where sorting all would", () => {
    const rows = ["b", "d", "f"].map((name) => object(name)).sort(byDefault);
    const changed = [object("z"), object("a"), object("e"), object("g", { phase: "Failed" })];
    expect(withChanged(rows, changed)).toEqual([...rows, ...changed].sort(byDefault));
    expect(withChanged([], changed).map((row) => row.name).join("")).toBe("gaez");
    expect(withChanged(rows, [])).toEqual(rows);
  });

  it("sorts by a column, equal ones in the default order", () => {
    const rows = [object("a", { phase: "Failed" }), object("c"), object("d"), object("b", { phase: "Failed" })];
    const by = (order: "asc" | "desc"): string => sorted(rows, "phase", order).map((row) => row.name).join("");
    expect([by("asc"), by("desc")]).toEqual(["abcd", "cdab"]);
  });

  it("sorts ages by time, the youngest first", () => {
    const rows = [object("old"), object("young", { createdAt: "2026-06-01T00:00:00Z" })];
    expect(sorted(rows, "age", "asc").map((row) => row.name)).toEqual(["young", "old"]);
  });
});

describe("filter", () => {
  const rows = [
    object("shop", { why: 'tool "cart" not found', phase: "Resolving" }),
    object("weather", { columns: { Model: "gpt-9" } }),
    object("cart", { kind: "Tool", phase: null, namespace: "prod" }),
  ];
  const found = (search: Parameters<typeof matches>[0]): string[] => rows.filter(matches(search)).map((row) => row.name);

  it.each([
    [{}, ["shop", "weather", "cart"]],
    [{ q: "CART" }, ["shop", "cart"]],
    [{ q: "gpt agent" }, ["weather"]],
    [{ q: "prod/ca" }, ["cart"]],
    [{ kind: ["Tool"] }, ["cart"]],
    [{ phase: ["none", "Running"] }, ["weather", "cart"]],
    [{ namespace: "prod", kind: ["Agent"] }, []],
    [{ attention: true }, ["shop"]],
    [{ attention: true, q: "weather" }, []],
  ])("%j finds %j", (search, expected) => {
    expect(found(search)).toEqual(expected);
  });

  it("counts per kind and phase", () => {
    const counts = countsOf(rows);
    expect(counts).toEqual({ Agent: { Resolving: 1, Running: 1 }, Tool: { none: 1 } });
    expect(phaseCounts(counts, undefined)).toEqual({ Resolving: 1, Running: 1, none: 1 });
    expect(phaseCounts(counts, ["Tool"])).toEqual({ none: 1 });
  });
});

describe("URL", () => {
  it("keeps the choice through a query string", () => {
    const search = { kind: ["Agent", "Flow"], attention: true, q: "a b", sort: "age", order: "desc" } as const;
    const text = stringifySearch(search);
    expect(text).toBe("?kind=Agent&kind=Flow&attention=true&q=a+b&sort=age&order=desc");
    expect(fleetSearch(parseSearch(text))).toEqual(search);
    expect(fleetSearch(search)).toEqual(search);
  });

  it("leaves out what makes no sense", () => {
    expect(fleetSearch({ sort: "colour", order: "desc", q: "", kind: [] })).toEqual({});
    expect(fleetSearch({ sort: "name", order: "up" })).toEqual({ sort: "name" });
  });

  it("goes up, down and back by clicks on a column", () => {
    expect(nextSort({}, "name")).toEqual({ sort: "name" });
    expect(nextSort({ sort: "name" }, "name")).toEqual({ sort: "name", order: "desc" });
    expect(nextSort({ sort: "name", order: "desc" }, "name")).toEqual({});
  });

  it("toggles values of a list", () => {
    expect(toggled(undefined, "a")).toEqual(["a"]);
    expect(toggled(["a", "b"], "a")).toEqual(["b"]);
    expect(toggled(["a"], "a")).toBeUndefined();
  });
});

it.each([
  ["Agent default/a is Failed: Service/a exists — rename this agent.", "Service/a exists — rename this agent."],
  ["Agent default/a is Deploying and waits: 0 of 1 Pods ready.", "0 of 1 Pods ready."],
  ["Agent default/a was not yet seen by an operator.", "Was not yet seen by an operator."],
  ["something else", "something else"],
  [null, ""],
])("of %s a row shows %s", (why, shown) => {
  expect(shortWhy(object("a", { why }))).toBe(shown);
});

it.each<[Summary["columns"], string]>([
  [{ Endpoint: "http://a", Model: "openai/gpt" }, "openai/gpt"],
  [{ Description: "Sells pens.", Endpoint: "http://a", Model: "openai/gpt" }, "openai/gpt · Sells pens."],
  [{ Approvals: "CallsWait", Description: "Sells pens.", Model: "openai/gpt" }, "openai/gpt · calls wait for a person · Sells pens."],
  [{ Approvals: "NothingWaits", Model: "openai/gpt" }, "openai/gpt"],
  [{ Available: "True", Endpoint: "http://s", ReadyFlows: "1", Total: "2" }, "1 of 2 flows"],
  [{ Protocol: "STREAMABLE_HTTP", Tools: "3", URL: "http://far/mcp" }, "3 tools · http://far/mcp"],
  [{ Endpoint: "http://d", Tools: "1", Transport: "stdio" }, "1 tool"],
  [{ Category: "general", Type: "http" }, "http"],
  [{ Category: "finance", Type: "cli" }, "cli · finance"],
  [{}, ""],
])("the columns %j are told as %s", (columns, text) => {
  expect(details({ columns })).toBe(text);
});
