import { afterEach, beforeEach, expect, it, vi } from "vitest";

import type { LiveListener } from "../api/live.ts";
import type { FleetPage, Summary } from "../api/types.ts";
import { FleetStore } from "./store.ts";

function object(name: string, resourceVersion = "10", phase = "Running"): Summary {
  const rest = { kind: "Agent", namespace: "default", generation: 1, createdAt: "", ready: "True" as const, reason: "", message: "", why: null, since: null };
  return { ...rest, name, uid: `uid-${name}`, resourceVersion, phase, replicas: null, columns: {} };
}

/** Requests that wait for their response. */
let waiting: { path: string; answer: (body: object, status?: number) => Promise<void> }[];
let told: LiveListener;
let store: FleetStore;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  waiting = [];
  vi.stubGlobal("fetch", (path: string, { signal }: RequestInit) =>
    new Promise<Response>((resolve, reject) => {
      signal?.addEventListener("abort", () => reject(signal.reason as Error));
      const answer = async (body: object, status = 200): Promise<void> => {
        resolve(new Response(JSON.stringify(body), { status }));
        await vi.advanceTimersByTimeAsync(1000);
      };
      waiting.push({ path: path.replace("/api/v1", ""), answer });
    }),
  );
  store = new FleetStore({ listen: (listener) => ((told = listener), () => false) });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const page = (names: string, next?: string): FleetPage =>
  ({ items: names.split("").map((name) => object(name)), total: 3, counts: { Agent: { Running: 3 } }, ...(next && { continue: next }) }) as FleetPage;
const asked = (): string => waiting.splice(0).map(({ path }) => path).join(" ");
const take = async (body: object, status?: number): Promise<string> => {
  const [one] = waiting.splice(0, 1);
  await one?.answer(body, status);
  return one?.path ?? "nothing";
};
const shown = (): string => store.view().rows.map((row) => row.name + (row.phase === "Running" ? "" : "!")).join("");

it("is read without a stream, a small page first, and knows at once how many there are", async () => {
  store.open();
  store.open();
  expect(await take(page("a", "next"))).toBe("/fleet?limit=200");
  expect([shown(), store.view().complete, store.view().counts]).toEqual(["a", false, { Agent: { Running: 3 } }]);
  expect(await take(page("bc"))).toBe("/fleet?limit=1000&continue=next");
  expect([shown(), store.view().complete]).toEqual(["abc", true]);
  store.open();
  expect(asked()).toBe("");
});

it("shows the page that is on its way when the stream begins, and reads anew what was not announced", async () => {
  store.open();
  told.reset?.();
  told.reset?.();
  await take(page("ab", "next"));
  expect(shown()).toBe("ab");
  // Between that page and the start of the stream `b` was deleted, which no event reports.
  told.change?.({ type: "applied", object: object("c", "11", "Failed") });
  expect(await take(page("a", "next"))).toBe("/fleet?limit=200");
  expect(await take(page("c"))).toBe("/fleet?limit=1000&continue=next");
  expect([shown(), store.view().complete, asked()]).toEqual(["c!a", true, ""]);
  expect(store.view().counts).toEqual({ Agent: { Failed: 1, Running: 1 } });
});

it("says what is wrong, and reads again when the stream stands again", async () => {
  store.open();
  await take({ detail: "not yet" }, 503);
  expect([store.view().error?.message, store.view().complete]).toEqual(["not yet", false]);
  told.connected?.();
  await take(page("a"));
  expect([store.view().error, shown()]).toEqual([null, "a"]);
});

it("begins anew when a page fails after the stream has begun", async () => {
  store.open();
  told.reset?.();
  await take({ detail: "restarting" }, 503);
  expect(store.view().error).toBeNull();
  await take(page("a"));
  expect([shown(), store.view().complete]).toEqual(["a", true]);
});

it("forgets everything, and what is still on its way", async () => {
  store.open();
  const [late] = waiting;
  store.clear();
  await late?.answer(page("a"));
  expect([shown(), store.view().complete, store.view().error]).toEqual(["", false, null]);
  waiting = [];
  store.open();
  await take(page("b"));
  expect(shown()).toBe("b");
});
